"""Posterior: draws with axes (chain, draw), sample statistics, cost."""

import re
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from ptx.compiled import compiled
from ptx.target import Position, Target

_REAL = re.compile(r"(IndependentConstraint\()*Real\(\)(, [0-9]+\))*")


@dataclass(frozen=True, eq=False, repr=False)
class Posterior:
    """What an engine returns.

    Attributes:
        target: the model lowered on its data; None for a stored run opened without its model.
        engine: the engine that ran.
        draws: site -> unconstrained values of shape (num_chains, num_draws, *site shape), on the host.
        statistics: name -> (num_chains, num_draws), the step's `info` at each kept draw (samplers).
        history: name -> (num_chains, num_steps), the `info` of every step: loss, acceptance, step size.
        attributes: engine, versions, seed, seconds, compile_seconds, gradient_evaluations (calls of a gradient,
            summed over chains; a minibatch counts one), chain_layout, interrupted.
        findings: what a reader must know before using the draws, in words; empty when nothing was found.
        parameters: values on their supports, where a stored run has them; `constrained()` returns them.

    Of a stored run, arrays stay on disk: each is a `ptx.store.arrays.Stored`, which has `shape` and `dtype`, is indexed
    along chains and draws like an array, and becomes one by `numpy.asarray`.
    """

    target: Any
    engine: Any
    draws: dict[str, Any]
    statistics: dict[str, Any]
    history: dict[str, Any]
    attributes: dict[str, Any]
    findings: tuple[str, ...] = ()
    parameters: dict[str, Any] | None = None

    @property
    def num_chains(self) -> int:
        """Chains (or members of an ensemble)."""
        return self.engine.num_chains

    @property
    def num_draws(self) -> int:
        """Draws of each chain; fewer than asked for when the run was interrupted."""
        none = (
            0 if self.parameters is not None else self.engine.num_draws
        )  # of a stored run, of a model without sites
        return next((values.shape[1] for values in self.draws.values()), none)

    def __repr__(self) -> str:
        known = {} if self.target is None else {site.name: site.shape for site in self.target.sites}
        shapes = known or {name: values.shape[2:] for name, values in (self.parameters or {}).items()}
        sites = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        found = "".join(f"\n  {finding}" for finding in self.findings)
        size = f"{self.num_chains} chains x {self.num_draws} draws" if self.draws else "no draws"
        return f"Posterior of {self.engine!r}\n  {size} of {sites or 'no site'}{found}"

    def constrained(self) -> dict[str, Any]:
        """Parameters on their supports: site -> (num_chains, num_draws, *site shape)."""
        if self.parameters is not None:
            return dict(self.parameters)
        if all(is_identity(site.support) for site in self.target.sites):
            return dict(self.draws)
        if self.num_draws == 0:
            lead = (self.num_chains, 0)
            return {site.name: np.empty((*lead, *site.shape), np.float32) for site in self.target.sites}
        flat = {name: values.reshape(-1, *values.shape[2:]) for name, values in self.draws.items()}
        values = _constrain_all(self.target, flat)
        lead = (self.num_chains, self.num_draws)
        return {name: array.reshape(*lead, *array.shape[1:]) for name, array in values.items()}

    def replace(self, **changes: Any) -> "Posterior":
        """A copy with other fields; other draws have no parameters yet."""
        if "draws" in changes:
            changes = {"parameters": None, **changes}
        return replace(self, **changes)


def is_identity(support: str) -> bool:
    """Whether values on this support are the unconstrained ones: reals, however many of them are one event."""
    return bool(_REAL.fullmatch(support))


def _constrain_all(target: Target, flat: dict[str, np.ndarray], chunk: int = 256) -> dict[str, np.ndarray]:
    count = next(iter(flat.values())).shape[0]
    parts = []
    for first in range(0, count, chunk):
        rows = np.minimum(np.arange(first, first + chunk), count - 1)  # one shape, so one compilation
        batch = jax.tree.map(lambda values, rows=rows: jax.numpy.asarray(values[rows]), flat)
        constrained = compiled(constrain_draws, (), target, batch)(target, batch)
        parts.append(jax.tree.map(lambda values, n=count - first: np.asarray(values)[:n], constrained))
    return jax.tree.map(lambda *values: np.concatenate(values), *parts)


def constrain_draws(target: Target, batch: Position) -> Position:
    """Values on their supports for positions with a leading axis of draws."""
    return jax.vmap(target.constrain)(batch)
