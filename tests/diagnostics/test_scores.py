import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from ptx.diagnostics import accuracy, brier_score, crps, interval_coverage, log_loss, mean_nll, rmse

PROBS = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.25, 0.5, 0.25], [0.5, 0.3, 0.2]])
LABELS = np.array([0, 2, 0, 1])
CLASS_SCORES = (accuracy, log_loss, brier_score)


def random_case(seed=0, rows=40, classes=4):
    rng = np.random.default_rng(seed)
    draws = special.softmax(2 * rng.normal(size=(2, 3, rows, classes)), axis=-1)
    return draws, rng.integers(0, classes, rows)


def test_by_hand():
    assert accuracy(PROBS, LABELS) == 0.5
    np.testing.assert_allclose(log_loss(PROBS, LABELS), -np.log(0.7 * 0.6 * 0.25 * 0.3) / 4, rtol=1e-12)
    rows = [0.09 + 0.04 + 0.01, 0.01 + 0.09 + 0.16, 0.5625 + 0.25 + 0.0625, 0.25 + 0.49 + 0.04]
    np.testing.assert_allclose(brier_score(PROBS, LABELS), np.mean(rows), rtol=1e-12)


def test_equal_to_scikit_learn():
    from sklearn import metrics

    draws, labels = random_case()
    probs = draws.mean(axis=(0, 1))
    classes = range(probs.shape[-1])
    np.testing.assert_allclose(accuracy(draws, labels), metrics.accuracy_score(labels, probs.argmax(-1)))
    np.testing.assert_allclose(log_loss(draws, labels), metrics.log_loss(labels, probs, labels=classes))
    np.testing.assert_allclose(
        brier_score(draws, labels), metrics.brier_score_loss(labels, probs, labels=classes)
    )
    predictions, targets = np.random.default_rng(1).normal(size=(2, 30))
    expected = metrics.root_mean_squared_error(targets, predictions)
    np.testing.assert_allclose(rmse(predictions, targets), expected)


def test_draws_are_averaged_as_probabilities_not_logits():
    # logits (4, 0) and (-2, 0): exact mean probability of class 0, and what the mean logit would give
    draws = special.softmax(np.array([[[[4.0, 0.0]], [[-2.0, 0.0]]]]), axis=-1)
    np.testing.assert_allclose(np.exp(-log_loss(draws, [0])), 0.55060835603, rtol=1e-10)
    wrong = special.softmax(np.array([[1.0, 0.0]]), axis=-1)
    np.testing.assert_allclose(np.exp(-log_loss(wrong, [0])), 0.73105857863, rtol=1e-10)


@pytest.mark.parametrize("score", CLASS_SCORES)
def test_every_draw_counts_in_any_order(score):
    draws, labels = random_case()
    value = score(draws, labels)
    np.testing.assert_allclose(value, score(draws.mean(axis=(0, 1)), labels), rtol=1e-12)
    np.testing.assert_allclose(value, score(draws[::-1, [2, 0, 1]], labels), rtol=1e-12)
    np.testing.assert_allclose(value, score(draws.reshape(6, 1, 40, 4), labels), rtol=1e-12)
    for chain, draw in np.ndindex(2, 3):  # the control: no single member gives it
        assert abs(score(draws[chain, draw], labels) - value) > 1e-3 or score is accuracy
    for member in range(3):
        replaced = draws.copy()
        replaced[1, member] = np.roll(np.eye(4)[labels], 1, axis=-1) * 0.99 + 0.0025
        assert abs(score(replaced, labels) - value) > 1e-3


@pytest.mark.parametrize("score", CLASS_SCORES)
def test_rows_may_be_repeated_or_reordered(score):
    draws, labels = random_case()
    order = np.random.default_rng(5).permutation(40)
    twice = np.concatenate([draws, draws], axis=2)
    np.testing.assert_allclose(score(twice, np.tile(labels, 2)), score(draws, labels), rtol=1e-12)
    np.testing.assert_allclose(score(draws[:, :, order], labels[order]), score(draws, labels), rtol=1e-12)
    assert score(draws[:, :, order], labels) != score(draws, labels)  # the control: labels left behind


@pytest.mark.parametrize("score", CLASS_SCORES)
def test_masked_tokens_do_not_count(score):
    draws, labels = random_case()
    tokens, tags = draws.reshape(2, 3, 8, 5, 4), labels.reshape(8, 5)
    mask = np.random.default_rng(3).random((8, 5)) < 0.6
    value = score(tokens, tags, mask=mask)
    np.testing.assert_allclose(value, score(draws[:, :, mask.ravel()], labels[mask.ravel()]), rtol=1e-12)
    assert value != score(tokens, tags)
    np.testing.assert_allclose(score(tokens, tags), score(draws, labels), rtol=1e-12)
    tokens[:, :, ~mask], tags[~mask] = np.inf, -100
    tokens[0, :, ~mask] = np.nan
    np.testing.assert_allclose(score(tokens, tags, mask=mask), value, rtol=1e-12)


