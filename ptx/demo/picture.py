"""The summary picture of the demo: hard digits with their uncertainty, and how each engine's claims hold up."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ptx.demo.tasks import Task
from ptx.diagnostics.plots import COLOURS, INK, draw_reliability
from ptx.diagnostics.report import Report
from ptx.diagnostics.uncertainty import entropy_decomposition

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUM_IMAGES = 6


def summary(task: Task, probabilities: dict[str, np.ndarray], report: Report) -> "Figure":
    """Above, test images with the class probabilities of MAP and NUTS; below, reliability and scores of each engine."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 7.6), facecolor="white")
    _title(figure, task)
    above = figure.add_gridspec(2, NUM_IMAGES, left=0.05, right=0.985, top=0.83, bottom=0.5, height_ratios=(1.5, 1))
    below = figure.add_gridspec(1, len(report.rows), left=0.05, right=0.985, top=0.345, bottom=0.075, wspace=0.3)
    images = _chosen(probabilities["NUTS"])
    for column, image in enumerate(images):
        _image(figure.add_subplot(above[0, column]), task, image, column)
        _classes(figure.add_subplot(above[1, column]), task, probabilities, image, column)
    for column, row in enumerate(report.rows):
        axis = figure.add_subplot(below[0, column])
        draw_reliability(axis, probabilities[row.name], task.test.targets, colour=COLOURS[column])
        _caption(axis, row, column)
    return figure


def _title(figure: "Figure", task: Task) -> None:
    sizes = [np.prod(weight.shape) for weight in task.model.network.weights.values()]
    figure.text(0.05, 0.945, "One vision transformer, four ways to infer its weights", fontsize=17, weight="bold")
    about = f"{int(sum(sizes))} weights, {task.train.num_rows} training images; {task.test.num_rows} test images. "
    about += "Class probabilities of the test image about which NUTS is surest, and of the five about which it is least sure."
    figure.text(0.05, 0.905, about, fontsize=10, color=INK)
    figure.text(0.05, 0.425, "Does the confidence come true?", fontsize=12, weight="bold")
    figure.text(
        0.05, 0.397, "Test accuracy against confidence; on the dashed line the two agree.", fontsize=10, color=INK
    )


def _chosen(probs: np.ndarray) -> list[int]:
    """The row with the least predictive entropy, then those with the most, the largest first."""
    order = np.argsort(entropy_decomposition(probs).predictive, kind="stable")
    return [int(order[0]), *(int(row) for row in order[::-1][: NUM_IMAGES - 1])]


def _image(axis: Any, task: Task, image: int, column: int) -> None:
    axis.imshow(task.test.inputs[image], cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_color("#cccccc")
    label = task.classes[int(task.test.targets[image])]
    axis.set_title(f"a {label}" if column else f"surest: a {label}", fontsize=11)


def _classes(axis: Any, task: Task, probabilities: dict[str, np.ndarray], image: int, column: int) -> None:
    """Bars: the mean over draws, with their central 90%; marks: MAP; the true class in darker ink."""
    draws = probabilities["NUTS"][:, :, image].reshape(-1, len(task.classes))
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    classes, truth = np.arange(len(task.classes)), int(task.test.targets[image])
    axis.bar(classes, draws.mean(axis=0), width=0.8, color="#b9d3ea", label="NUTS, mean and 90% of draws")
    axis.bar(truth, draws.mean(axis=0)[truth], width=0.8, color="#0072B2", label="of the true class")
    axis.vlines(classes, low, high, color="#4d4d4d", linewidth=1.2)
    axis.plot(
        classes,
        probabilities["MAP"][0, 0, image],
        linestyle="",
        marker="_",
        markersize=11,
        markeredgewidth=2.2,
        color="#D55E00",
        label="MAP",
    )
    axis.set(ylim=(0, 1.05), xticks=classes, yticks=[0, 0.5, 1] if column == 0 else [], xlim=(-0.7, len(classes) - 0.3))
    axis.set_xticklabels(task.classes)
    axis.tick_params(labelsize=8.5, colors=INK, length=2)
    axis.spines[["top", "right"] if column == 0 else ["top", "right", "left"]].set_visible(False)
    if column == 0:
        axis.set_ylabel("probability", fontsize=9.5, color=INK)
        axis.figure.legend(
            *axis.get_legend_handles_labels(), loc="upper right", bbox_to_anchor=(0.99, 0.995), frameon=False, fontsize=9
        )


def _caption(axis: Any, row: Any, column: int) -> None:
    axis.set_title(row.name, fontsize=12, weight="bold", color=COLOURS[column], loc="left")
    axis.set_xlabel("confidence", fontsize=9.5, color=INK)
    if column == 0:
        axis.set_ylabel("accuracy", fontsize=9.5, color=INK)
    lines = [("accuracy", f"{row.scores['accuracy']:.1%}"), ("NLL", f"{row.scores['nll']:.3f}")]
    lines += [("Brier", f"{row.scores['brier']:.3f}"), ("seconds", f"{row.seconds:.0f}")]
    for place, (name, value) in enumerate(lines):
        height = 0.62 - 0.16 * place
        axis.text(1.08, height, name, transform=axis.transAxes, fontsize=9, color=INK)
        axis.text(1.08, height - 0.075, value, transform=axis.transAxes, fontsize=10.5, weight="bold")
