"""Runs NumPyro programs: the one file, beside a model's own sampling, that opens NumPyro's handlers."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from numpyro import handlers
from numpyro.distributions import Distribution, biject_to
from numpyro.primitives import Messenger

import numpyro.distributions as dist

Message = dict[str, Any]
Assign = Callable[[Message], Any]


class Latent(NamedTuple):
    """A latent site met in a run: its distribution, value, unconstrained value and log |d value / d unconstrained|."""

    message: Message
    unconstrained: jax.Array
    log_jacobian: jax.Array


class _Assign(Messenger):
    """Gives every latent site the unconstrained value that `assign(message)` returns, mapped to its support."""

    def __init__(self, fn: Callable, assign: Assign) -> None:
        super().__init__(fn)
        self.assign = assign
        self.latents: dict[str, Latent] = {}

    def process_message(self, msg: Message) -> None:
        _refuse_unsupported(msg)
        if msg["type"] != "sample" or msg["is_observed"] or msg["value"] is not None:
            return
        unconstrained = self.assign(msg)
        if unconstrained is None:  # a site left free: the handler above draws it
            return
        transform = _transform(msg)
        msg["value"] = transform(unconstrained)
        log_jacobian = transform.log_abs_det_jacobian(unconstrained, msg["value"])
        self.latents[msg["name"]] = Latent(msg, unconstrained, total(log_jacobian))


def run(
    model: Callable, inputs: Any, targets: Any, assign: Assign, rng_key: jax.Array | None = None
) -> tuple[dict[str, Message], dict[str, Latent]]:
    """Run the program once; return its trace and what was assigned to its latent sites.

    Sites that `assign` leaves free (it returns None) are drawn with `rng_key`. Nothing leaks to handlers outside.
    """
    assigned = _Assign(model, assign)
    program = assigned if rng_key is None else handlers.seed(assigned, rng_key)
    with handlers.block():
        trace = handlers.trace(program).get_trace(inputs, targets)
    return trace, assigned.latents


def run_guide(guide: Callable, rng_key: jax.Array, parameters: dict[str, Any]) -> dict[str, Message]:
    """The trace of a guide at given parameters (the others start), its samples drawn with `rng_key`."""
    return isolated(handlers.trace(handlers.substitute(handlers.seed(guide, rng_key), data=parameters)).get_trace)


def isolated(fn: Callable, *args: Any) -> Any:
    """`fn(*args)`, its sites hidden from handlers outside."""
    with handlers.block():
        return fn(*args)


class _Freed(Messenger):
    """Frees observed sites, so that they are drawn; sites with a value in `values` are observed at it instead."""

    def __init__(self, fn: Callable, batch_shapes: dict[str, tuple[int, ...]], values: dict[str, Any]) -> None:
        super().__init__(fn)
        self.batch_shapes = batch_shapes
        self.values = values

    def process_message(self, msg: Message) -> None:
        if msg["type"] != "sample" or is_factor(msg):
            return
        # Without a plate or data a site forgets the rows, and one draw would stand for all of them.
        batch_shape = jnp.broadcast_shapes(msg["fn"].batch_shape, self.batch_shapes.get(msg["name"], ()))
        if batch_shape != msg["fn"].batch_shape:
            msg["fn"] = msg["fn"].expand(batch_shape)
        if msg["name"] in self.values:
            msg["value"], msg["is_observed"] = self.values[msg["name"]], True
        elif msg["is_observed"]:
            msg["value"], msg["is_observed"] = None, False


def freed(model: Callable, batch_shapes: dict[str, tuple[int, ...]], values: dict[str, Any]) -> Callable:
    """The program with its observed sites free to be drawn, expanded to `batch_shapes`, or observed at `values`."""
    return _Freed(model, batch_shapes, values)


def from_position(position: dict[str, jax.Array]) -> Assign:
    """Assign the values of a position; other sites stay free."""
    return lambda msg: position.get(msg["name"])


def from_values(values: dict[str, Any]) -> Assign:
    """Assign constrained values."""
    return lambda msg: _transform(msg).inv(jnp.asarray(values[msg["name"]], jnp.result_type(float)))


def from_prior(rng_key: jax.Array) -> Assign:
    """Assign a draw of each site's own distribution, given the sites above it."""
    keys = _keys(rng_key)
    return lambda msg: _transform(msg).inv(msg["fn"].sample(next(keys)))


def from_start(rng_key: jax.Array, radius: float = 2.0) -> Assign:
    """Assign uniform(-radius, radius) unconstrained values; prior draws where the site says `init: prior`."""
    keys = _keys(rng_key)

    def assign(msg: Message) -> jax.Array:
        transform = _transform(msg)
        if msg["infer"].get("init") == "prior":
            return transform.inv(msg["fn"].sample(next(keys)))
        shape = transform.inverse_shape(msg["fn"].shape())
        return jax.random.uniform(next(keys), shape, minval=-radius, maxval=radius)

    return assign


