"""Softmaxes and sums along attention rows, over the allowed keys; what XLA would compute once a key is `written`."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ptx.written import written

LEAST = math.log(1e-6)  # of the log of a key's mean weight, beside an average of 0

Scores = Float[Array, "row head query key"]


def log_mean(mean: Array) -> Array:
    """Of an average of 1, kept finite where a key has none."""
    return jnp.log(jnp.maximum(mean, math.exp(LEAST)))


def log_rows_of(scores: Scores, where: Any) -> Scores:
    """log K S, with S the softmax over the K allowed keys, kept above LEAST; 0 where masked."""
    if where is None:
        shifted = scores - written(jax.lax.stop_gradient(jnp.max(scores, -1, keepdims=True)))
        log_rows = shifted - jnp.log(written(jnp.mean(jnp.exp(shifted), -1, keepdims=True)))
        return jnp.maximum(log_rows, LEAST)
    scores = jnp.where(where, scores, 0)
    highest = jax.lax.stop_gradient(jnp.max(jnp.where(where, scores, -jnp.inf), -1, keepdims=True))
    shifted = scores - written(jnp.where(jnp.isfinite(highest), highest, 0))
    mean = written(jnp.sum(jnp.where(where, jnp.exp(shifted), 0), -1, keepdims=True)) / jnp.maximum(
        jnp.sum(where, -1, keepdims=True), 1
    )
    log_rows = shifted - jnp.log(jnp.where(mean > 0, mean, 1))
    return jnp.where(where, jnp.maximum(log_rows, LEAST), 0)


def without_padding(mask: Array) -> Bool[Array, "#row 1 query key"]:
    """The mask without rows of padding, on which nothing depends: a query that may not look at itself is none."""
    length = mask.shape[-1]
    mask = jnp.broadcast_to(mask, (*mask.shape[:2], length, length))
    return mask & jnp.diagonal(mask, axis1=2, axis2=3)[..., None]


def several(shape: tuple[int, ...], where: Any) -> Any:
    """The entries that count: those of rows with more than one allowed key."""
    if where is None:
        return None if shape[-1] > 1 else jnp.zeros(shape, bool)
    return where & (jnp.sum(where, -1, keepdims=True) > 1)


def row_softmax(logits: Array, where: Any) -> Array:
    """Over the allowed keys; zeros where there is none."""
    allowed = logits if where is None else jnp.where(where, logits, -jnp.inf)
    highest = jax.lax.stop_gradient(jnp.max(allowed, -1, keepdims=True))
    return normalised(jnp.exp(allowed - written(jnp.where(jnp.isfinite(highest), highest, 0))), where)


def normalised(weights: Array, where: Any) -> Array:
    """w / sum w over the allowed keys; zeros where there is none."""
    weights = weights if where is None else jnp.where(where, weights, 0)
    total = jnp.sum(weights, -1, keepdims=True)
    return weights * written(1 / (total if where is None else jnp.where(total > 0, total, 1)))
