"""What the likelihoods share: the observed site, its noise scale and the shape of its targets."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float

from ptx.models import checks
from ptx.models.network import Weight
from ptx.models.priors import Prior, as_prior, by_site

Outputs = Float[Array, "row *token output"]
Valid = Bool[Array, "row token"] | Bool[Array, " row"] | None


def observe(distribution: dist.Distribution, targets: Array | None, valid: Valid) -> None:
    """Site `targets` with one independent term per row; entries where `valid` is False count exactly zero."""
    if valid is not None:
        distribution = distribution.to_event(len(distribution.batch_shape) - valid.ndim).mask(valid)
        if targets is not None:
            # A target under the mask may be anything; give it a value that lies in every support.
            kept = valid.reshape(valid.shape + (1,) * (targets.ndim - valid.ndim))
            targets = jnp.where(kept, targets, jnp.zeros((), targets.dtype))
    distribution = distribution.to_event(len(distribution.batch_shape) - 1)
    with numpyro.plate("rows", distribution.batch_shape[0], dim=-1):
        numpyro.sample("targets", distribution, obs=targets)


def noise(scale: float | Prior) -> Any:
    """The noise scale: the number itself, or a draw of site `noise_scale` from its prior."""
    return numpyro.sample("noise_scale", scale(Weight((), ()))) if callable(scale) else scale


def check_noise(scale: Any) -> float | Prior:
    """A positive number, or a prior over positive numbers."""
    if not callable(scale) and not isinstance(scale, by_site):
        return checks.positive("scale", scale)
    prior = as_prior(scale)
    if isinstance(prior, by_site):
        raise TypeError("a noise scale takes one prior, such as priors.half_normal(), not by_site")
    support = prior(Weight((), ())).support
    if any(bool(support(value)) for value in (-1e6, -1.0, -1e-6)):
        raise ValueError(
            f"a noise scale needs a prior on positive numbers, as priors.half_normal() is; got {prior!r}"
        )
    return prior


def require_classes(shape: tuple[int, ...]) -> None:
    """Raise unless outputs of `shape` hold a logit for each of two or more classes."""
    if shape[-1] < 2:
        raise ValueError(
            "categorical needs num_outputs >= 2; for one logit per row use likelihoods.bernoulli"
        )


def shaped(targets: Any, shape: tuple[int, ...], kind: str) -> np.ndarray:
    """`targets` on the host, of exactly `shape`."""
    found = np.asarray(targets)
    if found.shape != shape:
        advice = "; use targets[..., 0]" if found.shape == (*shape, 1) else ""
        raise ValueError(
            f"{kind} must have shape {shape}, as the network's outputs ask, got {found.shape}{advice}"
        )
    return found


def drop_single(axes: tuple[Any, ...], num_outputs: int) -> tuple[Any, ...]:
    """The axes of real targets: those of the outputs, without an output axis of length 1."""
    return axes[:-1] if num_outputs == 1 else axes


def squeeze(outputs: Outputs) -> Array:
    """Outputs without an output axis of length 1."""
    return outputs[..., 0] if outputs.shape[-1] == 1 else outputs


def real(targets: Any, outputs: Array) -> Array | None:
    """Targets in the dtype of the outputs."""
    return None if targets is None else jnp.asarray(targets).astype(outputs.dtype)


def at_least_float32(outputs: Array) -> Array:
    """Outputs in float32, or as they are if wider, so that log densities are not rounded to bfloat16."""
    return outputs.astype(jnp.promote_types(outputs.dtype, jnp.float32))
