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

