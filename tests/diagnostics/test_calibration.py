import itertools

import numpy as np
import pytest

from ptx.diagnostics import calibration_curve, expected_calibration_error

KINDS = [(kind, binning) for kind in ("top_label", "class_wise") for binning in ("equal_width", "equal_mass")]


def binary(confidence):
    return np.stack([1 - np.asarray(confidence), confidence], axis=-1)


def calibrated(rows, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(classes, 0.7), size=rows)
    labels = (rng.random((rows, 1)) > probs.cumsum(axis=-1)).sum(axis=-1).clip(max=classes - 1)
    return probs, labels


def loop(confidence, correct, edges):
    """The definition, bin by bin: (low, high], the first bin with its low end."""
    total = 0.0
    for low, high in itertools.pairwise(edges):
        inside = (confidence > low) & (confidence <= high) | ((low == edges[0]) & (confidence == low))
        if inside.any():
            total += inside.sum() * abs(correct[inside].mean() - confidence[inside].mean())
    return total / len(confidence)


def test_top_label_by_hand():
    probs = binary([0.9, 0.95, 0.2, 0.6, 0.61])  # confidences 0.9, 0.95, 0.8, 0.6, 0.61
    labels = [1, 0, 0, 0, 1]  # correct 1, 0, 1, 0, 1
    # five bins: (0.4, 0.6] holds 0.6; (0.6, 0.8] holds 0.61 and 0.8; (0.8, 1] holds 0.9 and 0.95
    expected = (0.6 + abs(2 - 1.41) + abs(1 - 1.85)) / 5
    np.testing.assert_allclose(expected_calibration_error(probs, labels, num_bins=5), expected, rtol=1e-12)
    # one bin: the gap between mean confidence and accuracy
    one = expected_calibration_error(probs, labels, num_bins=1)
    np.testing.assert_allclose(one, abs(3 / 5 - 3.86 / 5), rtol=1e-12)


def test_equal_mass_by_hand():
    probs = binary([0.6, 0.7, 0.8, 0.9, 0.9, 0.9])
    labels = [0, 1, 1, 1, 0, 1]
    # three bins: edges at the 2nd and 4th smallest, so {0.6, 0.7}, {0.8, 0.9 x 3} and an empty one
    expected = (abs(1 - 1.3) + abs(3 - 3.5)) / 6
    value = expected_calibration_error(probs, labels, num_bins=3, binning="equal_mass")
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    curve = calibration_curve(probs, labels, num_bins=3, binning="equal_mass")
    np.testing.assert_array_equal(curve.count, [2, 4])
    np.testing.assert_allclose(curve.confidence, [0.65, 0.875])
    np.testing.assert_allclose(curve.accuracy, [0.5, 0.75])


def test_equal_mass_bins_hold_equal_counts():
    probs, labels = calibrated(300)
    assert calibration_curve(probs, labels, binning="equal_mass").count.tolist() == [20] * 15
    few = calibration_curve(probs[:4], labels[:4], binning="equal_mass")
    assert few.count.tolist() == [1] * 4


def test_class_wise_by_hand():
    probs = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    # one bin per class: |mean of [y = k] - mean of p_k| for labels 0, 1: |.5 - .4|, |.5 - .25|, |0 - .35|
    value = expected_calibration_error(probs, [0, 1], kind="class_wise", num_bins=1)
    np.testing.assert_allclose(value, (0.1 + 0.25 + 0.35) / 3, rtol=1e-12)


@pytest.mark.parametrize("num_bins", [1, 2, 10, 15, 64])
def test_equal_width_is_the_definition_bin_by_bin(num_bins):
    probs, labels = calibrated(500, seed=1)
    labels[:100] = 0
    edges = np.arange(num_bins + 1) / num_bins
    expected = loop(probs.max(-1), probs.argmax(-1) == labels, edges)
    value = expected_calibration_error(probs, labels, num_bins=num_bins)
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    expected = np.mean([loop(probs[:, k], labels == k, edges) for k in range(3)])
    value = expected_calibration_error(probs, labels, num_bins=num_bins, kind="class_wise")
    np.testing.assert_allclose(value, expected, rtol=1e-10)


def test_the_default_is_fifteen_bins_closed_on_the_right():
    probs, labels = calibrated(400, seed=2)
    value = expected_calibration_error(probs, labels)
    assert value == expected_calibration_error(probs, labels, num_bins=15)
    assert value != expected_calibration_error(probs, labels, num_bins=16)
    # 9/15 belongs to the bin that ends there: alone there, and beside 0.61 in no bin
    curve = calibration_curve(binary([9 / 15, 0.61]), [1, 1])
    assert curve.count.tolist() == [1, 1]
    assert calibration_curve(binary([9 / 15, 0.59]), [1, 1]).count.tolist() == [2]
    assert calibration_curve(binary([1.0, 14.5 / 15]), [1, 1]).count.tolist() == [2]  # 1 is in the last bin
    # 0 is in the first: class 0 has p = 0 and 0.05 there, class 1 has 1 and 0.95 in the last
    value = expected_calibration_error(binary([1.0, 0.95]), [1, 1], kind="class_wise")
    np.testing.assert_allclose(value, 0.025, rtol=1e-9)


