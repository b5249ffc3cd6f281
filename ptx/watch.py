"""Chains that can go no further are stopped and reported, instead of repeating their last draw to the end."""

import math
from typing import Any

import numpy as np

from ptx.target import Target

MOST_NONFINITE = 100  # non-finite gradients in a row, without two finite ones in succession between them
SMALLEST_STEP = 1e-20  # of HMC and NUTS: no position of float32 or float64 moves by it


class Watch:
    """Looks at the info of every chunk of steps.

    An optimiser that was thrown back to its last finite point takes a finite gradient there before it fails again, so
    one finite gradient alone does not end a row of non-finite ones; two in succession do.
    """

    def __init__(self, engine: Any, target: Target) -> None:
        self.engine, self.target = engine, target
        self.bad: dict[int, int] = {}  # non-finite gradients in the present row of each chain
        self.finite: dict[int, int] = {}  # finite ones in succession at its end

    def look(self, first: int, history: dict[str, np.ndarray]) -> str | None:
        """Why a chain can go no further, with chain, step and site; None where all can.

        Args:
            first: the number of the chunk's first step.
            history: info (chain, step) of the chunk.
        """
        return self._nonfinite(first, history) or self._shrunk(first, history)

    def _nonfinite(self, first: int, history: dict[str, np.ndarray]) -> str | None:
        if "nonfinite" not in history:
            return None
        for chain, row in enumerate(history["nonfinite"]):
            if not row.any():
                self.bad[chain], self.finite[chain] = 0, len(row)
                continue
            for step, bad in enumerate(row):
                self.finite[chain] = 0 if bad else self.finite.get(chain, 0) + 1
                self.bad[chain] = 0 if self.finite[chain] > 1 else self.bad.get(chain, 0) + bool(bad)
                if self.bad[chain] >= MOST_NONFINITE:
                    where = self._site(history, chain, step)
                    return (
                        f"{type(self.engine).__name__}: stopped at step {first + step}: chain {chain} met "
                        f"{MOST_NONFINITE} non-finite gradients in a row{where}; what is kept ends at its last finite "
                        "state. Take smaller steps, or look at the model there"
                    )
        return None

    def _site(self, history: dict[str, np.ndarray], chain: int, step: int) -> str:
        """The site of the first non-finite entry of the gradient, as far as the engine says."""
        index = int(history["nonfinite_index"][chain, step]) if "nonfinite_index" in history else -1
        for site in sorted(self.target.sites, key=lambda site: site.name):
            size = math.prod(site.unconstrained_shape)
            if 0 <= index < size:
                return f", at site '{site.name}'"
            index -= size
        return ", the log density itself first"

    def _shrunk(self, first: int, history: dict[str, np.ndarray]) -> str | None:
        if "step_size" not in history or "acceptance_rate" not in history:
            return None
        for chain, sizes in enumerate(history["step_size"]):
            small = np.flatnonzero(~(sizes >= SMALLEST_STEP))
            if small.size:
                return (
                    f"{type(self.engine).__name__}: stopped at step {first + int(small[0])}: the step size of "
                    f"chain {chain} shrank to {sizes[small[0]]:.3g}, because no trajectory was accepted; the density "
                    "is not finite, or not continuous, around it. Start elsewhere (init=), or look at the model"
                )
        return None
