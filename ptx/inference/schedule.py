"""Step sizes that change with the step: frozen dataclasses of plain values, so that an engine's repr round-trips."""

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array


def _check(schedule: Any, **positive: float) -> None:
    for name, value in positive.items():
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value) or value <= 0:
            raise ValueError(f"{type(schedule).__name__}: {name} must be positive and finite, got {value!r}")


@dataclass(frozen=True)
class Cosine:
    """`value (f + (1 - f) (1 + cos(pi min(t, n) / n)) / 2)` with n = num_steps, f = final_fraction (Loshchilov and Hutter)."""

    value: float
    num_steps: int
    final_fraction: float = 0.0

    def __post_init__(self) -> None:
        _check(self, value=self.value, num_steps=self.num_steps)

    def __call__(self, step: Any) -> Array:
        """The value at step t, from 0."""
        wave = 0.5 * (1 + jnp.cos(jnp.pi * jnp.minimum(step, self.num_steps) / self.num_steps))
        return self.value * (self.final_fraction + (1 - self.final_fraction) * wave)


@dataclass(frozen=True)
class Exponential:
    """`value * rate^(t / num_steps)`."""

    value: float
    rate: float
    num_steps: int

    def __post_init__(self) -> None:
        _check(self, value=self.value, rate=self.rate, num_steps=self.num_steps)

    def __call__(self, step: Any) -> Array:
        """The value at step t, from 0."""
        return self.value * jnp.power(self.rate, step / self.num_steps)


@dataclass(frozen=True)
class Polynomial:
    """`a (b + t)^-gamma`, the decreasing steps of Welling and Teh (2011); gamma in (0.5, 1] makes SGLD consistent."""

    a: float
    b: float = 1.0
    gamma: float = 0.55

    def __post_init__(self) -> None:
        _check(self, a=self.a, b=self.b, gamma=self.gamma)

    def __call__(self, step: Any) -> Array:
        """The value at step t, from 0."""
        return self.a * jnp.power(self.b + step, -self.gamma)


Schedule = Cosine | Exponential | Polynomial


def at(value: float | Schedule, step: Any) -> Array:
    """The value of a constant or a schedule at a step."""
    return jnp.asarray(value(step) if callable(value) else value, jnp.result_type(float))


def require(engine: Any, name: str) -> None:
    """Refuse a field that is neither a positive finite number nor a schedule."""
    value = getattr(engine, name)
    if not isinstance(value, (Cosine, Exponential, Polynomial)):
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise TypeError(
                f"{type(engine).__name__}: {name} must be a number, Cosine, Exponential or Polynomial; got {value!r}"
            )
        if not math.isfinite(value) or value <= 0:
            raise ValueError(f"{type(engine).__name__}: {name} must be positive and finite, got {value!r}")
