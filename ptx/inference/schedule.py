"""Step sizes that change with the step: frozen dataclasses of plain values, so that an engine's repr round-trips."""

import math
import numbers
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array


@dataclass(frozen=True)
class Cosine:
    """`value (f + (1 - f) (1 + cos(pi min(t, n) / n)) / 2)` with n = num_steps, f = final_fraction in [0, 1].

    Loshchilov and Hutter's (2017) annealing, without restarts.
    """

    value: float
    num_steps: int
    final_fraction: float = 0.0

    def __post_init__(self) -> None:
        _check(self, "value", "num_steps")
        _plain(self, "final_fraction")
        if not _is_number(self.final_fraction) or not 0 <= self.final_fraction <= 1:
            raise ValueError(f"Cosine: final_fraction must be in [0, 1], got {self.final_fraction!r}")

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
        _check(self, "value", "rate", "num_steps")

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
        _check(self, "a", "b", "gamma")

    def __call__(self, step: Any) -> Array:
        """The value at step t, from 0."""
        return self.a * jnp.power(self.b + step, -self.gamma)


@dataclass(frozen=True)
class Linear:
    """From `start` to `end` over num_steps steps, `start + (end - start) min(t, n) / n`, and `end` from there on."""

    start: float
    end: float
    num_steps: int

    def __post_init__(self) -> None:
        _check(self, "num_steps")
        for name in ("start", "end"):
            value = _plain(self, name)
            if not _is_number(value) or not 0 <= value < math.inf:
                raise ValueError(f"Linear: {name} must be zero or positive, and finite; got {value!r}")

    def __call__(self, step: Any) -> Array:
        """The value at step t, from 0."""
        return self.start + (self.end - self.start) * jnp.minimum(step, self.num_steps) / self.num_steps


Schedule = Cosine | Exponential | Linear | Polynomial


def at(value: float | Schedule, step: Any) -> Array:
    """The value of a constant or a schedule at a step."""
    return jnp.asarray(value(step) if callable(value) else value, jnp.result_type(float))


def extremes(value: float | Schedule, num_steps: int) -> tuple[float, float]:
    """Smallest and largest value over steps 0, ..., num_steps - 1; every schedule here is monotone."""
    with jax.ensure_compile_time_eval():  # an engine may be made inside jit
        ends = float(at(value, 0)), float(at(value, num_steps - 1))
    return min(ends), max(ends)


def require(engine: Any, name: str, allow_zero: bool = False) -> None:
    """Refuse a field that is neither a positive finite number (or 0, with `allow_zero`) nor a schedule."""
    value = _plain(engine, name)
    if isinstance(value, Schedule):
        return
    if not _is_number(value):
        raise TypeError(
            f"{type(engine).__name__}: {name} must be a number, Cosine, Exponential, Linear or Polynomial; "
            f"got {value!r}"
        )
    if not math.isfinite(value) or value < 0 or (value == 0 and not allow_zero):
        kind = "zero or positive, and finite" if allow_zero else "positive and finite"
        raise ValueError(f"{type(engine).__name__}: {name} must be {kind}, got {value!r}")


def _check(schedule: Any, *names: str) -> None:
    """Refuse fields that are no positive finite numbers, and a number of steps that is no integer."""
    kind = type(schedule).__name__
    for name in names:
        value = _plain(schedule, name)
        if not _is_number(value) or not math.isfinite(value) or value <= 0:
            raise ValueError(f"{kind}: {name} must be positive and finite, got {value!r}")
        if name == "num_steps" and not isinstance(value, int):
            raise TypeError(f"{kind}: num_steps must be an integer, got {value!r}")


def _plain(record: Any, name: str) -> Any:
    """The field, after a NumPy number in it became Python's, so that the record's repr can be evaluated."""
    value = getattr(record, name)
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        value = int(value) if isinstance(value, numbers.Integral) else float(value)
        object.__setattr__(record, name, value)
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
