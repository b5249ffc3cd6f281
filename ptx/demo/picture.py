"""The summary picture of the demo: hard digits with their uncertainty, and how each engine's claims hold up."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ptx.demo.tasks import Task
from ptx.diagnostics.plots import COLOURS, INK, draw_reliability
from ptx.diagnostics.report import Report
from ptx.diagnostics.report_rows import Row
from ptx.diagnostics.uncertainty import entropy_decomposition

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUM_IMAGES = 6
BLUE, ORANGE, GREEN, PINK = COLOURS[0], COLOURS[1], COLOURS[2], COLOURS[3]
OF_ENGINE = {"MAP": ORANGE, "mean-field SVI": PINK, "cyclical SGLD": GREEN, "NUTS": BLUE}


def summary(task: Task, probabilities: dict[str, np.ndarray], report: Report) -> "Figure":
    """Above, test images with the class probabilities of MAP and NUTS; below, reliability and scores of each engine."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 7.9))
    _words(figure, task)
    edges = {"left": 0.055, "right": 0.985}
    above = figure.add_gridspec(
        2, NUM_IMAGES, **edges, top=0.81, bottom=0.485, height_ratios=(1.5, 1), hspace=0.2
    )
    below = figure.add_gridspec(1, len(report.rows), **edges, top=0.335, bottom=0.07, wspace=0.1)
    for column, image in enumerate(_chosen(probabilities["NUTS"])):
        _image(figure.add_subplot(above[0, column]), task, image, column)
        _classes(figure.add_subplot(above[1, column]), task, probabilities, image, column)
    for column, row in enumerate(report.rows):
        axis = figure.add_subplot(below[0, column], anchor="W")
        draw_reliability(axis, probabilities[row.name], task.test.targets, colour=OF_ENGINE[row.name])
        _scores(axis, row, column)
    return figure


def _words(figure: "Figure", task: Task) -> None:
    count = sum(int(np.prod(weight.shape)) for weight in task.model.network.weights.values())
    figure.text(
        0.025, 0.955, "One vision transformer, four ways to infer its weights", fontsize=17, weight="bold"
    )
    about = f"{count} weights, {task.train.num_rows} training images, {task.test.num_rows} test images. "
    about += "Class probabilities of the test image\n"
    about += "about which NUTS is surest, and of the five about which it is least sure."
    figure.text(0.025, 0.888, about, fontsize=10.5, color=INK, linespacing=1.4)
    figure.text(0.025, 0.413, "Does the confidence come true?", fontsize=13, weight="bold")
    about = "Test accuracy against confidence; on the dashed line the two agree, above it predictions claim too little."
    figure.text(0.025, 0.384, about, fontsize=10.5, color=INK)


def _chosen(probs: np.ndarray) -> list[int]:
    """The row with the least predictive entropy, then those with the most, the largest first."""
    order = np.argsort(entropy_decomposition(probs).predictive, kind="stable")
    return [int(order[0]), *(int(row) for row in order[::-1][: NUM_IMAGES - 1])]


def _image(axis: Any, task: Task, image: int, column: int) -> None:
    axis.imshow(task.test.inputs[image], cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_color("#cccccc")
    label = task.classes[int(task.test.targets[image])]
    axis.set_title(f"true class {label}" if column else f"surest: class {label}", fontsize=10.5)


def _classes(axis: Any, task: Task, probabilities: dict[str, np.ndarray], image: int, column: int) -> None:
    """Bars for the mean over draws, with their central 90%, darker for the true class; dashes for MAP."""
    draws = probabilities["NUTS"][:, :, image].reshape(-1, len(task.classes))
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    classes, truth = np.arange(len(task.classes)), int(task.test.targets[image])
    mean, dash = (
        draws.mean(axis=0),
        {"marker": "_", "markersize": 11, "markeredgewidth": 2.4, "linestyle": ""},
    )
    axis.bar(classes, mean, width=0.8, color="#b3cfe6", label="NUTS: mean over draws")
    axis.bar(truth, mean[truth], width=0.8, color=BLUE, label="NUTS: the true class")
    axis.vlines(classes, low, high, color="#4d4d4d", linewidth=1.2, label="NUTS: 90% of draws")
    axis.plot(classes, probabilities["MAP"][0, 0, image], color=ORANGE, label="MAP", **dash)
    axis.set(
        ylim=(0, 1.05), xlim=(-0.7, len(classes) - 0.3), xticks=classes, yticks=[] if column else [0, 0.5, 1]
    )
    axis.set_xticklabels(task.classes)
    axis.tick_params(labelsize=8.5, colors=INK, length=2)
    axis.spines[["top", "right", "left"] if column else ["top", "right"]].set_visible(False)
    if column == 0:
        axis.set_ylabel("probability", fontsize=9.5, color=INK)
        place = {
            "loc": "upper right",
            "bbox_to_anchor": (0.99, 0.985),
            "ncols": 2,
            "frameon": False,
            "fontsize": 9.5,
        }
        axis.figure.legend(*axis.get_legend_handles_labels(), **place)


def _scores(axis: Any, row: Row, column: int) -> None:
    axis.set_title(row.name, fontsize=12, weight="bold", color=OF_ENGINE[row.name], loc="left")
    axis.set_xlabel("confidence", fontsize=9.5, color=INK)
    if column == 0:
        axis.set_ylabel("accuracy", fontsize=9.5, color=INK)
    else:
        axis.set_yticklabels([])
    lines = [("accuracy", f"{row.scores['accuracy']:.1%}"), ("NLL", f"{row.scores['nll']:.3f}")]
    lines += [("Brier", f"{row.scores['brier']:.3f}"), ("gradients", f"{row.gradient_evaluations:,}")]
    for place, (name, value) in enumerate(lines):
        height = 0.86 - 0.24 * place
        axis.text(1.04, height, name, transform=axis.transAxes, fontsize=9, color=INK)
        axis.text(1.04, height - 0.1, value, transform=axis.transAxes, fontsize=10.5, weight="bold")
