"""Attention rows of one test digit, with the spread of their posterior: the picture of the README."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import ptx
from benchmarks.attention_methods import CHOSEN
from benchmarks.attention_tasks import digits
from benchmarks.attention_tuning import point
from ptx.demo.plots import save
from ptx.diagnostics.plots import COLOURS, INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIDE, NUM_DRAWS = 4, 400


def draw(path: Path, num_steps: int) -> None:
    """Fit Dirichlet attention to digits 0 to 7, and write the picture of two rows of one test image."""
    task = digits(0)
    kind, kl_weight = CHOSEN["digits"]["dirichlet"]
    posterior = ptx.infer(0, task.model(kind), task.train, point(task, num_steps, kl_weight), progress=False)
    image = int(np.flatnonzero(task.test.targets == 3)[0])
    predictive = ptx.predict(
        1,
        posterior,
        task.test.inputs[image : image + 1],
        sites=["attention.probs", "targets"],
        simulated=False,
        row_draws=NUM_DRAWS,
    )
    rows = predictive.deterministic["attention.probs"][0, :, 0]  # draw, layer, head, query, key
    save(picture(task.test.inputs[image], rows), path)


def picture(image: np.ndarray, rows: np.ndarray) -> "Figure":
    """The image with its patches; for two rows their mean and standard deviation by patch, and 90% of the draws."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 4.6))
    grid = figure.add_gridspec(
        2,
        4,
        width_ratios=(1, 1, 1, 2.6),
        left=0.02,
        right=0.985,
        top=0.8,
        bottom=0.11,
        wspace=0.28,
        hspace=0.42,
    )
    figure.text(
        0.02, 0.935, "Two attention rows of one digit, and the spread of their posterior", fontsize=14
    )
    about = f"Dirichlet attention, fitted on 500 images; mean, sd and central 90% of {rows.shape[0]} draws of each row"
    figure.text(0.02, 0.885, about, fontsize=9.5, color=INK)
    for line, (layer, head, query) in enumerate(_chosen(rows)):
        draws, colour = rows[:, layer, head, query], COLOURS[line]
        _patches(figure.add_subplot(grid[line, 0]), image, query, colour)
        _map(figure.add_subplot(grid[line, 1]), draws.mean(0), "mean")
        _map(figure.add_subplot(grid[line, 2]), draws.std(0), "sd")
        axis = figure.add_subplot(grid[line, 3])
        _bars(axis, draws, colour)
        axis.set_title(f"layer {layer}, head {head}, from patch {query}", fontsize=9.5, loc="left")
    return figure


def _chosen(rows: np.ndarray) -> list[tuple[int, int, int]]:
    """The row of the first layer's heads whose mean is most concentrated, and the last layer's that is."""
    largest = rows.mean(0).max(-1)
    found = []
    for layer in (0, rows.shape[1] - 1):
        head, query = np.unravel_index(np.argmax(largest[layer]), largest.shape[1:])
        found.append((layer, int(head), int(query)))
    return found


def _patches(axis: Any, image: np.ndarray, query: int, colour: str) -> None:
    """The image; lines between patches, and a frame around the one that asks."""
    from matplotlib.patches import Rectangle

    size = len(image) // SIDE
    axis.imshow(image, cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
    for edge in range(1, SIDE):
        axis.axhline(edge * size - 0.5, color="#bbbbbb", linewidth=0.6)
        axis.axvline(edge * size - 0.5, color="#bbbbbb", linewidth=0.6)
    corner = query % SIDE * size - 0.5, query // SIDE * size - 0.5
    axis.add_patch(Rectangle(corner, size, size, fill=False, edgecolor=colour, linewidth=2.5, clip_on=False))
    axis.set(xticks=[], yticks=[])
    axis.set_title("query", fontsize=9.5)


def _map(axis: Any, values: np.ndarray, title: str) -> None:
    shown = axis.imshow(values.reshape(SIDE, SIDE), cmap="viridis", vmin=0)
    axis.set(xticks=[], yticks=[])
    axis.set_title(f"{title}, up to {values.max():.2f}", fontsize=9.5)
    shown.set_clim(0, values.max())


def _bars(axis: Any, draws: np.ndarray, colour: str) -> None:
    keys = np.arange(draws.shape[1])
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    axis.bar(keys, draws.mean(0), color=colour, alpha=0.45)
    axis.vlines(keys, low, high, color=INK, linewidth=1.3)
    axis.set(xticks=keys, ylim=(0, None), xlim=(-0.7, len(keys) - 0.3))
    axis.tick_params(labelsize=7.5, colors=INK, length=2)
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_xlabel("key (patch)", fontsize=8.5, color=INK, labelpad=1)
    axis.set_ylabel("probability", fontsize=8.5, color=INK)