def test_perfect_uniform_and_worst_predictions():
    labels = np.array([2, 0, 1, 2])
    perfect, uniform, worst = np.eye(3)[labels], np.full((4, 3), 1 / 3), np.eye(3)[(labels + 1) % 3]
    assert (accuracy(perfect, labels), log_loss(perfect, labels), brier_score(perfect, labels)) == (1, 0, 0)
    assert accuracy(uniform, labels) == 0.25  # ties go to the first class
    np.testing.assert_allclose(log_loss(uniform, labels), np.log(3), rtol=1e-12)
    np.testing.assert_allclose(brier_score(uniform, labels), 2 / 3, rtol=1e-12)
    assert (accuracy(worst, labels), brier_score(worst, labels)) == (0, 2)
    with pytest.warns(RuntimeWarning, match=r"4 of 4 observed values .* \(the first is number 0"):
        assert log_loss(worst, labels) == np.inf


def test_one_row_and_one_class_only():
    assert accuracy([[0.4, 0.6]], [1]) == 1
    np.testing.assert_allclose(log_loss([[0.4, 0.6]], [0]), -np.log(0.4))
    np.testing.assert_allclose(brier_score(PROBS, [0, 0, 0, 0]), (0.14 + 1.26 + 0.875 + 0.38) / 4)


@pytest.mark.parametrize("seed", range(5))
def test_rounding_to_bfloat16_is_no_fault_of_probabilities(seed):
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.ones(10), size=200)
    labels = rng.integers(0, 10, size=200)
    narrow = jnp.asarray(probs, jnp.bfloat16)
    assert np.abs(np.asarray(narrow, np.float64).sum(-1) - 1).max() > 1e-3
    assert log_loss(narrow, labels) == pytest.approx(log_loss(probs, labels), abs=4e-3)
    with pytest.raises(ValueError, match="which sums to"):
        log_loss(np.asarray(narrow, np.float32), labels)
    with pytest.raises(ValueError, match="which sums to"):
        log_loss(narrow * 1.05, labels)


def test_jax_arrays_float32_and_bfloat16():
    value = log_loss(PROBS, LABELS)
    np.testing.assert_allclose(log_loss(jnp.asarray(PROBS), jnp.asarray(LABELS)), value, rtol=1e-6)
    halves = jnp.asarray([[0.5, 0.25, 0.25]], jnp.bfloat16)
    np.testing.assert_allclose(log_loss(halves, [1]), np.log(4), rtol=1e-12)


def test_labels_that_are_exact_integers_are_taken():
    for labels in (LABELS.astype(np.float32), LABELS.astype(np.uint8), LABELS.tolist()):
        assert log_loss(PROBS, labels) == log_loss(PROBS, LABELS)
    assert accuracy([[0.1, 0.9], [0.1, 0.9]], np.array([True, False])) == 0.5


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 2, 0, 3], r"labels: got 3 at index \(3,\); expected integers 0 to 2"),
        ([0, -1, 0, 1], r"labels: got -1 at index \(1,\)"),
        ([0, 2, 0.5, 1], r"labels: got 0.5 at index \(2,\)"),
        ([0, 2, np.nan, 1], r"labels: got nan at index \(2,\)"),
        ([0, 2, 0], r"got shape \(4, 3\) for labels of shape \(3,\); expected \(3, classes\)"),
        ([[0], [2], [0], [1]], r"for labels of shape \(4, 1\)"),
        (np.eye(3)[LABELS], r"for labels of shape \(4, 3\)"),
        ([], "labels: expected at least one"),
        (2, "labels: expected at least one"),
    ],
)
@pytest.mark.parametrize("score", CLASS_SCORES)
def test_bad_labels_are_refused(score, labels, message):
    with pytest.raises(ValueError, match=message):
        score(PROBS, labels)


