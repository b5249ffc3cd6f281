"""Interleaved timing: every contender runs once a repeat, so that a slow minute slows them all."""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def interleaved(runs: dict[Any, Callable[[], float]], repeats: int) -> dict[Any, np.ndarray]:
    """Seconds per unit of work for each contender and repeat; each callable returns the units it did.

    The first call of each compiles and is not counted.
    """
    for run in runs.values():
        run()
    seconds: dict[Any, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            begun = time.perf_counter()
            units = run()
            seconds[name].append((time.perf_counter() - begun) / units)
    return {name: np.asarray(values) for name, values in seconds.items()}


def row(benchmark: str, what: str, ratios: np.ndarray, goal: str, met: bool, **figures: float) -> dict:
    """One line of the table: the median ratio with its quartiles, the goal, and the figures behind it."""
    low, middle, high = (float(value) for value in np.quantile(ratios, [0.25, 0.5, 0.75]))
    return {
        "benchmark": benchmark,
        "what": what,
        "ratio": middle,
        "quartiles": [low, high],
        "goal": goal,
        "met": bool(met),
        **figures,
    }


def block(value: object) -> None:
    """Wait for every array in it."""
    jax.block_until_ready(value)
