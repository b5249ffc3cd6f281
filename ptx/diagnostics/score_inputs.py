"""What scores accept, checked once: class probabilities, labels, masks and draws of targets.

Every score that takes `probs` or `predictions` takes them averaged over draws, of shape (*rows, classes) or
(*rows,), or draw by draw with exactly two more axes in front, (chain, draw, ...). The shape of the labels or
targets tells which, so nothing is guessed, and draws are always averaged as probabilities.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

# float32 softmax sums to 1 within 1e-6; logits, log probabilities and unnormalised weights are far from it. Of 16-bit
# floats the spacing of numbers below 1 is allowed: rounding every probability moves the sum by half of it at most.
SUM_TOLERANCE = 1e-3


def class_positions(
    probs: Any, labels: Any, mask: Any = None
) -> tuple[Float[np.ndarray, "positions classes"], Int[np.ndarray, " positions"]]:
    """Probabilities averaged over draws, and labels, of the positions that count.

    Args:
        probs: (*rows, classes) or (chain, draw, *rows, classes); `rows` may be (rows, tokens).
        labels: integers 0 .. classes - 1 of shape (*rows,). Floats that are exact integers are taken as such.
        mask: bool of shape (*rows,), True where a position counts; values elsewhere are not looked at.

    Raises:
        ValueError: shapes that do not fit, nothing that counts, probabilities that are not finite, negative or do not
            sum to 1 within 1e-3 (bfloat16: 8e-3), one column only, labels that are no integers or out of range.
        TypeError: labels or probabilities that are no numbers, or a mask that is not bool.
    """
    tolerance = sum_tolerance(probs)
    labels, probs = numbers("labels", labels), numbers("probs", probs)
    if labels.ndim == 0 or labels.size == 0:
        raise ValueError(
            f"labels: expected at least one, as an array of shape (rows,); got shape {labels.shape}"
        )
    if probs.ndim == labels.ndim + 1 and probs.shape[:-1] == labels.shape:
        probs = probs[None, None]
    elif probs.ndim != labels.ndim + 3 or probs.shape[2:-1] != labels.shape:
        rows = _listed(labels.shape)
        raise ValueError(
            f"probs: got shape {probs.shape} for labels of shape {labels.shape}; expected ({rows}, classes) averaged "
            f"over draws, or (chain, draw, {rows}, classes)"
        )
    keep = positions("labels", labels.shape, mask)
    check_probabilities(probs, keep, tolerance)
    labels = _class_indices(labels, keep, probs.shape[-1])
    with np.errstate(invalid="ignore"):  # infinities where nothing counts
        averaged = probs.mean(axis=(0, 1), dtype=np.float64)
    return averaged[keep], labels[keep]


def check_probabilities(
    probs: Float[np.ndarray, "chain draw *rows classes"], keep: Bool[np.ndarray, " *rows"], tolerance: float
) -> None:
    """Refuse what is not a set of class probabilities, where `keep` is True."""
    if 0 in probs.shape:
        raise ValueError(
            f"probs: got shape {probs.shape}, which holds nothing; expected chains, draws and rows"
        )
    if probs.shape[-1] < 2:
        raise ValueError(
            f"probs: got {probs.shape[-1]} class; expected at least 2. For a binary model stack "
            "(1 - p, p) on the last axis"
        )
    with np.errstate(invalid="ignore", over="ignore"):
        sums = probs.sum(axis=-1, dtype=np.float64)
    # comparisons are False for NaN, so NaN counts as wrong
    wrong = ~((np.abs(sums - 1) <= tolerance) & (probs >= 0).all(axis=-1)) & keep
    if wrong.any():
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        where = index if probs.shape[:2] != (1, 1) else index[2:]
        raise ValueError(
            f"probs: at index {where} got {np.array2string(probs[index], threshold=6)}, which sums to "
            f"{sums[index]:.6g}; expected finite probabilities from 0 that sum to 1 over the last axis, not logits or "
            "log probabilities"
        )


def sum_tolerance(probs: Any) -> float:
    """How far from 1 the sum of probabilities given in this dtype may be."""
    dtype = np.asarray(probs).dtype
    return max(SUM_TOLERANCE, float(jnp.finfo(dtype).eps)) if dtype.name == "bfloat16" else SUM_TOLERANCE


def positions(name: str, shape: tuple[int, ...], mask: Any) -> Bool[np.ndarray, "..."]:
    """The mask, or all True; refuses a mask of another shape or type, and one that leaves nothing."""
    if mask is None:
        return np.ones(shape, bool)
    keep = np.asarray(mask)
    if keep.dtype != bool:
        raise TypeError(f"mask: expected bool, True where a position counts; got {keep.dtype}")
    if keep.shape != shape:
        raise ValueError(
            f"mask: got shape {keep.shape}; expected {shape}, one entry for each position of {name}"
        )
    if not keep.any():
        raise ValueError("mask: no position counts (all False); a mean over nothing is not defined")
    return keep


def draws_and_targets(
    predictions: Any, targets: Any, *, averaged: bool = False
) -> tuple[Float[np.ndarray, "draws *rows"], Float[np.ndarray, " *rows"]]:
    """Predictions with chains and draws on one leading axis, and targets, both float64 and finite.

    `averaged=True` also lets predictions of the targets' own shape through, as one draw.
    """
    predictions, targets = numbers("predictions", predictions), numbers("targets", targets)
    if targets.ndim == 0 or targets.size == 0:
        raise ValueError(
            f"targets: expected at least one, as an array of shape (rows,); got shape {targets.shape}"
        )
    if averaged and predictions.shape == targets.shape:
        predictions = predictions[None, None]
    if (
        predictions.ndim != targets.ndim + 2
        or predictions.shape[2:] != targets.shape
        or predictions.size == 0
    ):
        also = f", or {targets.shape} averaged over draws" if averaged else ""
        raise ValueError(
            f"predictions: got shape {predictions.shape} for targets of shape {targets.shape}; expected "
            f"(chain, draw, {_listed(targets.shape)}){also}"
        )
    for name, values in (("predictions", predictions), ("targets", targets)):
        if not np.isfinite(values).all():
            where = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
            raise ValueError(f"{name}: got {values[where]} at index {where}; expected finite numbers")
    return predictions.reshape(-1, *targets.shape).astype(np.float64), targets.astype(np.float64)


def numbers(name: str, values: Any) -> np.ndarray:
    """A real NumPy array; 16-bit floats become float32."""
    array = np.asarray(values)
    if array.dtype.name in ("bfloat16", "float16"):
        array = array.astype(np.float32)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name}: expected numbers, got dtype {array.dtype}")
    return array


def _listed(shape: tuple[int, ...]) -> str:
    return ", ".join(str(size) for size in shape)


def _class_indices(labels: np.ndarray, keep: np.ndarray, num_classes: int) -> Int[np.ndarray, "..."]:
    labels = np.where(keep, labels, 0)
    wrong = ~((labels >= 0) & (labels < num_classes) & (labels == np.floor(labels)))
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(
            f"labels: got {labels[where]} at index {where}; expected integers 0 to {num_classes - 1}, one for each "
            f"of the {num_classes} classes on the last axis of probs. Positions that do not count belong in mask"
        )
    return labels.astype(np.int64)
