"""Runs NumPyro programs: the one file, beside a model's own sampling, that opens NumPyro's handlers."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions import Distribution
from numpyro.primitives import Messenger

from ptx.amortised import Amortised, Probe, integrate, is_amortised, leave_out
from ptx.densities import base, is_factor, is_proper, log_prob, total
from ptx.log_gamma_simplex import LogGammaSimplex
from ptx.simplex import bijection

Message = dict[str, Any]
Assign = Callable[[Message], Any]


class Latent(NamedTuple):
    """A latent site met in a run: its distribution, value, unconstrained value and log |d value / d unconstrained|;
    where its coordinates have a density of their own, that one in place of prior and Jacobian."""

    message: Message
    unconstrained: jax.Array
    log_jacobian: jax.Array
    log_density: jax.Array | None = None


class _Assign(Messenger):
    """Gives every latent site the unconstrained value that `assign(message)` returns, mapped to its support.

    With `amortised`, sites that carry their own posterior are drawn from it instead, with `row_key`.
    """

    def __init__(self, fn: Callable, assign: Assign, amortised: bool, row_key: Any) -> None:
        super().__init__(fn)
        self.assign = assign
        self.amortised, self.row_key = amortised, row_key
        self.latents: dict[str, Latent] = {}
        self.names: dict[str, str] = {}

    def process_message(self, msg: Message) -> None:
        _refuse_unsupported(msg)
        _refuse_repeated(msg, self.names)
        if msg["type"] != "sample":
            return
        if shape := msg["kwargs"].get("sample_shape"):  # of this one statement; then as if the prior had it
            msg["fn"] = msg["fn"].expand((*shape, *msg["fn"].batch_shape))
            msg["kwargs"]["sample_shape"] = ()
        msg["is_observed"] = msg["is_observed"] or msg["value"] is not None  # `substitute` inside the program
        if msg["is_observed"]:
            return
        if self.amortised and is_amortised(msg):
            source = self.row_key
            is_key = isinstance(source, jax.Array)
            return integrate(msg, jax.random.fold_in(source, len(self.names)) if is_key else source)
        if msg["infer"].get("amortised_only") and not self.amortised:
            return leave_out(msg)
        unconstrained = self.assign(msg)
        if unconstrained is None:  # a site left free: the handler above draws it
            msg["value"] = self.row_key.value(msg) if isinstance(self.row_key, Probe) else None
            return
        transform = _transform(msg)
        msg["value"] = transform(unconstrained)
        if isinstance(transform, LogGammaSimplex):
            density = total(transform.log_density(unconstrained))
            self.latents[msg["name"]] = Latent(msg, unconstrained, jnp.zeros(()), density)
            return
        log_jacobian = transform.log_abs_det_jacobian(unconstrained, msg["value"])
        self.latents[msg["name"]] = Latent(msg, unconstrained, total(log_jacobian))


def run(
    model: Callable,
    inputs: Any,
    targets: Any,
    assign: Assign,
    rng_key: jax.Array | None = None,
    row_key: Any = None,
) -> tuple[dict[str, Message], dict[str, Latent]]:
    """Run the program once; return its trace and what was assigned to its latent sites.

    Sites that `assign` leaves free (it returns None) are drawn with `rng_key`. Of an `Amortised` model, sites that
    carry their own posterior are drawn from it with `row_key`, or put at its mean, or where a `Probe` says. Nothing
    leaks to handlers outside.
    """
    inner = model.fn if isinstance(model, _Freed) else model
    assigned = _Assign(model, assign, isinstance(inner, Amortised), row_key)
    program = assigned if rng_key is None else handlers.seed(assigned, rng_key)
    with handlers.block():
        trace = handlers.trace(program).get_trace(inputs, targets)
    return trace, assigned.latents


def run_guide(guide: Callable, rng_key: jax.Array, parameters: dict[str, Any]) -> dict[str, Message]:
    """The trace of a guide at given parameters (the others start), its samples drawn with `rng_key`."""
    return isolated(
        handlers.trace(handlers.substitute(handlers.seed(guide, rng_key), data=parameters)).get_trace
    )


def isolated(fn: Callable, *args: Any) -> Any:
    """`fn(*args)`, its sites hidden from handlers outside."""
    with handlers.block():
        return fn(*args)


class _Freed(Messenger):
    """Frees observed sites, so that they are drawn; those in `fixed` are observed at one value of their support.

    The k-th sample site of the program is drawn with `fold_in(rng_key, k)`: unlike a chain of splits, this costs
    nothing at sites that are not drawn.
    """

    def __init__(
        self, fn: Callable, rng_key: jax.Array, shapes: dict[str, tuple], fixed: tuple[str, ...]
    ) -> None:
        super().__init__(fn)
        self.rng_key, self.shapes, self.fixed = rng_key, shapes, fixed
        self.count = 0

    def process_message(self, msg: Message) -> None:
        if msg["type"] != "sample" or is_factor(msg):
            return
        # Without a plate or data a site forgets the rows, and one draw would stand for all of them.
        batch_shape = jnp.broadcast_shapes(msg["fn"].batch_shape, self.shapes.get(msg["name"], ()))
        if batch_shape != msg["fn"].batch_shape:
            msg["fn"] = msg["fn"].expand(batch_shape)
        msg["kwargs"]["rng_key"] = jax.random.fold_in(self.rng_key, self.count)
        self.count += 1
        if msg["name"] in self.fixed:
            dtype = int if msg["fn"].support.is_discrete else float
            msg["value"] = msg["fn"].support.feasible_like(jnp.zeros(msg["fn"].shape(), dtype))
        elif msg["is_observed"]:
            msg["value"] = None
        msg["is_observed"] = msg["value"] is not None


def run_freed(
    model: Callable,
    inputs: Any,
    position: dict[str, jax.Array],
    rng_key: jax.Array,
    shapes: dict[str, tuple[int, ...]],
    fixed: tuple[str, ...] = (),
    row_key: Any = None,
) -> dict[str, Message]:
    """The trace of the program at a position, without targets: observed sites are drawn, expanded to batch `shapes`;
    those in `fixed` take a value that their support alone determines."""
    freed = _Freed(model, rng_key, shapes, fixed)
    return run(freed, inputs, None, from_position(position), row_key=row_key)[0]


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
        if msg["infer"].get("init") == "prior" and is_proper(msg["fn"]):
            return transform.inv(msg["fn"].sample(next(keys)))
        shape = transform.inverse_shape(msg["fn"].shape())
        return jax.random.uniform(next(keys), shape, minval=-radius, maxval=radius)

    return assign


def _transform(msg: Message) -> Any:
    """The bijection from the reals to the site's support."""
    if msg["infer"].get("coordinates") is not None:
        return _coordinates(msg)
    if msg["fn"].support.is_discrete:
        raise ValueError(
            f"site '{msg['name']}': a discrete latent ({type(base(msg['fn'])).__name__}), which no engine of ptx "
            "samples; sum it out (for a mixture: numpyro.distributions.MixtureSameFamily), or observe it (are there "
            "targets?)"
        )
    try:
        return bijection(msg["fn"].support)
    except NotImplementedError:
        raise ValueError(
            f"site '{msg['name']}': no map from the reals to its support, {msg['fn'].support}; write the site in other "
            "coordinates, as with numpyro.handlers.reparam (ProjectedNormalReparam for directions)"
        ) from None


