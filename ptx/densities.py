"""What the distribution of one site says of its value: log densities, class probabilities, support."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import Distribution

Message = dict[str, Any]


def total(values: jax.Array) -> jax.Array:
    """Sum of all entries, accumulated in float32 or wider."""
    values = jnp.asarray(values)
    return jnp.sum(values, dtype=jnp.promote_types(values.dtype, jnp.float32))


def log_prob(msg: Message) -> jax.Array:
    """The site's log density at its value, in nats, scaled as the program asks, batch shape kept.

    Raises TypeError where the value's dtype is not one that the distribution can score, as float labels of a class.
    """
    try:
        value = _log_prob(msg["fn"], msg["value"])
    except TypeError as error:
        raise TypeError(
            f"site '{msg['name']}': {type(base(msg['fn'])).__name__} cannot score a value of dtype "
            f"{jnp.result_type(msg['value'])} ({error}); cast labels and counts to integers"
        ) from error
    return value if msg["scale"] is None else msg["scale"] * value


def _log_prob(fn: Distribution, value: jax.Array) -> jax.Array:
    """As the distribution's own; but entries of half precision that `to_event` sums are summed in float32."""
    if isinstance(fn, dist.Independent):
        entries = _log_prob(fn.base_dist, value)
        if jnp.finfo(entries.dtype).bits < 32:
            axes = tuple(range(entries.ndim - fn.reinterpreted_batch_ndims, entries.ndim))
            return jnp.sum(entries, axes, jnp.float32)
    return jnp.asarray(fn.log_prob(value))


def log_prob_by_entry(msg: Message) -> jax.Array:
    """As `log_prob`, before `to_event` sums entries of a batch; entries masked out are exactly zero."""
    value = _by_entry(msg["fn"], msg["value"])
    return value if msg["scale"] is None else msg["scale"] * value


def _by_entry(fn: Distribution, value: jax.Array) -> jax.Array:
    if isinstance(fn, dist.Independent):
        return _by_entry(fn.base_dist, value)
    if isinstance(fn, dist.MaskedDistribution):
        log_prob = _by_entry(fn.base_dist, value)
        return jnp.where(_entry_mask(fn, log_prob.ndim), log_prob, 0.0)
    if isinstance(fn, dist.ExpandedDistribution):
        log_prob = _by_entry(fn.base_dist, value)
        batch_shape = fn.batch_shape + (1,) * (log_prob.ndim - len(fn.batch_shape))
        return jnp.broadcast_to(log_prob, jnp.broadcast_shapes(batch_shape, log_prob.shape))
    return jnp.asarray(fn.log_prob(value))


def _entry_mask(fn: dist.MaskedDistribution, ndim: int) -> jax.Array:
    """The mask over the leading axes of an array with one value an entry."""
    mask = jnp.broadcast_to(jnp.asarray(fn._mask, bool), fn.batch_shape)
    return mask.reshape(mask.shape + (1,) * (ndim - mask.ndim))


def class_probabilities(msg: Message) -> jax.Array | None:
    """Probabilities of a categorical site, classes on a new last axis; of a Bernoulli site, those of 0 and 1.

    In float32 or wider; None for any other distribution.
    """
    fn = base(msg["fn"])
    if isinstance(fn, (dist.CategoricalLogits, dist.BernoulliLogits)):
        logits = _wide(fn.logits)
        binary = isinstance(fn, dist.BernoulliLogits)
        # sigmoid(-x) keeps the digits that 1 - sigmoid(x) loses
        probs = jax.nn.sigmoid(jnp.stack([-logits, logits], -1)) if binary else jax.nn.softmax(logits, -1)
    elif isinstance(fn, dist.CategoricalProbs):
        probs = _wide(fn.probs)
        if jnp.asarray(fn.probs).dtype != probs.dtype:  # rounding to 16 bits moved their sum
            probs /= probs.sum(-1, keepdims=True)
    elif isinstance(fn, dist.BernoulliProbs):
        probs = _wide(fn.probs)
        probs = jnp.stack([1 - probs, probs], -1)
    else:
        return None
    return jnp.broadcast_to(probs, (*msg["fn"].shape(), probs.shape[-1]))


def _wide(values: Any) -> jax.Array:
    array = jnp.asarray(values)
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))


def base(fn: Distribution) -> Distribution:
    """The distribution under expand, to_event and mask."""
    while isinstance(fn, (dist.ExpandedDistribution, dist.Independent, dist.MaskedDistribution)):
        fn = fn.base_dist
    return fn


def is_proper(fn: Distribution) -> bool:
    """False for an improper uniform and for a distribution masked out with `mask(False)`."""
    while isinstance(fn, (dist.ExpandedDistribution, dist.Independent, dist.MaskedDistribution)):
        if isinstance(fn, dist.MaskedDistribution) and fn._mask is False:
            return False
        fn = fn.base_dist
    return not isinstance(fn, dist.ImproperUniform)


def is_factor(msg: Message) -> bool:
    """A `numpyro.factor` site."""
    return msg["type"] == "sample" and isinstance(base(msg["fn"]), dist.Unit)


def in_support(msg: Message) -> jax.Array:
    """Which observed entries lie in the support of their distribution; entries masked out count as inside."""
    return _inside(msg["fn"], msg["value"])


def _inside(fn: Distribution, value: jax.Array) -> jax.Array:
    if isinstance(fn, (dist.Independent, dist.ExpandedDistribution)):
        return _inside(fn.base_dist, value)
    if isinstance(fn, dist.MaskedDistribution):
        inside = _inside(fn.base_dist, value)
        return inside | ~_entry_mask(fn, inside.ndim)
    support: Any = fn.support
    return jnp.asarray(support(value))
