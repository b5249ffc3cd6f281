"""Live R-hat: whether chains agree so far about the log density and about the likelihood of the first few rows."""

import math
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ptx.compiled import compiled
from ptx.data import Data
from ptx.rhat import split_rhat
from ptx.target import Position, Target

NUM_ROWS = 4
BATCH_DRAWS = 16  # of a chain, evaluated after one chunk
BATCH_BYTES = 64 * 2**20
MOST_DRAWS = 256  # kept of a chain
LEAST_DRAWS = 8  # below, R-hat says nothing
COMPILE_AFTER = 10.0  # seconds; a shorter run is over before compiling would have told anything
SHARE = 0.02  # of the time may go into evaluations

Rows = dict[str, np.ndarray]


class Thinned:
    """Every `stride`-th draw of a run, at most `MOST_DRAWS` of them: the stride doubles when they become too many."""

    def __init__(self) -> None:
        self.stride = 1
        self.draws = np.empty(0, int)
        self.values: np.ndarray | None = None  # (chain, draw, quantity)

    def wanted(self, first: int, count: int, most: int = MOST_DRAWS) -> np.ndarray:
        """Which of the draws `first, ..., first + count - 1` to add, at most `most`."""
        while True:
            new = np.arange(-(-first // self.stride) * self.stride, first + count, self.stride)
            if len(new) <= most and len(self.draws) + len(new) <= MOST_DRAWS:
                return new
            self.stride *= 2
            kept = self.draws % self.stride == 0
            self.draws = self.draws[kept]
            self.values = None if self.values is None else self.values[:, kept]

    def add(self, draws: np.ndarray, values: Float[np.ndarray, "chain draw quantity"]) -> None:
        """Add the values at draws that `wanted` named."""
        self.draws = np.concatenate([self.draws, draws])
        self.values = values if self.values is None else np.concatenate([self.values, values], axis=1)

    def rhats(self) -> list[float]:
        """R-hat of each quantity; NaN where there is none."""
        if self.values is None:
            return []
        if self.values.shape[1] < LEAST_DRAWS:
            return [math.nan] * self.values.shape[2]
        return [split_rhat(self.values[:, :, quantity]) for quantity in range(self.values.shape[2])]


class Live:
    """R-hat of the log density and of the log-likelihood of the first rows, at draws of this process.

    The log density comes with the run, unless minibatches make it so noisy that chains cannot be seen to differ. The
    likelihood is evaluated by one small program, at no more than 16 draws of a chain after a chunk of steps; the
    program is compiled after ten seconds, and evaluations that would take more than 2 % of the time are left out.
    """

    def __init__(self, engine: Any, target: Target) -> None:
        self.engine, self.target = engine, target
        batch_size = getattr(engine, "batch_size", None)
        self.compares = engine.num_chains > 1
        self.is_exact = batch_size is None or batch_size >= target.num_rows
        self.density, self.likelihood = Thinned(), Thinned()
        self.evaluates = target.factorizes and all(site.row_axis is None for site in target.sites)
        self.rows: Data | None = None
        self.begun: float | None = None
        self.spent = 0.0

    def update(self, first: int, history: Rows, positions: Rows, num_draws: int) -> None:
        """Take the info of the steps `first, ...` and the draws kept in them; `num_draws` are kept so far."""
        self.begun = time.monotonic() if self.begun is None else self.begun
        count = next((values.shape[1] for values in positions.values()), 0)
        if not (count and self.compares):
            return
        name = next((name for name in ("lp", "log_density") if name in history), None)
        if name is not None and self.is_exact:
            steps = history[name].shape[1]
            kept = np.broadcast_to(self.engine.keeps(np.arange(first, first + steps)), steps)
            wanted = self.density.wanted(num_draws - count, count)
            values = history[name][:, kept][:, wanted - (num_draws - count)]
            self.density.add(wanted, values.astype(np.float64)[..., None])
        if self.evaluates and self._is_time():
            try:
                self._evaluate(positions, num_draws - count, count)
            except (
                jax.errors.JaxRuntimeError,
                FloatingPointError,
            ):  # no memory left for it: the run matters more
                self.evaluates = False

    def rhats(self) -> dict[str, float]:
        """R-hat by quantity; NaN where there is none, empty where chains are not compared."""
        found = dict(zip(["log density"], self.density.rhats(), strict=False))
        return found | {f"log p(row {row})": value for row, value in enumerate(self.likelihood.rhats())}

    @property
    def num_draws(self) -> int:
        """Draws of each chain behind the numbers."""
        return max(len(self.density.draws), len(self.likelihood.draws))

    def _is_time(self) -> bool:
        elapsed = time.monotonic() - (self.begun or 0.0)
        return elapsed >= COMPILE_AFTER and self.spent <= SHARE * elapsed

    def _evaluate(self, positions: Rows, first: int, count: int) -> None:
        size = max(1, sum(values[0, 0].nbytes for values in positions.values()))
        length = int(np.clip(BATCH_BYTES // size, 1, BATCH_DRAWS))
        draws = self.likelihood.wanted(first, count, length)
        if not len(draws):
            return
        if self.rows is None:
            self.rows = self.target.data.take(slice(0, NUM_ROWS))
        entries = np.resize(draws - first, length)  # always as many, so that one program serves
        values = []
        for chain in range(self.engine.num_chains):
            batch = {name: jnp.asarray(sites[chain, entries]) for name, sites in positions.items()}
            program = compiled(_log_likelihood, (), self.target, batch, self.rows)
            begun = time.monotonic()  # compiling, once, is no part of what evaluations cost
            values.append(np.asarray(program(self.target, batch, self.rows))[: len(draws)])
            self.spent += time.monotonic() - begun
        self.likelihood.add(draws, np.stack(values).astype(np.float64))


def _log_likelihood(target: Target, batch: Position, rows: Data) -> Float[Array, "draw row"]:
    return jax.vmap(lambda position: target.log_likelihood(position, rows))(batch)
