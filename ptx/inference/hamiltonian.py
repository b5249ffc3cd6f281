"""What HMC and NUTS share: Stan's window adaptation of step size and mass matrix, and what they refuse."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
from blackjax.adaptation.step_size import dual_averaging_adaptation
from blackjax.adaptation.window_adaptation import build_schedule
from blackjax.mcmc.hmc import init as hmc_init
from jaxtyping import Array, Float

from ptx.compiled import compiled
from ptx.inference.engine import require_integer, require_positive
from ptx.target import Position, Target

SMALLEST_CONCENTRATION = 0.1  # of a Dirichlet or Beta: e^-9 of its mass is below the smallest float32


class State(NamedTuple):
    """Position as a vector with log density and gradient; step size and inverse mass matrix; adaptation."""

    chain: Any  # HMCState whose position and gradient are vectors
    step_size: Float[Array, ""]
    inverse_mass_matrix: Float[Array, "..."]
    averaging: Any
    covariance: Any


def log_density(target: Target, temperature: float) -> Callable[[Float[Array, "size"]], Float[Array, ""]]:
    """log p(u) / T over vectors, Jacobian included."""
    return lambda vector: target.log_density(target.unflatten(vector)) / temperature


def check_settings(engine: Any) -> None:
    """Refuse settings that are out of range."""
    for name in ("num_draws", "num_chains", "thin"):
        require_integer(engine, name)
    require_integer(engine, "num_warmup", 0)
    for name in ("step_size", "temperature"):
        require_positive(engine, name)
    require_positive(engine, "target_acceptance_rate", maximum=1.0)
    if engine.target_acceptance_rate >= 1.0:
        raise ValueError(f"{type(engine).__name__}: target_acceptance_rate must be below 1, got 1.0")
    if not isinstance(engine.dense_mass, bool):
        raise TypeError(
            f"{type(engine).__name__}: dense_mass must be True or False, got {engine.dense_mass!r}"
        )


def check_target(engine: Any, target: Target) -> None:
    """Refuse a Dirichlet or Beta site of small concentration: too much of its mass lies where floats run out.

    Towards 0 the least is 0.1, towards 1 (Beta) `4 / log(1 / eps)`, which leaves e^-4 of the mass within eps of 1:
    0.25 in float32, where 0.1 was measured to put means wrong by 13 standard errors with an R-hat of 1.0004. A
    temperature T makes concentrations a into a / T.
    """
    if not any(
        "simplex" in site.support.lower() or "interval" in site.support.lower() for site in target.sites
    ):
        return
    towards_one = -4 / math.log(jnp.finfo(jnp.result_type(float)).eps)
    for name, smallest in compiled(_concentrations, (), target, quickly=True)(target).items():
        for value, least in zip(smallest, (SMALLEST_CONCENTRATION, towards_one), strict=True):
            if value / engine.temperature < least * (1 - 1e-6):
                raise ValueError(
                    f"site '{name}': a Dirichlet or Beta of concentration {float(value / engine.temperature):.3g}, and "
                    f"{type(engine).__name__} needs at least {least:.3g}: below it means are wrong with a good R-hat. "
                    "Use SVI, or give a Dirichlet infer={'coordinates': 'log_gamma'}, right at any concentration"
                )


def _concentrations(target: Target) -> dict[str, tuple[Array, Array]]:
    return target.concentrations(target.initial_position(jax.random.key(0)))


def start(engine: Any, target: Target, position: Position) -> State:
    """State before the first step: unit mass matrix, the engine's step size."""
    vector = target.flatten(position)
    start_averaging, _, _ = dual_averaging_adaptation(engine.target_acceptance_rate)
    start_covariance, _, _ = mass_matrix_adaptation(not engine.dense_mass)
    step_size = jnp.asarray(engine.step_size, vector.dtype)
    covariance = start_covariance(vector.size)
    averaging = jax.tree.map(jnp.asarray, start_averaging(step_size))
    chain = hmc_init(vector, log_density(target, engine.temperature))
    return State(chain, step_size, covariance.inverse_mass_matrix, averaging, covariance)


def energy(state: State, momentum: Float[Array, "size"]) -> Float[Array, ""]:
    """H = -log p(u) / T + r' M^-1 r / 2 at the chain's position."""
    matrix = state.inverse_mass_matrix
    velocity = matrix * momentum if matrix.ndim == 1 else matrix @ momentum
    return -state.chain.logdensity + 0.5 * jnp.dot(momentum, velocity)


def adapt(engine: Any, state: State, acceptance_rate: Array, step: Array) -> State:
    """Stan's warm-up, one step of it; the identity after warm-up.

    Dual averaging moves the step size at every step. Inside a slow window the covariance is accumulated; at its end
    it becomes the inverse mass matrix and both start afresh. After the last step the averaged step size stays.

    As in BlackJAX, and unlike Stan, a fresh start of dual averaging is at the last window's average, not at the end
    of a search. Against NumPyro on three regressions the effective size per gradient was 0.92 to 1.03 times as large
    as without its search and 0.98 to 1.10 times as with it, and the search cost up to 35 % more warm-up gradients.
    """
    if engine.num_warmup == 0:
        return state
    schedule = build_schedule(engine.num_warmup)
    stage, window_ends = schedule[jnp.minimum(step, engine.num_warmup - 1)]
    start_averaging, update_averaging, average = dual_averaging_adaptation(engine.target_acceptance_rate)
    _, accumulate, finish = mass_matrix_adaptation(not engine.dense_mass)

    def warm_up(state: State) -> State:
        averaging = update_averaging(state.averaging, jnp.nan_to_num(acceptance_rate))
        covariance = jax.lax.cond(
            stage == 1, lambda c: accumulate(c, state.chain.position), lambda c: c, state.covariance
        )
        averaging, covariance = jax.lax.cond(
            window_ends == 1,
            lambda a, c: (type(a)(*start_averaging(average(a))), finish(c)),
            lambda a, c: (a, c),
            averaging,
            covariance,
        )
        last = step == engine.num_warmup - 1
        step_size = jnp.where(last, average(averaging), jnp.exp(averaging.log_step_size))
        return State(state.chain, step_size, covariance.inverse_mass_matrix, averaging, covariance)

    return jax.lax.cond(step < engine.num_warmup, warm_up, lambda state: state, state)


def keeps(engine: Any, step: Any) -> Any:
    """Every `thin`-th step after warm-up."""
    return (step >= engine.num_warmup) & ((step - engine.num_warmup) % engine.thin == engine.thin - 1)
