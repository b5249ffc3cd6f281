"""Pictures of posteriors and predictions; every function returns a matplotlib figure, to be kept with `savefig`.

What a plot of a network's posterior can show is what the network computes: traces and ranks here are of function
values, such as p(true class | draw), given by name. Traces, ranks and energies are ArviZ's own plots.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ptx.diagnostics.calibration import calibration_curve, expected_calibration_error
from ptx.diagnostics.score_inputs import class_positions
from ptx.diagnostics.uncertainty import entropy_decomposition

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from xarray import DataTree

COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
)  # Okabe and Ito's, safe for most eyes
RIGHT, WRONG, INK = "#0072B2", "#D55E00", "#444444"
MAX_PANELS = 40


def plot_reliability(
    probabilities: Mapping[str, Any], labels: Any, *, mask: Any = None, num_bins: int = 10
) -> "Figure":
    """Top-label accuracy against confidence in `num_bins` bins of equal width, a panel for each posterior.

    On the diagonal confidence is what comes true; below it, predictions claim too much. The area of a point grows
    with the positions in its bin. The ECE written in a panel has the usual 15 bins.

    Args:
        probabilities: by name, what `expected_calibration_error` takes.
        labels: as there.
        mask: see labels.

    Raises:
        ValueError: no panel or more than 40; as `expected_calibration_error`.
    """
    figure, axes = _panels(probabilities, width=2.9, height=3.1)
    for axis, colour, (name, probs) in zip(axes, _colours(), probabilities.items(), strict=False):
        draw_reliability(axis, probs, labels, mask=mask, num_bins=num_bins, colour=colour)
        axis.set_title(name, fontsize=11)
        axis.set_xlabel("confidence")
    axes[0].set_ylabel("accuracy")
    return figure


def draw_reliability(
    axis: Any, probs: Any, labels: Any, *, mask: Any = None, num_bins: int = 10, colour: str = COLOURS[0]
) -> None:
    """The panel of `plot_reliability` on an axis of the caller's."""
    curve = calibration_curve(probs, labels, mask=mask, num_bins=num_bins)
    error = expected_calibration_error(probs, labels, mask=mask)
    axis.plot([0, 1], [0, 1], color="#bbbbbb", linestyle="--", linewidth=1, zorder=1)
    axis.vlines(curve.confidence, curve.confidence, curve.accuracy, color=colour, alpha=0.35, linewidth=1.5)
    axis.plot(curve.confidence, curve.accuracy, color=colour, linewidth=1.5, zorder=2)
    points = {"s": 12 + 200 * curve.count / curve.count.sum(), "edgecolor": "white", "linewidth": 0.7}
    axis.scatter(curve.confidence, curve.accuracy, color=colour, zorder=3, clip_on=False, **points)
    axis.text(0.06, 0.9, f"ECE {error:.3f}", transform=axis.transAxes, color=INK, fontsize=10)
    axis.set(xlim=(0, 1.02), ylim=(0, 1.02), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1), aspect="equal")
    _plain_axis(axis)


def plot_entropy(probabilities: Mapping[str, Any], labels: Any, *, mask: Any = None) -> "Figure":
    """Histogram of the predictive entropy in nats, of right and wrong predictions; a panel for each posterior.

    Useful uncertainty is high where the prediction is wrong. The mean mutual information between label and draw, the
    part of the entropy about which draws disagree, is written in the panel ("n/a" for a single draw).

    Args:
        probabilities: by name, of shape (chain, draw, *rows, classes).
        labels: as `expected_calibration_error`.
        mask: see labels.

    Raises:
        ValueError: no panel or more than 40; as `entropy_decomposition`.
    """
    figure, axes = _panels(probabilities, width=2.9, height=3.1)
    num_classes = np.shape(next(iter(probabilities.values())))[-1]
    bins = np.linspace(0, np.log(num_classes), 21)
    for axis, (name, probs) in zip(axes, probabilities.items(), strict=False):
        mean, kept = class_positions(probs, labels, mask)
        right = mean.argmax(axis=-1) == kept
        split = entropy_decomposition(probs)
        keep = np.ones(np.shape(labels), bool) if mask is None else np.asarray(mask)
        entropy, information = split.predictive[keep], split.mutual_information[keep]
        parts, colours = [entropy[right], entropy[~right]], [RIGHT, WRONG]
        axis.hist(parts, bins=bins, stacked=True, color=colours, label=["right", "wrong"])
        num_draws = np.shape(probs)[0] * np.shape(probs)[1]
        about = f"{information.mean():.3f}" if num_draws > 1 else "n/a"
        note = f"mean {entropy.mean():.3f}, mutual information {about}"
        axis.text(0.5, 1.03, note, transform=axis.transAxes, ha="center", color=INK, fontsize=8.5)
        axis.set_title(name, fontsize=11, pad=20)
        axis.set(xlabel="predictive entropy (nats)", xlim=(0, bins[-1]))
        _plain_axis(axis)
    axes[0].set_ylabel("positions")
    axes[0].legend(frameon=False, fontsize=9, loc="center right")
    return figure


