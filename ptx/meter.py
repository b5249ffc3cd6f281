"""How a run stands, from what each chunk of steps says: one record, whose lists have an entry a chain."""

import time
from collections import deque
from typing import Any, NamedTuple

import numpy as np

RECENT = 8  # marks that speed and time left are taken from
MARK_SECONDS = 1.0  # between two of them, however short chunks are
AVERAGED = 100  # last steps of a chunk that acceptance and loss are averaged over
LOSSES = {"acceptance_rate": "accept", "elbo": "ELBO", "log_density": "log density", "lp": "log density"}

Rows = dict[str, np.ndarray]


class Status(NamedTuple):
    """How a run stands; values by chain are empty where the engine has no such thing.

    Attributes:
        phase: compiling, warm-up, exploring, sampling, fitting or drawing; the same in all chains.
        step, num_draws: steps and kept draws of each chain.
        step_size: of the last step.
        loss_name, loss: acceptance, ELBO or log density (nats), averaged over the last steps.
        bad_name, bad: divergences of the phase, or steps with a non-finite gradient.
        gradients_per_second: of each chain, lately.
        seconds_left: until the last step; None while unknown.
    """

    phase: str
    step: int = 0
    num_draws: int = 0
    step_size: tuple[float, ...] = ()
    loss_name: str = ""
    loss: tuple[float, ...] = ()
    bad_name: str = ""
    bad: tuple[int, ...] = ()
    gradients_per_second: tuple[float, ...] = ()
    seconds_left: float | None = None


class Meter:
    """Makes a `Status` of each chunk's info. Only steps of this process count for speed, as a run may have gone on."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.num_warmup = getattr(engine, "num_warmup", 0)
        self.marks: deque[tuple[float, int, np.ndarray]] = deque(maxlen=RECENT + 1)
        self.gradients = np.zeros(engine.num_chains)
        self.bad = np.zeros(engine.num_chains, int)
        self.status = Status("compiling")

    def update(self, phase: str, step: int, history: Rows, positions: Rows, num_draws: int) -> Status:
        """How the run stands after a chunk, or at the start of a phase, when there is no history yet."""
        count = next((values.shape[1] for values in (*history.values(), *positions.values())), 0)
        first = step - count
        self.gradients = self.gradients + self._gradients(history, count)
        if phase != "compiling":
            self._mark(step)
        if not count:  # a phase begins: what was known of the chains still holds
            num_draws = max(num_draws, self.status.num_draws)
            self.status = self.status._replace(
                phase=self._phase(phase, step, {}), step=step, num_draws=num_draws
            )
            return self.status
        bad_name = next((name for name in ("diverging", "nonfinite") if name in history), "")
        loss_name = next((name for name in LOSSES if name in history), "")
        self.status = Status(
            self._phase(phase, step, history),
            step,
            num_draws,
            _last(history, "step_size"),
            LOSSES.get(loss_name, ""),
            _mean(history, loss_name),
            {"diverging": "divergences", "nonfinite": "non-finite"}.get(bad_name, ""),
            self._count_bad(history, bad_name, first, step),
            *self._speed(step),
        )
        return self.status

    def _phase(self, phase: str, step: int, history: Rows) -> str:
        if phase != "sampling":
            return phase
        if step < self.num_warmup or (step == self.num_warmup and history):
            return "warm-up"
        if "stage" in history and not history["stage"][0, -1]:
            return "exploring"
        return phase

    def _gradients(self, history: Rows, count: int) -> np.ndarray:
        if "n_steps" in history:
            return history["n_steps"].sum(axis=1, dtype=np.int64)
        return np.full(self.engine.num_chains, self.engine.gradients_per_step * count)

    def _count_bad(self, history: Rows, name: str, first: int, step: int) -> tuple[int, ...]:
        """Divergences of warm-up are expected and are no longer counted when it is over."""
        if not name:
            return ()
        values = history[name].astype(bool)
        if name == "diverging" and step > self.num_warmup:
            values = values[:, max(0, self.num_warmup - first) :]
            self.bad = np.zeros_like(self.bad) if first <= self.num_warmup else self.bad
        self.bad = self.bad + values.sum(axis=1)
        return tuple(int(value) for value in self.bad)

    def _mark(self, step: int) -> None:
        now = time.monotonic()
        if len(self.marks) > 1 and now - self.marks[-2][0] < MARK_SECONDS:
            self.marks.pop()
        self.marks.append((now, step, self.gradients))

    def _speed(self, step: int) -> tuple[tuple[float, ...], float | None]:
        (begun, first, before), (now, _, after) = self.marks[0], self.marks[-1]
        if step == first or now <= begun:
            return (), 0.0 if step >= self.engine.num_steps else None
        left = (self.engine.num_steps - step) * (now - begun) / (step - first)
        each = (after - before) / (now - begun)
        return tuple(float(value) for value in each) if self.engine.gradients_per_step else (), left


def _last(history: Rows, name: str) -> tuple[float, ...]:
    return tuple(float(value) for value in history[name][:, -1]) if name in history else ()


def _mean(history: Rows, name: str) -> tuple[float, ...]:
    if not name:
        return ()
    return tuple(float(value) for value in history[name][:, -AVERAGED:].astype(np.float64).mean(axis=1))
