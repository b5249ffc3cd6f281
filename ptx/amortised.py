"""Latents that belong to a row and carry their own posterior q: drawn from it in the same pass as the density."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from numpyro.distributions import Delta, Distribution, MaskedDistribution, kl_divergence

from ptx.simplex import bijection

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


def plain(model: Any) -> Any:
    """The model without `Amortised` around it."""
    return model.model if isinstance(model, Amortised) else model


def is_amortised(msg: Message) -> bool:
    """A sample site that carries its own posterior."""
    return msg["type"] == "sample" and msg["infer"].get("amortised") is not None


class Probe(NamedTuple):
    """In place of a key: values of latents of the rows that depend on the number of the row alone, different for every
    row, so that rows evaluated together and one by one meet the same ones. `axes` has each site's row axis."""

    row: jax.Array
    axes: tuple[tuple[str, int], ...]

    def value(self, msg: Message) -> jax.Array | None:
        """Of this site; None where it is not among the axes."""
        axis = dict(self.axes).get(msg["name"])
        if axis is None:
            return None
        transform = bijection(msg["fn"].support)
        shape = transform.inverse_shape(msg["fn"].shape())
        rest = (*shape[:axis], *shape[axis + 1 :])
        keys = jax.vmap(lambda row: jax.random.fold_in(jax.random.key(0), row))(self.row)
        rows = jax.vmap(lambda key: jax.random.normal(key, rest))(keys)
        return transform(jnp.moveaxis(rows, 0, axis))


def integrate(msg: Message, source: Any) -> None:
    """Turn the site into an observed one of log density -KL(q, prior), at a draw of q (`source` is a key), at its mean
    (None), or at what a `Probe` gives."""
    q, prior = msg["infer"]["amortised"], msg["fn"]
    _require_draws(msg["name"], q)
    if q.batch_shape != prior.batch_shape or q.event_shape != prior.event_shape:
        raise ValueError(
            f"site '{msg['name']}': its amortised posterior has batch and event shape {q.batch_shape}, "
            f"{q.event_shape}, its prior {prior.batch_shape}, {prior.event_shape}; give both the same"
        )
    value = source.value(msg) if isinstance(source, Probe) else None
    if value is None:
        at_mean = source is None or isinstance(source, Probe)
        value = _mean(msg["name"], q) if at_mean else jnp.asarray(q.sample(source))
    kl = jnp.broadcast_to(_kl(q, prior, value), prior.batch_shape)
    msg["fn"] = _Integrated(value, -kl, event_dim=prior.event_dim, validate_args=False)
    msg["value"], msg["is_observed"] = value, True


def _kl(q: Any, prior: Any, value: jax.Array) -> jax.Array:
    """KL(q, prior) in nats where a closed form is known, else its unbiased estimate from the draw; 0 where masked."""
    if isinstance(prior, MaskedDistribution):
        return jnp.where(jnp.asarray(prior._mask, bool), _kl(q, prior.base_dist, value), 0.0)
    if hasattr(q, "kl_at"):
        return q.kl_at(value, prior)
    try:
        return jnp.asarray(kl_divergence(q, prior))
    except NotImplementedError:
        return jnp.asarray(q.log_prob(value) - prior.log_prob(value))


def leave_out(msg: Message) -> None:
    """A parameter of q where q is not used: a constant that no trace shows."""
    fn = msg["fn"]
    try:
        value = fn.mean
    except NotImplementedError:
        value = fn.support.feasible_like(jnp.zeros(fn.shape()))
    msg["value"], msg["stop"] = jnp.asarray(value), True


def _require_draws(name: str, q: Any) -> None:
    if not isinstance(q, Distribution) or not q.has_rsample:
        raise ValueError(
            f"site '{name}': its amortised posterior, {type(q).__name__}, is no distribution whose draws follow its "
            "parameters (has_rsample), as their gradient needs; use a reparameterised one, such as Normal or Gamma"
        )


def _mean(name: str, q: Any) -> jax.Array:
    try:
        return jnp.asarray(q.mean)
    except NotImplementedError:
        raise ValueError(
            f"site '{name}': its amortised posterior, {type(q).__name__}, knows no mean, which is needed where no draw "
            "is meant; use a distribution with one"
        ) from None
