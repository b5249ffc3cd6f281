"""Coordinates of a Dirichlet site that are right in float32 at any concentration: one real number an entry."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ptx.gamma_functions import lgamma
from ptx.masked_softmax import softmax


class LogGammaSimplex:
    """p = softmax(z) with z_k = log g_k, g_k ~ Gamma(alpha_k, 1) independent, so that p ~ Dirichlet(alpha).

    z = softplus(u) - softplus(-u) / alpha where alpha < 1, and z = u above: the long left tail of a log-gamma variate,
    e^(alpha z), becomes e^u, so that u has a scale of about one whatever alpha is. Unlike stick-breaking nothing is
    rounded at the ends: a z of -1000 is as good as one of -1. There is one coordinate more than degrees of freedom,
    the log of sum(g), which is independent of p and has a proper law. Entries that `where` excludes are 0 in p, and
    their coordinates follow Gamma(1, 1).

    `log_density(u)` is that of u, so log-Jacobian and prior in one; `inv` is a right inverse: `self(inv(p)) = p`, at
    sum(g) = sum(alpha).
    """

    def __init__(
        self, alpha: Float[Array, "... entries"], where: Bool[Array, "... entries"] | None = None
    ) -> None:
        self.alpha = alpha if where is None else jnp.where(where, alpha, 1)
        self.where = where

    def __call__(self, u: Float[Array, "... entries"]) -> Float[Array, "... entries"]:
        return softmax(self._log_gamma(u), self.where)

    def log_density(self, u: Float[Array, "... entries"]) -> Float[Array, "..."]:
        """log p(u) in nats, summed over the entries."""
        excess = jnp.maximum(1 / self.alpha - 1, 0)
        slope = jnp.log1p(excess * jax.nn.sigmoid(-u))
        small = self.alpha * jax.nn.softplus(u) - jax.nn.softplus(-u)
        scaled = jnp.where(self.alpha < 1, small, self.alpha * u)  # alpha z
        return jnp.sum(scaled - jnp.exp(self._log_gamma(u)) - lgamma(self.alpha) + slope, -1)

    def inv(self, p: Float[Array, "... entries"]) -> Float[Array, "... entries"]:
        """Coordinates of p; entries of 0 count as the smallest number."""
        alpha = self.alpha if self.where is None else jnp.where(self.where, self.alpha, 0)
        total = jnp.maximum(jnp.sum(jnp.broadcast_to(alpha, p.shape), -1, keepdims=True), 1e-3)
        z = jnp.log(jnp.maximum(p, jnp.finfo(p.dtype).tiny)) + jnp.log(total)
        if self.where is not None:
            z = jnp.where(self.where, z, 0)
        excess = jnp.maximum(1 / self.alpha - 1, 0)
        u = jnp.where(z < 0, z / (1 + excess), z)
        for _ in range(20):  # Newton's steps from the side where they cannot overshoot
            u = u - (self._log_gamma(u) - z) / (1 + excess * jax.nn.sigmoid(-u))
        return u

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """As many coordinates as entries."""
        return shape

    def _log_gamma(self, u: Any) -> Array:
        small = jax.nn.softplus(u) - jax.nn.softplus(-u) / self.alpha
        return jnp.where(self.alpha < 1, small, u)