@pytest.mark.parametrize(
    ("probs", "message"),
    [
        (PROBS.T, r"got shape \(3, 4\) for labels of shape \(4,\)"),
        (PROBS[None], r"expected \(4, classes\) averaged over draws, or \(chain, draw, 4, classes\)"),
        (PROBS[:, None, None], r"got shape \(4, 1, 1, 3\)"),
        (np.log(PROBS), r"at index \(0,\) .* not logits or log probabilities"),
        (PROBS * [[1], [1], [1.01], [1]], r"at index \(2,\) got .* which sums to 1.01"),
        (PROBS + np.array([[0, 0, 0], [-0.2, 0.2, 0], [0, 0, 0], [0, 0, 0]]), r"at index \(1,\) got \[-0.1"),
        (np.where(PROBS == 0.6, np.nan, PROBS), r"at index \(1,\) got .*nan"),
        (np.where(PROBS == 0.6, np.inf, PROBS), r"at index \(1,\) got .*inf"),
        (np.stack([PROBS, np.where(PROBS == 0.6, np.nan, PROBS)])[None], r"at index \(0, 1, 1\)"),
        (np.ones((4, 1)), "expected at least 2. For a binary model"),
        (np.ones((0, 5, 4, 3)), "which holds nothing"),
        (PROBS[:, 0], r"got shape \(4,\)"),
    ],
)
@pytest.mark.parametrize("score", CLASS_SCORES)
def test_bad_probabilities_are_refused(score, probs, message):
    with pytest.raises(ValueError, match=message):
        score(probs, LABELS)


@pytest.mark.parametrize(
    ("mask", "error", "message"),
    [
        ([1, 1, 0, 1], TypeError, "mask: expected bool"),
        ([True, True], ValueError, r"mask: got shape \(2,\); expected \(4,\)"),
        ([False] * 4, ValueError, "no position counts"),
    ],
)
def test_bad_masks_are_refused(mask, error, message):
    with pytest.raises(error, match=message):
        accuracy(PROBS, LABELS, mask=mask)
    with pytest.raises(error, match=message):
        mean_nll(np.zeros((1, 2, 4)), mask=mask)


def test_numbers_are_asked_for():
    with pytest.raises(TypeError, match="labels: expected numbers"):
        accuracy(PROBS, ["a", "c", "a", "b"])
    with pytest.raises(TypeError, match="probs: expected numbers"):
        accuracy(None, LABELS)


def test_mean_nll_by_hand_and_against_class_probabilities():
    densities = np.array([[[0.2, 0.5]], [[0.6, 0.1]]])  # two chains, one draw, two rows
    np.testing.assert_allclose(mean_nll(np.log(densities)), -np.log(0.4 * 0.3) / 2, rtol=1e-12)
    mean_of_logs = -np.log(densities).mean()  # the control: the average member scores worse
    assert mean_nll(np.log(densities)) < mean_of_logs - 0.1
    draws, labels = random_case()
    pointwise = np.log(np.take_along_axis(draws, labels[None, None, :, None], axis=-1)[..., 0])
    np.testing.assert_allclose(mean_nll(pointwise), log_loss(draws, labels), rtol=1e-12)


def test_mean_nll_of_doubled_data_or_draws_is_unchanged():
    values = np.random.default_rng(0).normal(-3, 2, size=(2, 5, 7))
    value = mean_nll(values)
    np.testing.assert_allclose(mean_nll(np.concatenate([values, values], axis=2)), value, rtol=1e-12)
    np.testing.assert_allclose(mean_nll(np.concatenate([values, values], axis=1)), value, rtol=1e-12)
    np.testing.assert_allclose(mean_nll(values[::-1, ::-1, ::-1]), value, rtol=1e-12)
    assert abs(mean_nll(values[:1]) - value) > 0.01


def test_mean_nll_does_not_underflow_and_counts_impossible_draws():
    np.testing.assert_allclose(mean_nll(np.full((1, 3, 2), -5000.0)), 5000, rtol=1e-12)
    np.testing.assert_allclose(mean_nll(np.full((1, 3, 2), -200.0, np.float32)), 200, rtol=1e-12)
    np.testing.assert_allclose(mean_nll([[[-np.inf], [0.0]]]), np.log(2), rtol=1e-12)
    with pytest.warns(RuntimeWarning, match=r"1 of 2 observed values .* \(the first is number 1"):
        assert mean_nll([[[-1.0, -np.inf], [-2.0, -np.inf]]]) == np.inf


def test_mean_nll_by_token_with_a_mask():
    values = np.random.default_rng(2).normal(size=(2, 3, 4, 5))
    mask = np.arange(5) < np.array([5, 2, 1, 3])[:, None]
    values[..., ~mask] = 0  # what ptx gives at padding
    expected = mean_nll(values[..., mask])
    np.testing.assert_allclose(mean_nll(values, mask=mask), expected, rtol=1e-12)
    assert abs(mean_nll(values) - expected) > 0.01
    values[..., ~mask] = np.nan
    np.testing.assert_allclose(mean_nll(values, mask=mask), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros(3), r"got shape \(3,\); expected \(chain, draw, rows\)"),
        (np.zeros((4, 3)), r"got shape \(4, 3\)"),
        (np.zeros((2, 0, 3)), "none of them 0"),
        ([[[0.0, np.nan]]], r"got nan at index \(0, 0, 1\)"),
        ([[[0.0], [np.inf]]], r"got inf at index \(0, 1, 0\)"),
    ],
)
def test_mean_nll_refuses_what_is_no_pointwise_log_density(values, message):
    with pytest.raises(ValueError, match=message):
        mean_nll(values)


