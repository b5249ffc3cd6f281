"""Chains that can go no further are stopped and reported, instead of repeating their last draw to the end."""

import math
from typing import Any, NamedTuple

import numpy as np

from ptx.target import Target

MOST_NONFINITE = 100  # non-finite gradients in a row, without two finite ones in succession between them
SMALLEST_STEP = 1e-20  # of HMC and NUTS: no position of float32 or float64 moves by it


class Reason(NamedTuple):
    """The step at which a chain can go no further, and why, in words."""

    step: int
    text: str


class Watch:
    """Looks at the info of every chunk of steps.

    An optimiser that was thrown back to its last finite point takes a finite gradient there before it fails again, so
    one finite gradient alone does not end a row of non-finite ones; two in succession do.
    """

    def __init__(self, engine: Any, target: Target) -> None:
        self.engine, self.target = engine, target
        self.bad: dict[int, int] = {}  # non-finite gradients in the present row of each chain
        self.finite: dict[int, int] = {}  # finite ones in succession at its end

    def recall(self, num_steps: int, history: dict[str, Any]) -> Reason | None:
        """Look at the last steps before this process: a row of non-finite gradients may have begun there."""
        first = max(0, num_steps - 2 * MOST_NONFINITE)
        return self.look(first, {name: np.asarray(values[:, first:]) for name, values in history.items()})

    def look(self, first: int, history: dict[str, np.ndarray]) -> Reason | None:
        """Why a chain can go no further, and at which step; the earliest one; None where all can.

        Args:
            first: the number of the first step.
            history: info (chain, step) of the steps from it on.
        """
        found = [
            reason for reason in (self._nonfinite(first, history), self._shrunk(first, history)) if reason
        ]
        return min(found, key=lambda reason: reason.step, default=None)

    def _nonfinite(self, first: int, history: dict[str, np.ndarray]) -> Reason | None:
        found: list[Reason] = []
        for chain, row in enumerate(history.get("nonfinite", ())):
            if len(row) > 1 and not row.any():
                self.bad[chain], self.finite[chain] = 0, len(row)
                continue
            for step, bad in enumerate(row):
                self.finite[chain] = 0 if bad else self.finite.get(chain, 0) + 1
                self.bad[chain] = 0 if self.finite[chain] > 1 else self.bad.get(chain, 0) + bool(bad)
                if self.bad[chain] >= MOST_NONFINITE:
                    found.append(self._stuck(first, history, chain, step))
                    break
        return min(found, key=lambda reason: reason.step, default=None)

    def _stuck(self, first: int, history: dict[str, np.ndarray], chain: int, step: int) -> Reason:
        text = (
            f"{type(self.engine).__name__}: stopped at step {first + step}: chain {chain} met {MOST_NONFINITE} "
            f"non-finite gradients in a row{self._site(history, chain, step)}, and stays at its last finite state. "
            "Take smaller steps, or look at the model there"
        )
        return Reason(first + step, text)

    def _site(self, history: dict[str, np.ndarray], chain: int, step: int) -> str:
        """The site of the first non-finite entry of the gradient, as far as the engine says."""
        index = int(history["nonfinite_index"][chain, step]) if "nonfinite_index" in history else -1
        for site in sorted(self.target.sites, key=lambda site: site.name):
            size = math.prod(site.unconstrained_shape)
            if 0 <= index < size:
                return f", at site '{site.name}'"
            index -= size
        return ", the log density itself first"

    def _shrunk(self, first: int, history: dict[str, np.ndarray]) -> Reason | None:
        if "step_size" not in history or "acceptance_rate" not in history:
            return None
        small = ~(np.asarray(history["step_size"]) >= SMALLEST_STEP)
        if not small.any():
            return None
        step = int(np.argmax(small.any(axis=0)))
        chain = int(np.argmax(small[:, step]))
        text = (
            f"{type(self.engine).__name__}: stopped at step {first + step}: the step size of chain {chain} shrank to "
            f"{history['step_size'][chain, step]:.3g}, because no trajectory was accepted; the density is not finite, "
            "or not continuous, around it. Start elsewhere (init=), or look at the model"
        )
        return Reason(first + step, text)
