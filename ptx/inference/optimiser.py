"""Optimisers by name, for MAP and SVI: an optax optimiser that climbs, skips what is not finite and counts it."""

import difflib
import inspect
import warnings
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from ptx.inference import schedule
from ptx.inference.engine import Info, first_nonfinite, require_integer, require_positive


class State(NamedTuple):
    """Where the next gradient is taken; the last parameters whose objective and gradient were finite, with that
    objective; and the state of the optax optimiser."""

    parameters: Any
    finite: Any
    objective: Float[Array, ""]
    optimiser: Any


def check_settings(engine: Any) -> None:
    """Refuse settings that are out of range: the fields that MAP and SVI share."""
    for name in ("num_steps", "num_chains"):
        require_integer(engine, name)
    if engine.batch_size is not None:
        require_integer(engine, "batch_size")
    if engine.max_gradient_norm is not None:
        require_positive(engine, "max_gradient_norm")
    schedule.require(engine, "learning_rate")
    schedule.require(engine, "kl_weight", allow_zero=True)
    _require_name(engine)


def start(engine: Any, parameters: Any, objective: Float[Array, ""]) -> State:
    """State before the first step; the objective is that of the start, and what is not finite refuses the start."""
    return State(parameters, parameters, objective, _optimiser(engine, 0).init(parameters))


def ascend(
    engine: Any, state: State, objective: Float[Array, ""], gradient: Any, step: Array
) -> tuple[State, Info]:
    """One step up the gradient of the objective at `state.parameters`.

    Where the objective or its gradient is not finite the step is skipped: the next gradient is taken where the last
    finite one was, with the optimiser's state as it is. `state.finite` never holds an untried point, so what an engine
    draws from it has been seen to be finite.
    """
    norm = jnp.sqrt(sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(gradient)))
    is_finite = jnp.isfinite(objective) & jnp.isfinite(norm)
    scale = 1.0 if engine.max_gradient_norm is None else jnp.minimum(1.0, engine.max_gradient_norm / norm)
    downhill = jax.tree.map(lambda leaf: -scale * leaf, gradient)  # optax minimises
    updates, after = _optimiser(engine, step).update(downhill, state.optimiser, state.parameters)

    def keep(new: Any, old: Any) -> Any:
        return jax.tree.map(lambda a, b: jnp.where(is_finite, a, b).astype(b.dtype), new, old)

    moved = keep(optax.apply_updates(state.parameters, updates), state.finite)
    finite = keep((state.parameters, objective), (state.finite, state.objective))
    flat = jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(gradient)])
    info = {"gradient_norm": norm, "nonfinite": ~is_finite, "nonfinite_index": first_nonfinite(flat)}
    return State(moved, finite[0], finite[1], keep(after, state.optimiser)), info


def _optimiser(engine: Any, step: Any) -> Any:
    """The optimiser with the learning rate of this step."""
    return getattr(optax, engine.optimiser)(learning_rate=schedule.at(engine.learning_rate, step))


def _require_name(engine: Any) -> None:
    """Refuse a name that is no optax optimiser, or one that needs more than a learning rate."""
    name, where = engine.optimiser, f"{type(engine).__name__}: optimiser"
    if not isinstance(name, str):
        raise TypeError(f"{where} must be the name of an optax optimiser, such as 'adam'; got {name!r}")
    reason = _reason(name)
    if reason:
        names = [other for other in dir(optax) if not _reason(other)]
        near = difflib.get_close_matches(name, names, n=3) or names
        raise ValueError(f"{where}={name!r} {reason}; use for example {', '.join(map(repr, near))}")


@lru_cache(maxsize=512)
def _reason(name: str) -> str:
    """Why the name does not serve; empty where it does."""
    factory: Any = getattr(optax, name, None)
    try:
        parameters = {} if name.startswith(("_", "scale_by")) else inspect.signature(factory).parameters
    except (TypeError, ValueError):  # no function
        parameters = {}
    if "learning_rate" not in parameters:
        return "is no optax optimiser"
    if {"seed", "key"} & parameters.keys():
        return "draws random numbers from a seed of its own, so chains would share them"
    try:
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # its user will see it
            optimiser, weights = factory(learning_rate=0.1), jnp.ones(2)
        jax.eval_shape(lambda w: optimiser.update(w, optimiser.init(w), w), weights)
    except TypeError:
        return "needs more than a gradient and a learning rate"
    return ""
