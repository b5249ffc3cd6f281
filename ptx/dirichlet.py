"""The Dirichlet distribution over the last axis, from log-gamma variates: whole arrays, masks, small concentrations."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ptx.gamma import log_gamma
from ptx.written import written

# The smallest concentration taken: log-gamma variates of this shape are about -1000, 1e-4 apart in float32.
SMALLEST = 1e-3


def dirichlet(
    rng_key: PRNGKeyArray,
    concentration: Float[Array, "*batch entries"],
    where: Bool[Array, "*batch entries"] | None = None,
) -> Float[Array, "*batch entries"]:
    """Probabilities p = g / sum(g) with g_k ~ Gamma(alpha_k, 1): Dirichlet(alpha) over the last axis.

    `where` (broadcast against the concentration) says which entries are on the simplex: the others are exactly 0 and
    their concentration is neither looked at nor given a derivative. One allowed entry has probability 1; a row with
    none is all zeros. An entry too small for its dtype is 0, and then counts for nothing in the derivative either;
    `log_dirichlet` keeps it. The derivative is the implicit reparameterisation gradient of `log_gamma`.

    Raises ValueError for an allowed concentration that is not finite or is below SMALLEST = 1e-3; where values are
    not known (under jit, grad and vmap) the row is nan instead.
    """
    z = _log_weights(rng_key, concentration, where)
    weights = jnp.exp(z - written(_greatest(z)))
    total = jnp.sum(weights, -1, keepdims=True)
    return weights * written(1 / (total if where is None else jnp.where(total == 0, 1, total)))


def log_dirichlet(
    rng_key: PRNGKeyArray,
    concentration: Float[Array, "*batch entries"],
    where: Bool[Array, "*batch entries"] | None = None,
) -> Float[Array, "*batch entries"]:
    """The logarithms of what `dirichlet` gives for the same key, z - logsumexp(z), right where p underflows.

    Entries that `where` excludes are -inf, with derivative 0; a row with none allowed is all -inf.
    Raises as `dirichlet` does.
    """
    z = _log_weights(rng_key, concentration, where)
    shifted = z - written(_greatest(z))
    total = written(jnp.sum(jnp.exp(shifted), -1, keepdims=True))
    return shifted - jnp.log(total if where is None else jnp.where(total == 0, 1, total))


class Dirichlet(dist.Dirichlet):
    """`numpyro.distributions.Dirichlet`, sampled by `dirichlet`: densities, moments and KL are NumPyro's.

    As in NumPyro a sample is kept inside the open simplex: an entry of 0 becomes the smallest positive number.
    """

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of shape `sample_shape + batch_shape + event_shape`. Raises as `dirichlet` does."""
        shape = tuple(sample_shape) + self.batch_shape + self.event_shape
        draws = dirichlet(key, jnp.broadcast_to(self.concentration, shape))
        limits = jnp.finfo(draws.dtype)
        return jnp.clip(draws, limits.tiny, 1 - limits.epsneg)


def _log_weights(rng_key: PRNGKeyArray, concentration: Any, where: Any) -> Array:
    """Log-gamma variates, -inf where not allowed."""
    alpha = jnp.asarray(concentration)
    if alpha.ndim == 0:
        raise ValueError(
            "expected a concentration with an axis of entries (its last), got a scalar; give one value per entry"
        )
    allowed = None if where is None else jnp.broadcast_to(_mask(where), alpha.shape)
    if allowed is not None:
        alpha = jnp.where(allowed, alpha, 1)
    _refuse(alpha)
    z = log_gamma(rng_key, alpha, least=SMALLEST)
    return z if allowed is None else jnp.where(allowed, z, -jnp.inf)


def _mask(where: Any) -> Array:
    mask = jnp.asarray(where)
    if mask.dtype != bool:
        raise TypeError(
            f"expected a boolean where, got {mask.dtype}; compare with what marks an allowed entry"
        )
    return mask


def _refuse(alpha: Array) -> None:
    if isinstance(alpha, Tracer):
        return
    refused = alpha[~((alpha >= SMALLEST) & (alpha < math.inf))]
    if refused.size:
        raise ValueError(
            f"expected finite concentrations of at least {SMALLEST}, got {float(refused[0])} and "
            f"{refused.size - 1} others; add a floor to the concentration, or exclude the entry by where"
        )


def _greatest(z: Array) -> Array:
    """The greatest z of each row, 0 where none is allowed: a constant to the derivative."""
    greatest = jnp.max(jax.lax.stop_gradient(z), -1, keepdims=True)
    return jnp.where(greatest == -jnp.inf, 0, greatest)
