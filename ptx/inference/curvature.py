"""Curvature of a log density at a point, and the Gaussian it stands for."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def covariance_factor(
    log_density: Callable[[Float[Array, "size"]], Float[Array, ""]], point: Float[Array, "size"]
) -> tuple[Float[Array, "size size"], Int[Array, ""]]:
    """F with F F' = P^-1 for P = -(Hessian of the log density at the point), and how many directions were damped.

    With P = V diag(l) V', F = V diag(max(l, size * eps * max |l|))^(-1/2). An eigenvalue below the bound cannot be
    told from zero in this precision, or the point is no maximum along it; raised to the bound, it gives that
    direction a wide and finite spread. The bound is the rank tolerance of numpy.linalg.matrix_rank.

    Cost: `size` gradients' products with a vector, one at a time, so memory is that of one and the matrix; size^3.
    """
    gradient = jax.grad(log_density)

    def column(direction: Float[Array, "size"]) -> Float[Array, "size"]:
        return jax.jvp(gradient, (point,), (direction,))[1]

    hessian = jax.lax.map(column, jnp.eye(point.size, dtype=point.dtype))
    eigenvalues, vectors = jnp.linalg.eigh(-(hessian + hessian.T) / 2)
    limits = jnp.finfo(point.dtype)
    bound = jnp.maximum(point.size * limits.eps * jnp.max(jnp.abs(eigenvalues)), limits.tiny)
    damped = jnp.sum(eigenvalues < bound)
    return vectors / jnp.sqrt(jnp.maximum(eigenvalues, bound)), damped.astype(jnp.int32)
