"""Checks at the door: concrete values from the user, before anything is traced."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def size(name: str, value: Any, least: int = 1) -> int:
    """`value` as an int of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(value)


def choice(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    """Raise unless `value` is one of `allowed`."""
    if not any(value is option or (isinstance(value, str) and value == option) for option in allowed):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def flag(name: str, value: Any) -> None:
    """Raise unless `value` is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")


def positive(name: str, value: Any) -> float:
    """`value` as a positive, finite float."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be positive and finite, got {value}")
    return float(value)


def array(name: str, values: Any, shape: tuple[int | str, ...]) -> np.ndarray:
    """`values` as a host array of `shape`, in which a name stands for any length of at least one."""
    found = np.asarray(values)
    fits = found.ndim == len(shape) and all(
        have > 0 if isinstance(want, str) else have == want
        for have, want in zip(found.shape, shape, strict=True)
    )
    if not fits:
        wanted = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
        raise ValueError(f"{name} must have shape ({wanted}) with no axis of length 0, got {found.shape}")
    return found


def finite(name: str, values: np.ndarray, valid: np.ndarray | None = None) -> None:
    """Raise unless `values` are real, finite and within JAX's default float wherever `valid` (leading axes) holds."""
    if not (_is_integer(values) or _is_floating(values)):
        raise TypeError(f"{name} must be real numbers, got dtype {values.dtype}")
    largest = float(jnp.finfo(jax.dtypes.canonicalize_dtype(float)).max)
    wrong = ~(np.abs(values.astype(np.float64)) <= largest)
    _refuse(
        name,
        values,
        wrong,
        valid,
        f"must be finite and at most {largest:.2g} in size",
        "repair or drop the row",
    )


def within(
    name: str, values: np.ndarray, upper: int, valid: np.ndarray | None = None, floats: bool = False
) -> None:
    """Raise unless `values` are whole numbers in [0, upper) wherever `valid` holds.

    floats: also take 1.0, of a floating dtype, but never 1.5.
    """
    if not (_is_integer(values) or (floats and _is_floating(values))):
        advice = (
            "cast booleans with .astype(int)" if values.dtype == bool else "cast them to an integer dtype"
        )
        raise TypeError(f"{name} must be integers in [0, {upper}), got dtype {values.dtype}; {advice}")
    if _is_floating(values):
        values = values.astype(np.float64)
        _refuse(name, values, values != np.floor(values), valid, "must be whole numbers", "round or relabel")
    wrong = ~((values >= 0) & (values < upper))
    _refuse(
        name,
        values,
        wrong,
        valid,
        f"must be in [0, {upper})",
        "a negative or too large index would silently pick another row",
    )


def _refuse(
    name: str, values: np.ndarray, wrong: np.ndarray, valid: np.ndarray | None, rule: str, advice: str
) -> None:
    if valid is not None:
        wrong = wrong & valid.reshape(valid.shape + (1,) * (wrong.ndim - valid.ndim))
    if not np.any(wrong):
        return
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    labels = ("row", "position", *(f"axis {axis}" for axis in range(2, len(index))))
    place = ", ".join(f"{label} {i}" for label, i in zip(labels, index, strict=False))
    raise ValueError(
        f"{name} {rule}: {place} holds {values[index]} ({int(np.sum(wrong))} such in all); {advice}"
    )


def _is_integer(values: np.ndarray) -> bool:
    return bool(jnp.issubdtype(values.dtype, jnp.integer))


def _is_floating(values: np.ndarray) -> bool:
    return bool(jnp.issubdtype(values.dtype, jnp.floating))
