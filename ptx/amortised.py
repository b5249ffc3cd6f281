"""Latents that belong to a row and carry their own posterior q: drawn from it in the same pass as the density."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import Delta, kl_divergence

Message = dict[str, Any]


@dataclass(frozen=True)
class Amortised:
    """The model with its sites of infer={"amortised": q} integrated by q, as variational inference does.

    Each such site takes a draw of q, or q's mean where no key is given, and is an observed site from then on, whose log
    density is -KL(q, prior), one entry a batch member: the sum with the log likelihood, in expectation over q, bounds
    log p(targets | what else is latent) from below, row by row. Sites of infer={"amortised_only": True}, parameters of
    q, are latents here, and are left out where the model is lowered without this.
    """

    model: Callable

    def __call__(self, inputs: Any, targets: Any = None) -> Any:
        """Run the model."""
        return self.model(inputs, targets)

    def __getattr__(self, name: str) -> Any:
        if name == "model":  # not set yet
            raise AttributeError(name)
        return getattr(self.model, name)


class _Integrated(Delta):
    """A value that is fixed, with a log density; Delta's own would compare it with itself, entry by entry."""

    def log_prob(self, value: Any) -> Any:
        return self.log_density


def is_amortised(msg: Message) -> bool:
    """A sample site that carries its own posterior."""
    return msg["type"] == "sample" and msg["infer"].get("amortised") is not None


def integrate(msg: Message, rng_key: jax.Array | None) -> None:
    """Turn the site into an observed one at a draw of q, or its mean, of log density -KL(q, prior)."""
    q, prior = msg["infer"]["amortised"], msg["fn"]
    if q.batch_shape != prior.batch_shape or q.event_shape != prior.event_shape:
        raise ValueError(
            f"site '{msg['name']}': its amortised posterior has batch and event shape {q.batch_shape}, "
            f"{q.event_shape}, its prior {prior.batch_shape}, {prior.event_shape}; give both the same"
        )
    value = jnp.asarray(q.mean if rng_key is None else q.sample(rng_key))
    kl = jnp.broadcast_to(_kl(q, prior, value), prior.batch_shape)
    msg["fn"] = _Integrated(value, -kl, event_dim=prior.event_dim)
    msg["value"], msg["is_observed"] = value, True


def _kl(q: Any, prior: Any, value: jax.Array) -> jax.Array:
    """KL(q, prior) in nats where a closed form is known, else its unbiased estimate from the draw."""
    if hasattr(q, "kl_at"):
        return q.kl_at(value, prior)
    try:
        return jnp.asarray(kl_divergence(q, prior))
    except NotImplementedError:
        return jnp.asarray(q.log_prob(value) - prior.log_prob(value))


def leave_out(msg: Message) -> None:
    """A parameter of q where q is not used: a constant that no trace shows."""
    msg["value"], msg["stop"] = jnp.asarray(msg["fn"].mean), True
