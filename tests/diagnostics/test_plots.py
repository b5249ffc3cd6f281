"""What plots show is what the numbers say; how they look is for eyes."""

import numpy as np
import pytest
from matplotlib import pyplot
from xarray import DataTree

from ptx.diagnostics import (
    calibration_curve,
    plot_energy,
    plot_entropy,
    plot_ranks,
    plot_reliability,
    plot_traces,
)


@pytest.fixture(autouse=True)
def _no_figure_stays_open():
    yield
    pyplot.close("all")


@pytest.fixture
def probabilities():
    rng = np.random.default_rng(0)
    return {name: rng.dirichlet(np.ones(3), size=(2, 5, 30)) for name in ("one", "two")}


@pytest.fixture
def labels():
    return np.random.default_rng(1).integers(0, 3, size=30)


def visible(figure):
    return [axis for axis in figure.axes if axis.get_visible()]


def test_reliability_shows_the_calibration_curve(probabilities, labels):
    figure = plot_reliability(probabilities, labels, num_bins=5)
    assert [axis.get_title() for axis in visible(figure)] == ["one", "two"]
    curve = calibration_curve(probabilities["two"], labels, num_bins=5)
    points = visible(figure)[1].collections[-1].get_offsets()
    assert np.asarray(points) == pytest.approx(np.stack([curve.confidence, curve.accuracy], axis=1))


def test_masked_positions_are_in_no_plot(probabilities, labels):
    mask = np.arange(30) < 12
    wrong = np.where(mask, labels, 99)
    shown = plot_reliability(probabilities, wrong, mask=mask)
    curve = calibration_curve(probabilities["one"][:, :, :12], labels[:12], num_bins=10)
    points = visible(shown)[0].collections[-1].get_offsets()
    assert np.asarray(points)[:, 1] == pytest.approx(curve.accuracy)
    entropy = plot_entropy(probabilities, wrong, mask=mask)
    assert sum(bar.get_height() for bar in visible(entropy)[0].patches) == 12


def test_entropy_counts_right_and_wrong(probabilities, labels):
    axis = visible(plot_entropy(probabilities, labels))[0]
    heights = np.array([bar.get_height() for bar in axis.patches]).reshape(2, -1)  # right, then wrong
    right = probabilities["one"].mean(axis=(0, 1)).argmax(axis=-1) == labels
    assert list(heights.sum(axis=1)) == [right.sum(), (~right).sum()]
    assert axis.get_xlim()[1] == pytest.approx(np.log(3))


def test_one_draw_has_no_mutual_information(labels):
    probs = np.random.default_rng(0).dirichlet(np.ones(3), size=(1, 1, 30))
    notes = [text.get_text() for text in visible(plot_entropy({"MAP": probs}, labels))[0].texts]
    assert any("mutual information n/a" in note for note in notes)


@pytest.mark.parametrize("plot", [plot_traces, plot_ranks])
def test_arviz_plots_name_each_quantity(plot):
    rng = np.random.default_rng(0)
    figure = plot(
        {"log p(3), image 7": rng.normal(size=(2, 50)), "log p(1), image 2": rng.normal(size=(2, 50))}
    )
    titles = [axis.get_title() for axis in visible(figure)]
    assert "log p(3), image 7" in titles
    assert "log p(1), image 2" in titles


def test_energy_is_that_of_the_tree():
    from arviz_base import dict_to_dataset

    energy = {"energy": np.random.default_rng(0).normal(size=(2, 100))}
    tree = DataTree.from_dict({"sample_stats": dict_to_dataset(energy, sample_dims=["chain", "draw"])})
    assert len(visible(plot_energy(tree))) >= 1
    with pytest.raises(ValueError, match="no 'energy'"):
        plot_energy(DataTree.from_dict({"posterior": tree["sample_stats"].to_dataset()}))


def test_bad_contents_are_refused(probabilities, labels):
    with pytest.raises(ValueError, match="1 to 40"):
        plot_reliability({}, labels)
    with pytest.raises(ValueError, match="41 entries"):
        plot_traces({str(name): np.zeros((2, 5)) for name in range(41)})
    with pytest.raises(ValueError, match="one shape"):
        plot_ranks({"a": np.zeros((2, 5)), "b": np.zeros((2, 6))})
    with pytest.raises(ValueError, match="probs"):
        plot_reliability({"logits": 10 * probabilities["one"]}, labels)