def _transform(msg: Message) -> Any:
    """The bijection from the reals to the site's support."""
    if msg["fn"].support.is_discrete:
        raise ValueError(
            f"site '{msg['name']}': a discrete latent ({type(base(msg['fn'])).__name__}); no engine of ptx samples these. "
            "Sum it out (for a mixture: numpyro.distributions.MixtureSameFamily), or condition on it"
        )
    return biject_to(msg["fn"].support)


def _keys(rng_key: jax.Array):
    while True:
        rng_key, key = jax.random.split(rng_key)
        yield key


def total(values: jax.Array) -> jax.Array:
    """Sum of all entries, accumulated in float32 or wider."""
    values = jnp.asarray(values)
    return jnp.sum(values, dtype=jnp.promote_types(values.dtype, jnp.float32))


def log_prob(msg: Message) -> jax.Array:
    """The site's log density at its value, in nats, scaled as the program asks, batch shape kept."""
    value = msg["fn"].log_prob(msg["value"])
    return value if msg["scale"] is None else msg["scale"] * value


def log_prob_by_entry(msg: Message) -> jax.Array:
    """As `log_prob`, before `to_event` sums entries of a batch; entries masked out are exactly zero."""
    value = _by_entry(msg["fn"], msg["value"])
    return value if msg["scale"] is None else msg["scale"] * value


def _by_entry(fn: Distribution, value: jax.Array) -> jax.Array:
    if isinstance(fn, dist.Independent):
        return _by_entry(fn.base_dist, value)
    if isinstance(fn, dist.MaskedDistribution):
        log_prob = _by_entry(fn.base_dist, value)
        mask = jnp.broadcast_to(jnp.asarray(fn._mask, bool), fn.batch_shape)
        return jnp.where(mask.reshape(mask.shape + (1,) * (log_prob.ndim - mask.ndim)), log_prob, 0.0)
    if isinstance(fn, dist.ExpandedDistribution):
        log_prob = _by_entry(fn.base_dist, value)
        batch_shape = fn.batch_shape + (1,) * (log_prob.ndim - len(fn.batch_shape))
        return jnp.broadcast_to(log_prob, jnp.broadcast_shapes(batch_shape, log_prob.shape))
    return fn.log_prob(value)


def class_probabilities(msg: Message) -> jax.Array | None:
    """Probabilities of a categorical site, classes on a new last axis; of a Bernoulli site, those of 0 and 1.

    In float32 or wider; None for any other distribution.
    """
    fn = base(msg["fn"])
    if isinstance(fn, (dist.CategoricalLogits, dist.BernoulliLogits)):
        logits = fn.logits.astype(jnp.promote_types(fn.logits.dtype, jnp.float32))
        binary = isinstance(fn, dist.BernoulliLogits)
        # sigmoid(-x) keeps the digits that 1 - sigmoid(x) loses
        probs = jax.nn.sigmoid(jnp.stack([-logits, logits], -1)) if binary else jax.nn.softmax(logits, -1)
    elif isinstance(fn, dist.CategoricalProbs):
        probs = fn.probs
    elif isinstance(fn, dist.BernoulliProbs):
        probs = jnp.stack([1 - fn.probs, fn.probs], -1)
    else:
        return None
    return jnp.broadcast_to(probs, (*msg["fn"].shape(), probs.shape[-1]))


def is_latent(msg: Message) -> bool:
    """A sample site that no data fixes."""
    return msg["type"] == "sample" and not msg["is_observed"]


def is_factor(msg: Message) -> bool:
    """A `numpyro.factor` site."""
    return msg["type"] == "sample" and isinstance(base(msg["fn"]), dist.Unit)


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


def in_support(msg: Message) -> jax.Array:
    """Which observed values lie in the support of their distribution; entries masked out count as inside."""
    fn = msg["fn"]
    inside = fn.support(msg["value"])
    while isinstance(fn, (dist.ExpandedDistribution, dist.Independent, dist.MaskedDistribution)):
        if isinstance(fn, dist.MaskedDistribution):
            inside = inside | ~jnp.asarray(fn._mask, bool)
        fn = fn.base_dist
    return inside


def _refuse_unsupported(msg: Message) -> None:
    name, kind = msg.get("name"), msg["type"]
    if kind == "plate" and msg["args"][1] not in (None, msg["args"][0]):
        raise ValueError(
            f"plate '{name}': subsamples {msg['args'][1]} of {msg['args'][0]} rows; write the plate over all rows it is "
            "given and set batch_size on an engine that takes minibatches (SVI, MAP, SGLD, SGHMC)"
        )
    if kind in _REFUSED:
        raise ValueError(f"site '{name}': {_REFUSED[kind]}")


_REFUSED = {
    "param": "numpyro.param has no prior; give it one with numpyro.sample",
    "mutable": "numpyro's mutable state (running statistics) changes the density from call to call; pass fixed values in",
    "prng_key": "the program draws random numbers of its own (dropout?), so its density is not a function; turn that off",
    "control_flow": "numpyro.contrib.control_flow hides its sites; use a plate and jax.lax.scan without sample sites inside",
}

