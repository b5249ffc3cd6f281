"""What the stochastic-gradient samplers share: minibatch gradients, Langevin moves, and what they refuse.

Each move evaluates one gradient, at the place it goes to. Where that gradient or the log density is not finite the
chain stays, and the step counts as `nonfinite`; so no draw ever lies where the density is not finite.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.sgmcmc import diffusions
from jaxtyping import Array, Bool, Float, Int

from ptx.data import Data
from ptx.inference import minibatch, schedule
from ptx.inference.engine import Info, first_nonfinite, require_integer, require_positive
from ptx.target import Position, Target


class Overdamped(NamedTuple):
    """Position as a vector, with the minibatch estimates of gradient and log density there; the rest of the data."""

    position: Float[Array, "size"]
    gradient: Float[Array, "size"]
    log_density: Float[Array, ""]
    stream: minibatch.Stream | None


class Underdamped(NamedTuple):
    """Position and momentum as vectors, the minibatch estimate of the log density; the rest of the data."""

    position: Float[Array, "size"]
    momentum: Float[Array, "size"]
    log_density: Float[Array, ""]
    stream: minibatch.Stream | None


class Estimate(NamedTuple):
    """log p(u) in nats and its gradient, from one minibatch; whether all of it is finite, and if not, where first."""

    log_density: Float[Array, ""]
    gradient: Float[Array, "size"]
    finite: Bool[Array, ""]
    nonfinite_index: Int[Array, ""]


def estimate(target: Target, position: Float[Array, "size"], batch: Data | None) -> Estimate:
    """Unbiased over minibatches: `log_prior + N/B * sum(log_likelihood)`."""
    density = lambda vector: target.log_density(target.unflatten(vector), batch)  # noqa: E731
    log_density, gradient = jax.value_and_grad(density)(position)
    index = first_nonfinite(gradient)
    return Estimate(log_density, gradient, jnp.isfinite(log_density) & (index < 0), index)


def start_overdamped(engine: Any, rng_key: Array, target: Target, position: Position) -> Overdamped:
    """State at the first minibatch."""
    vector = target.flatten(position)
    stream, batch = minibatch.take(
        engine.batch_size, target, minibatch.start(engine.batch_size, target, rng_key)
    )
    here = estimate(target, vector, batch)
    return Overdamped(vector, here.gradient, here.log_density, stream)


def start_underdamped(engine: Any, rng_key: Array, target: Target, position: Position) -> Underdamped:
    """State at the first minibatch, with a momentum from N(0, T I), its law in equilibrium."""
    key_stream, key_momentum = jax.random.split(rng_key)
    begun = start_overdamped(engine, key_stream, target, position)
    noise = jax.random.normal(key_momentum, begun.position.shape, begun.position.dtype)
    # The move keeps no gradient, so a start with a bad one must show in the log density.
    log_density = jnp.where(jnp.isfinite(begun.gradient).all(), begun.log_density, jnp.nan)
    return Underdamped(begun.position, engine.temperature**0.5 * noise, log_density, begun.stream)


def move_overdamped(
    engine: Any, rng_key: Array, target: Target, state: Overdamped, step_size: Array, temperature: Any
) -> tuple[Overdamped, Info]:
    """`u + eps g(u) + sqrt(2 eps T) xi`, xi ~ N(0, I); then the gradient there, on the next minibatch."""
    step_size = step_size.astype(state.position.dtype)
    kernel: Any = diffusions.overdamped_langevin()  # its hints allow Python floats only
    position = kernel(rng_key, state.position, state.gradient, step_size, temperature)
    stream, batch = minibatch.take(engine.batch_size, target, state.stream)
    there = estimate(target, position, batch)
    moved = Overdamped(position, there.gradient, there.log_density, stream)
    state = _either(there.finite, moved, state)
    return state, _info(state.log_density, step_size, there)


def move_underdamped(
    engine: Any, rng_key: Array, target: Target, state: Underdamped, step_size: Array, temperature: Any
) -> tuple[Underdamped, Info]:
    """`u' = u + h r; r' = (1 - h c) r + h g(u') + sqrt(2 c h T) xi`; where g(u') is not finite, u' = u and r' = -r."""
    step_size = step_size.astype(state.position.dtype)
    stream, batch = minibatch.take(engine.batch_size, target, state.stream)
    there = estimate(target, state.position + step_size * state.momentum, batch)
    kernel: Any = diffusions.sghmc(alpha=engine.friction)
    position, momentum = kernel(
        rng_key, state.position, state.momentum, there.gradient, step_size, temperature
    )
    moved = Underdamped(position, momentum, there.log_density, stream)
    state = _either(there.finite, moved, state._replace(momentum=-state.momentum))
    return state, _info(state.log_density, step_size, there)


def _either(finite: Array, moved: Any, stayed: Any) -> Any:
    """One of two states, but the stream of `moved`: the batch is spent either way."""
    chosen = {
        name: jnp.where(finite, getattr(moved, name), getattr(stayed, name)) for name in moved._fields[:-1]
    }
    return moved._replace(**chosen)


def _info(log_density: Array, step_size: Array, there: Estimate) -> Info:
    return {
        "log_density": log_density,
        "step_size": step_size,
        "nonfinite": ~there.finite,
        "nonfinite_index": there.nonfinite_index,
    }


def check_settings(engine: Any) -> None:
    """Refuse settings that are out of range, and a schedule that stops the chain before its last step."""
    for name in ("num_draws", "num_chains", "thin"):
        require_integer(engine, name)
    if engine.batch_size is not None:
        require_integer(engine, "batch_size")
    require_positive(engine, "temperature", allow_zero=True)
    schedule.require(engine, "step_size")


def check_step_size(engine: Any, num_steps: int) -> None:
    """Refuse a schedule that reaches zero before the last of `num_steps` steps: the chain would stand still."""
    smallest, _ = schedule.extremes(engine.step_size, num_steps)
    if not smallest > 0:
        raise ValueError(
            f"{type(engine).__name__}: step_size={engine.step_size!r} reaches {smallest} within {num_steps} "
            "steps, so the chain would stand still; lengthen the schedule, or give Cosine a final_fraction above 0"
        )


def check_friction(engine: Any, num_steps: int) -> None:
    """Refuse a friction that takes more than the whole momentum in a step."""
    require_positive(engine, "friction")
    _, largest = schedule.extremes(engine.step_size, num_steps)
    if largest * engine.friction > 1:
        raise ValueError(
            f"{type(engine).__name__}: friction * step_size must be at most 1 (a step keeps 1 - friction * step_size "
            f"of the momentum), got {engine.friction} * {largest:.4g}; lower one of them"
        )


def keeps(engine: Any, step: Any) -> Any:
    """Every `thin`-th step after warm-up."""
    return (step >= engine.num_warmup) & ((step - engine.num_warmup) % engine.thin == engine.thin - 1)
