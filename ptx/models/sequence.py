"""Pure functions along the token axis: positions and pooling."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float


def sinusoids(length: int, width: int) -> Float[Array, "position embed"]:
    """sin(t / 10000^(i / width)) at even dimensions i, cos(t / 10000^((i - 1) / width)) at odd ones."""
    dimension = np.arange(width)
    angle = np.arange(length)[:, None] / 10000.0 ** (dimension // 2 * 2 / width)[None, :]
    return jnp.asarray(np.where(dimension % 2 == 0, np.sin(angle), np.cos(angle)))


def pool(
    hidden: Float[Array, "row token embed"], mask: Bool[Array, "row token"] | None, pooling: str
) -> Float[Array, "row embed"]:
    """Mean, first or last over the positions that the mask keeps; zeros where it keeps none."""
    length = hidden.shape[1]
    if mask is None:
        mask = jnp.ones(hidden.shape[:2], bool)
    if pooling == "mean":
        kept = mask
    else:
        place = (
            jnp.argmax(mask, axis=1) if pooling == "first" else length - 1 - jnp.argmax(mask[:, ::-1], axis=1)
        )
        kept = mask & (jnp.arange(length)[None, :] == place[:, None])
    count = jnp.maximum(jnp.sum(kept, axis=1), 1)[:, None].astype(hidden.dtype)
    return jnp.sum(jnp.where(kept[:, :, None], hidden, 0.0), axis=1) / count
