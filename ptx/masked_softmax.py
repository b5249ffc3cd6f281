"""The softmax over allowed keys, right where none is allowed."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def softmax(
    scores: Float[Array, "*batch query key"], mask: Bool[Array, "*#batch #query key"] | None = None
) -> Float[Array, "*batch query key"]:
    """p_k = mask_k exp(s_k) / sum_j mask_j exp(s_j), in float32 or better.

    Masked keys get exactly zero. A query with no key left gets zeros throughout, with zero gradient, where a
    softmax over -inf would give NaN and spread it through every gradient.
    """
    scores = scores.astype(jnp.promote_types(scores.dtype, jnp.float32))
    if mask is None:
        return jax.nn.softmax(scores, axis=-1)
    scores = jnp.where(mask, scores, jnp.finfo(scores.dtype).min)
    highest = jax.lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True))
    unnormalised = jnp.where(mask, jnp.exp(scores - highest), 0.0)
    total = jnp.sum(unnormalised, axis=-1, keepdims=True)
    return unnormalised / jnp.where(total > 0, total, 1.0)
