"""The plots that the demo keeps for each task."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ptx.demo.tasks import Task
from ptx.diagnostics.plots import plot_energy, plot_entropy, plot_ranks, plot_reliability, plot_traces
from ptx.diagnostics.uncertainty import entropy_decomposition
from ptx.predictive import Predictive

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUM_TRACES = 3


def keep(task: Task, predictions: dict[str, Predictive], nuts_tree: Any, folder: Path) -> None:
    """Reliability and entropy of all engines; traces, ranks and energy of NUTS."""
    probabilities = {name: each.probabilities["targets"] for name, each in predictions.items()}
    scored = {"labels": task.test.targets, "mask": task.mask}
    save(plot_reliability(probabilities, **scored), folder / "reliability.png")
    save(plot_entropy(probabilities, **scored), folder / "entropy.png")
    draws = log_true_class(task, probabilities["NUTS"])
    save(plot_traces(draws), folder / "traces.png")
    save(plot_ranks(draws), folder / "ranks.png")
    save(plot_energy(nuts_tree), folder / "energy.png")


def save(figure: "Figure", path: Path) -> None:
    """Write a PNG, and let pyplot forget the figure."""
    from matplotlib import pyplot

    figure.savefig(path, dpi=150, bbox_inches="tight", facecolor="white")
    pyplot.close(figure)


def log_true_class(task: Task, probs: np.ndarray) -> dict[str, np.ndarray]:
    """log p(true class | draw) in nats, of shape (chain, draw), at the test position about which the draws are least
    sure and at two that lie a sixth and a third of the way down from it."""
    entropy = np.where(task.mask, entropy_decomposition(probs).predictive, -1.0)
    order = np.argsort(entropy, axis=None, kind="stable")[::-1][: int(task.mask.sum())]
    chosen = np.unique(np.arange(NUM_TRACES) * len(order) // (2 * NUM_TRACES))
    found = {}
    for place in zip(*np.unravel_index(order[chosen], entropy.shape), strict=True):
        label = int(np.asarray(task.test.targets)[place])
        where = task.unit.removesuffix("s") + " " + ", word ".join(str(int(index)) for index in place)
        found[f"log p({task.classes[label]}), {where}"] = np.log(
            probs[(slice(None), slice(None), *place, label)]
        )
    return found