def test_rmse_by_hand():
    targets = np.array([1.0, 4.0])
    np.testing.assert_allclose(rmse([2.0, 1.0], targets), np.sqrt((1 + 9) / 2), rtol=1e-12)
    draws = np.array([[[0.0, 3.0], [4.0, -1.0]]])  # means 2 and 1
    np.testing.assert_allclose(rmse(draws, targets), np.sqrt(5), rtol=1e-12)
    assert rmse(targets, targets) == 0
    np.testing.assert_allclose(rmse(np.ones((3, 2)), np.zeros((3, 2))), 1)


def test_crps_by_hand_and_against_the_normal_closed_form():
    # draws 0, 1, 3 and y = 1: E|X - y| = 1, E|X - X'| = 2 (1 + 3 + 2) / 9
    np.testing.assert_allclose(crps([[[0.0], [1.0], [3.0]]], [1.0]), 1 - 0.5 * 12 / 9, rtol=1e-12)
    np.testing.assert_allclose(crps([[[0.0]], [[1.0]]], [5.0]), 4.5 - 0.25, rtol=1e-12)
    assert crps([[[2.0, -1.0]]], [5.0, 1.0]) == 2.5  # one draw: absolute error
    mean, sd, y = 2.0, 3.0, np.array([1.0, 6.5])
    draws = stats.norm(mean, sd).ppf((np.arange(4000) + 0.5) / 4000).reshape(2, 2000, 1) * np.ones(2)
    z = (y - mean) / sd
    exact = sd * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    np.testing.assert_allclose(crps(draws, y), exact.mean(), rtol=1e-3)
    assert abs(crps(2 * draws - mean, y) - exact.mean()) > 0.1  # the control: the wrong spread


def test_coverage_by_hand_and_of_calibrated_draws():
    draws = np.arange(11.0).reshape(1, 11, 1) * np.ones(4)  # 80% interval: 1 to 9, ends included
    assert interval_coverage(draws, [0.99, 1.0, 9.0, 9.01], prob=0.8) == 0.5
    assert interval_coverage(draws, [0.99, 1.0, 9.0, 9.01], prob=0.9) == 1
    rng = np.random.default_rng(0)
    targets, draws = rng.normal(size=4000), rng.normal(size=(2, 500, 4000))
    se = np.sqrt(0.9 * 0.1 / 4000)
    assert abs(interval_coverage(draws, targets) - 0.9) < 4 * se
    assert abs(interval_coverage(0.8 * draws, targets) - 0.9) > 8 * se  # the control: too narrow
    assert interval_coverage(np.abs(draws), -np.abs(targets)) < 0.05


@pytest.mark.parametrize("score", [rmse, crps, interval_coverage])
@pytest.mark.parametrize(
    ("predictions", "targets", "message"),
    [
        (np.zeros((2, 3, 5, 1)), np.zeros(5), r"got shape \(2, 3, 5, 1\) for targets of shape \(5,\)"),
        (np.zeros((2, 3, 5)), np.zeros((5, 1)), r"expected \(chain, draw, 5, 1\)"),
        (np.zeros((5, 3, 2)), np.zeros(5), r"expected \(chain, draw, 5\)"),
        (np.zeros((3, 5)), np.zeros(5), r"expected \(chain, draw, 5\)"),
        (np.zeros((1, 0, 5)), np.zeros(5), r"got shape \(1, 0, 5\)"),
        (np.zeros((1, 3, 0)), np.zeros(0), "targets: expected at least one"),
        (np.zeros((1, 2, 2)), [0.0, np.nan], r"targets: got nan at index \(1,\)"),
        ([[[0.0, 1.0], [np.inf, 1.0]]], [0.0, 1.0], r"predictions: got inf at index \(0, 1, 0\)"),
    ],
)
def test_bad_predictions_are_refused(score, predictions, targets, message):
    with pytest.raises(ValueError, match=message):
        score(predictions, targets)


def test_averaged_predictions_are_for_rmse_alone():
    for score in (crps, interval_coverage):
        with pytest.raises(ValueError, match=r"expected \(chain, draw, 2\)$"):
            score([1.0, 2.0], [1.0, 2.0])


@pytest.mark.parametrize("prob", [0, 1, 90, -0.5, np.nan])
def test_coverage_refuses_what_is_no_probability(prob):
    with pytest.raises(ValueError, match="prob: expected a probability between 0 and 1"):
        interval_coverage(np.zeros((1, 5, 2)), np.zeros(2), prob=prob)


def test_coverage_needs_two_draws():
    with pytest.raises(ValueError, match="at least two"):
        interval_coverage(np.zeros((1, 1, 2)), np.zeros(2))