def test_curve_gives_the_error_back():
    probs, labels = calibrated(350, seed=3)
    for binning in ("equal_width", "equal_mass"):
        curve = calibration_curve(probs, labels, binning=binning)
        error = np.sum(curve.count / 350 * np.abs(curve.accuracy - curve.confidence))
        np.testing.assert_allclose(
            error, expected_calibration_error(probs, labels, binning=binning), rtol=1e-10
        )
        assert curve.count.sum() == 350
        assert (np.diff(curve.confidence) > 0).all()


@pytest.mark.parametrize(("kind", "binning"), KINDS)
def test_calibrated_probabilities_score_low_and_overconfident_ones_high(kind, binning):
    probs, labels = calibrated(4000)
    settings = {"kind": kind, "binning": binning}
    assert expected_calibration_error(probs, labels, **settings) < 0.4 * np.sqrt(15 / 4000) * 1.5
    sharper = probs**3 / np.sum(probs**3, axis=-1, keepdims=True)
    assert expected_calibration_error(sharper, labels, **settings) > 0.05


@pytest.mark.parametrize(("kind", "binning"), KINDS)
def test_perfect_wrong_uniform_and_single_class(kind, binning):
    settings = {"kind": kind, "binning": binning}
    labels = np.array([0, 1, 2, 2])
    assert expected_calibration_error(np.eye(3)[labels], labels, **settings) == 0
    wrong = expected_calibration_error(np.eye(3)[(labels + 1) % 3], labels, **settings)
    np.testing.assert_allclose(wrong, 1 if kind == "top_label" else 2 / 3)
    uniform = np.full((3, 3), 1 / 3)
    np.testing.assert_allclose(expected_calibration_error(uniform, [0, 1, 2], **settings), 0, atol=1e-12)
    # every label is class 0: top label |1 - 1/3|; class by class 2/3, 1/3 and 1/3
    value = expected_calibration_error(uniform, [0, 0, 0], **settings)
    np.testing.assert_allclose(value, 2 / 3 if kind == "top_label" else 4 / 9, rtol=1e-12)
    one_row = expected_calibration_error([[0.3, 0.7]], [1], **settings)
    np.testing.assert_allclose(one_row, 0.3, rtol=1e-12)


@pytest.mark.parametrize(("kind", "binning"), KINDS)
def test_order_repeats_and_members(kind, binning):
    probs, labels = calibrated(200, seed=4)
    probs = np.round(probs, 1)  # many equal confidences
    probs[:, 2] = 1 - probs[:, 0] - probs[:, 1]
    probs = probs.clip(0)
    settings = {"kind": kind, "binning": binning}
    value = expected_calibration_error(probs, labels, **settings)
    order = np.random.default_rng(0).permutation(200)
    for again in (
        expected_calibration_error(probs[order], labels[order], **settings),
        expected_calibration_error(np.tile(probs, (2, 1)), np.tile(labels, 2), **settings),
    ):
        np.testing.assert_allclose(again, value, rtol=1e-10)
    draws = np.stack([calibrated(200, seed=seed)[0] for seed in (5, 6)])[None]
    ensemble = expected_calibration_error(draws, labels, **settings)
    averaged = expected_calibration_error(draws.mean(axis=(0, 1)), labels, **settings)
    np.testing.assert_allclose(ensemble, averaged, rtol=1e-12)
    assert abs(ensemble - expected_calibration_error(draws[0, -1], labels, **settings)) > 1e-3
    assert ensemble == expected_calibration_error(draws[:, ::-1], labels, **settings)


@pytest.mark.parametrize(("kind", "binning"), KINDS)
def test_masked_tokens_do_not_count(kind, binning):
    probs, labels = calibrated(60, seed=7)
    mask = np.random.default_rng(1).random((12, 5)) < 0.5
    settings = {"kind": kind, "binning": binning}
    value = expected_calibration_error(probs.reshape(12, 5, 3), labels.reshape(12, 5), mask=mask, **settings)
    kept = mask.ravel()
    np.testing.assert_allclose(value, expected_calibration_error(probs[kept], labels[kept], **settings))
    assert value != expected_calibration_error(probs, labels, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "top"}, "kind: expected 'top_label' or 'class_wise', got 'top'"),
        ({"binning": "adaptive"}, "binning: expected 'equal_width' or 'equal_mass', got 'adaptive'"),
        ({"num_bins": 0}, "num_bins: expected an integer of at least 1, got 0"),
        ({"num_bins": 15.0}, r"num_bins: expected an integer of at least 1, got 15\.0"),
        ({"mask": np.zeros(2, bool)}, "no position counts"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        expected_calibration_error([[0.5, 0.5], [0.2, 0.8]], [0, 1], **settings)


def test_bad_inputs_are_refused():
    for function in (expected_calibration_error, calibration_curve):
        with pytest.raises(ValueError, match=r"labels: got 2 at index \(1,\)"):
            function([[0.5, 0.5], [0.2, 0.8]], [0, 2])
        with pytest.raises(ValueError, match=r"at index \(1,\) got .*nan"):
            function([[0.5, 0.5], [0.2, np.nan]], [0, 1])
        with pytest.raises(ValueError, match="labels: expected at least one"):
            function(np.zeros((0, 2)), [])