def plot_traces(draws: Mapping[str, Any]) -> "Figure":
    """ArviZ's trace of each quantity, a colour for each chain.

    Args:
        draws: by name, arrays of shape (chain, draw); a name is the title.

    Raises:
        ValueError: no quantity or more than 40; arrays of another shape, or of different shapes.
    """
    import arviz_plots

    _check_count(draws, MAX_PANELS)
    return _figure(arviz_plots.plot_trace(_tree(draws), backend="matplotlib"))


def plot_ranks(draws: Mapping[str, Any]) -> "Figure":
    """ArviZ's rank plot of each quantity: chains that agree stay inside the band.

    Args:
        draws: by name, arrays of shape (chain, draw); a name is the title.

    Raises:
        ValueError: no quantity or more than 40; arrays of another shape, or of different shapes.
    """
    import arviz_plots

    _check_count(draws, MAX_PANELS)
    return _figure(arviz_plots.plot_rank(_tree(draws), backend="matplotlib"))


def plot_energy(tree: "DataTree") -> "Figure":
    """ArviZ's energy plot: the marginal energy of a Hamiltonian sampler beside its steps from draw to draw.

    Steps much narrower than the marginal (a low BFMI) mean that the sampler explores energies slowly.

    Args:
        tree: from `to_datatree`, of HMC or NUTS.

    Raises:
        ValueError: no statistic `energy`.
    """
    import arviz_plots

    if "sample_stats" not in tree.children or "energy" not in tree["sample_stats"]:
        raise ValueError(
            "tree: its sample_stats hold no 'energy'; plot the tree of a Hamiltonian sampler, HMC or NUTS"
        )
    figure = _figure(arviz_plots.plot_energy(tree, backend="matplotlib"))
    for axis in figure.axes:
        if axis.get_ylabel() == "Chain":  # chains are counted, not measured
            axis.set_yticks(np.arange(tree["sample_stats"].sizes["chain"]))
    return figure


def _tree(draws: Mapping[str, Any]) -> "DataTree":
    from arviz_base import dict_to_dataset
    from xarray import DataTree

    arrays = {name: np.asarray(values) for name, values in draws.items()}
    shapes = {name: array.shape for name, array in arrays.items()}
    if len(set(shapes.values())) > 1 or any(len(shape) != 2 for shape in shapes.values()):
        raise ValueError(f"draws: expected arrays of one shape (chain, draw), got {shapes}")
    return DataTree.from_dict({"posterior": dict_to_dataset(arrays, sample_dims=["chain", "draw"])})


def _figure(collection: Any) -> "Figure":
    return collection.viz["figure"].item()


def _panels(contents: Mapping[str, Any], width: float, height: float) -> tuple["Figure", list[Any]]:
    """A figure of its own, outside pyplot's state, with a row of axes."""
    from matplotlib.figure import Figure

    _check_count(contents, MAX_PANELS)
    columns = min(len(contents), 4)
    rows = -(-len(contents) // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes[len(contents) :]:
        axis.set_visible(False)
    return figure, list(axes)


def _check_count(contents: Mapping[str, Any], most: int) -> None:
    if not isinstance(contents, Mapping) or not 1 <= len(contents) <= most:
        raise ValueError(f"expected a mapping of 1 to {most} names to arrays, got {len(contents)} entries")


def _colours() -> Any:
    while True:
        yield from COLOURS


def _plain_axis(axis: Any) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(colors=INK, labelsize=9)
