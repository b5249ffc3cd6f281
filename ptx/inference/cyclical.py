"""Cycles of Zhang, Li, Zhang, Chen and Wilson (2020): cosine step sizes, exploration, sampling.

A cycle has n steps; with j = t mod n the step size is `step_size / 2 (cos(pi j / n) + 1)`, so it falls from
`step_size` to nearly nothing and starts again. While `j / n < exploration_fraction` the chain explores, without noise
(T = 0); in the rest of the cycle it samples.
"""

import math
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ptx.inference.engine import Info, require_integer, require_positive


def check_settings(engine: Any) -> None:
    """Refuse cycles that cannot be equal, and a fraction outside [0, 1)."""
    name = type(engine).__name__
    require_positive(engine, "step_size")  # the peak; the cosine is the schedule
    require_integer(engine, "num_cycles")
    if engine.num_draws % engine.num_cycles:
        raise ValueError(
            f"{name}: num_draws must be a multiple of num_cycles, so that every cycle gives as many draws; got "
            f"{engine.num_draws} and {engine.num_cycles}"
        )
    require_positive(engine, "exploration_fraction", maximum=1.0, allow_zero=True)
    if engine.exploration_fraction == 1:
        raise ValueError(
            f"{name}: exploration_fraction must be below 1, which leaves no step to sample; got 1.0"
        )


def sampling_steps(engine: Any) -> int:
    """Steps of a cycle's sampling stage: `thin` for each of its draws."""
    return engine.num_draws // engine.num_cycles * engine.thin


def steps_per_cycle(engine: Any) -> int:
    """n: the shortest cycle whose exploration takes `exploration_fraction` of it, rounded up to whole steps."""
    return math.ceil(round(sampling_steps(engine) / (1 - engine.exploration_fraction), 6))


def step_size(engine: Any, step: Any) -> Float[Array, ""]:
    """`step_size / 2 (cos(pi (t mod n) / n) + 1)` at step t, from 0."""
    n = steps_per_cycle(engine)
    return jnp.asarray(
        engine.step_size * 0.5 * (jnp.cos(jnp.pi * (step % n) / n) + 1), jnp.result_type(float)
    )


def samples(engine: Any, step: Any) -> Bool[Array, ""]:
    """Whether the step belongs to a sampling stage."""
    return step % steps_per_cycle(engine) >= steps_per_cycle(engine) - sampling_steps(engine)


def keeps(engine: Any, step: Any) -> Any:
    """Every `thin`-th step of a sampling stage, the last step of each cycle included."""
    from_end = steps_per_cycle(engine) - 1 - step % steps_per_cycle(engine)
    return (from_end < sampling_steps(engine)) & (from_end % engine.thin == 0)


def info(engine: Any, step: Int[Array, ""]) -> Info:
    """`cycle` of the step, from 0, and its `stage`: 0 explores, 1 samples."""
    return {
        "cycle": jnp.asarray(step // steps_per_cycle(engine), jnp.int32),
        "stage": jnp.asarray(samples(engine, step), jnp.int32),
    }
