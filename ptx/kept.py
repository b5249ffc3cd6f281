"""Where kept draws and the info of every step go while a run goes on, when nothing is stored on disk."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

Rows = dict[str, np.ndarray]


class Arrays(NamedTuple):
    """What a run has given: unconstrained draws, statistics at kept steps, the info of every step, and parameters on
    their supports where they are there already."""

    draws: dict[str, Any]
    statistics: dict[str, Any]
    history: dict[str, Any]
    parameters: dict[str, Any] | None


def blocks(values: Any, max_bytes: int = 2**25) -> Iterator[np.ndarray]:
    """Parts along the axis of draws or steps, so that an array on disk is never in memory as a whole."""
    row_bytes = math.prod((values.shape[0], *values.shape[2:])) * values.dtype.itemsize
    size = max(1, max_bytes // max(1, row_bytes))
    for first in range(0, values.shape[1], size):
        yield values[:, first : first + size]


class Kept(Protocol):
    """What the driver asks of the place where draws go: memory here, or a directory (`ptx.store`)."""

    @property
    def num_steps(self) -> int:
        """Steps of each chain so far."""
        ...

    @property
    def num_draws(self) -> int:
        """Draws of each chain so far."""
        ...

    @property
    def is_concluded(self) -> bool:
        """Whether there is nothing left to do."""
        ...

    def add(self, positions: Rows, history: Rows, count: int) -> None:
        """Take kept positions (chain, draw, ...) and the info (chain, step) of `count` steps."""
        ...

    def due(self) -> bool:
        """Whether it is time to save."""
        ...

    def save(self, states: list[Any], state: str, seconds: dict[str, float]) -> None:
        """Make everything so far durable."""
        ...

    def settle(self) -> None:
        """Wait for what is being written."""
        ...

    def event(self, event: str, **details: Any) -> None:
        """Note what happened."""
        ...

    def arrays(self) -> Arrays:
        """All of it."""
        ...

    def conclude(self, attributes: dict[str, Any], findings: tuple[str, ...]) -> None:
        """Keep what a reader must know beside the draws."""
        ...


class Memory:
    """Draws and history in arrays on the host, made at their full length at first use."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.num_steps, self.num_draws = 0, 0
        self.positions: Rows = {}
        self.history: Rows = {}

    def add(self, positions: Rows, history: Rows, count: int) -> None:
        """Copy them behind what is there."""
        _put(self.positions, positions, self.num_draws, self.engine.num_draws)
        _put(self.history, history, self.num_steps, self.engine.num_steps)
        self.num_steps += count
        self.num_draws += next((values.shape[1] for values in positions.values()), 0)

    @property
    def is_concluded(self) -> bool:
        """Never: nothing was there before."""
        return False

    def due(self) -> bool:
        """Never."""
        return False

    def save(self, states: list[Any], state: str, seconds: dict[str, float]) -> None:
        """Nothing is durable."""

    def settle(self) -> None:
        """Nothing is being written."""

    def event(self, event: str, **details: Any) -> None:
        """Nothing is noted."""

    def arrays(self) -> Arrays:
        """Views of the parts that are filled; statistics are the history at kept steps."""
        draws = {name: values[:, : self.num_draws] for name, values in self.positions.items()}
        history = {name: values[:, : self.num_steps] for name, values in self.history.items()}
        statistics = {}
        if self.engine.is_sampler and self.num_steps:
            kept = np.broadcast_to(self.engine.keeps(np.arange(self.num_steps)), self.num_steps)
            statistics = {name: values[:, kept] for name, values in history.items()}
        return Arrays(draws, statistics, history, None)

    def conclude(self, attributes: dict[str, Any], findings: tuple[str, ...]) -> None:
        """They are in the Posterior alone."""


def _put(arrays: Rows, new: Rows, start: int, size: int) -> None:
    """Write `new` at `start` along axis 1 of arrays of length `size`, which are made at first use."""
    for name, values in new.items():
        if name not in arrays:
            arrays[name] = np.empty((values.shape[0], size, *values.shape[2:]), values.dtype)
        arrays[name][:, start : start + values.shape[1]] = values