def _coordinates(msg: Message) -> LogGammaSimplex:
    """Those that the site asks for."""
    name, fn = msg["infer"]["coordinates"], msg["fn"]
    if msg["scale"] is not None:
        raise ValueError(
            f"site '{msg['name']}': in log-gamma coordinates its density cannot be scaled (numpyro.handlers.scale); "
            "leave out the scale or the coordinates"
        )
    while isinstance(fn, dist.ExpandedDistribution):
        fn = fn.base_dist
    if name != "log_gamma" or not hasattr(fn, "concentration") or not _is_simplex(fn):
        raise ValueError(
            f"site '{msg['name']}': infer={{'coordinates': {name!r}}} on a {type(fn).__name__}; the only coordinates "
            "to choose are 'log_gamma', of a Dirichlet without to_event or mask"
        )
    alpha = jnp.broadcast_to(getattr(fn, "concentration"), msg["fn"].shape())  # noqa: B009
    return LogGammaSimplex(alpha, getattr(fn, "where", None))


def _is_simplex(fn: Distribution) -> bool:
    return isinstance(fn.support, type(dist.constraints.simplex))


def _keys(rng_key: jax.Array):
    while True:
        rng_key, key = jax.random.split(rng_key)
        yield key


def latent_log_density(latent: Latent) -> jax.Array:
    """log p of a latent site in its unconstrained coordinates, in nats, summed."""
    if latent.log_density is None:
        return total(log_prob(latent.message)) + latent.log_jacobian
    return latent.log_density


def plate_names(msg: Message, shape: tuple[int, ...]) -> tuple[str | None, ...]:
    """Names of the plates that hold a value of this shape, axis by axis; None elsewhere."""
    names: list[str | None] = [None] * len(shape)
    first = len(shape) - msg["fn"].event_dim
    for frame in msg["cond_indep_stack"]:
        if first + frame.dim >= 0:  # a value may have fewer axes than the plates it broadcasts over
            names[first + frame.dim] = frame.name
    return tuple(names)


def is_latent(msg: Message) -> bool:
    """A sample site that no data fixes."""
    return msg["type"] == "sample" and not msg["is_observed"]


def _refuse_unsupported(msg: Message) -> None:
    name, kind = msg.get("name"), msg["type"]
    if kind == "plate" and msg["args"][1] not in (None, msg["args"][0]):
        raise ValueError(
            f"plate '{name}': subsamples {msg['args'][1]} of {msg['args'][0]} rows; write the plate over all rows it "
            "is given, and set batch_size on an engine that takes minibatches (SVI, MAP, SGLD, SGHMC)"
        )
    if kind in _REFUSED:
        raise ValueError(f"{'model' if name is None else f'site {name!r}'}: {_REFUSED[kind]}")


def _refuse_repeated(msg: Message, names: dict[str, str]) -> None:
    """Two sites of one name would count one of them twice; a plate may be entered again."""
    name, kind = str(msg.get("name")), msg["type"]
    if name in names and not kind == names[name] == "plate":
        raise ValueError(f"site '{name}': the program has two sites of this name; give each its own")
    if kind in ("sample", "deterministic", "plate"):
        names[name] = kind


_REFUSED = {
    "param": "numpyro.param has no prior; give it one with numpyro.sample",
    "mutable": "numpyro's mutable state (running statistics) changes the density at every call; pass fixed values in",
    "prng_key": "the program draws random numbers (dropout?), so its density is not a function; turn that off",
    "control_flow": "numpyro.contrib.control_flow hides sites; use a plate, and jax.lax.scan without sites inside",
}
