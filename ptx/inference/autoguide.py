"""NumPyro's automatic guides on a lowered target.

A guide sees a program with one real site, the position as a vector, of flat density, and one factor, the target's
log density. So it fits supports of every kind, and what it samples is a position. (One site a program: with one site
for each of the model's, NumPyro's chain of keys made compilation slow.) Guides keep hidden state from their first
call on, so each call makes its own, and no traced value outlives its trace.
"""

import difflib
import inspect
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jaxtyping import Array, Float
from numpyro.distributions import ImproperUniform, biject_to, constraints
from numpyro.infer import Trace_ELBO, init_to_value
from numpyro.infer import autoguide as library

from ptx import program
from ptx.data import Data
from ptx.target import Position, Target
from ptx.written import written

POINTS = ("AutoDelta", "AutoLaplaceApproximation")  # their objective is the log density of a point, no ELBO
_NEEDS_DENSITY = ("AutoDAIS",)  # its draws follow the gradient of the log density
_BATCHED = ("AutoBatchedMultivariateNormal", "AutoBatchedLowRankMultivariateNormal")
_REFUSED = {
    "AutoGuideList": "is a container for guides of parts of a model; give the one guide for all sites",
    "AutoSemiDAIS": "needs a split of the model into global and per-row sites, which a lowered target does not have",
    "AutoSurrogateLikelihoodDAIS": "needs a second, surrogate model; use AutoDAIS",
}
_NOT_OPTIONS = {"model", "prefix", "init_loc_fn", "create_plates", "hessian_fn", "nonlinearity"}
_NOT_OPTIONS |= {"forward_mode_differentiation"}
_SITE = "position"


def check_settings(engine: Any) -> None:
    """Refuse an unknown guide, one that cannot fit, and options that it does not take."""
    name, where = engine.guide, f"{type(engine).__name__}: guide"
    if not isinstance(name, str):
        raise TypeError(
            f"{where} must be the name of a NumPyro autoguide, such as 'AutoNormal'; got {name!r}"
        )
    if name in _REFUSED:
        raise ValueError(f"{where}={name!r} {_REFUSED[name]}")
    if name not in available():
        near = difflib.get_close_matches(name, available(), n=3, cutoff=0.4) or available()
        raise ValueError(
            f"{where}={name!r} is no NumPyro autoguide; use for example {', '.join(map(repr, near))}"
        )
    if name in _NEEDS_DENSITY and engine.batch_size is not None:
        raise ValueError(f"{where}={name!r} follows the gradient of the whole data; use batch_size=None")
    if name == "AutoDelta" and engine.num_draws != 1:
        raise ValueError(f"{where}='AutoDelta' is one point, so all draws are equal; use num_draws=1")
    if isinstance(engine.guide_options, tuple):
        object.__setattr__(engine, "guide_options", _plain(engine.guide_options))
    _check_options(where, name, engine.guide_options)


def _plain(value: Any) -> Any:
    """The options with Python's numbers for NumPy's, so that the engine's repr can be evaluated."""
    if isinstance(value, tuple):
        return tuple(_plain(entry) for entry in value)
    return value.item() if isinstance(value, (np.number, np.bool_)) else value


def available() -> list[str]:
    """Names of the guides that fit a continuous target."""
    classes = {name: getattr(library, name) for name in library.__all__}
    return [name for name, guide in classes.items() if name not in _REFUSED and not inspect.isabstract(guide)]


def _check_options(where: str, name: str, options: Any) -> None:
    form = f'{where}_options must be a tuple of pairs such as (("init_scale", 0.01),)'
    if not isinstance(options, tuple) or not all(isinstance(o, tuple) and len(o) == 2 for o in options):
        raise TypeError(f"{form}; got {options!r}")
    if len(dict(options)) < len(options):
        raise ValueError(f"{where}_options: an option is given twice in {options!r}")
    guide = getattr(library, name)
    known = sorted(set(inspect.signature(guide).parameters) - _NOT_OPTIONS)
    for option, value in options:
        if option not in known:
            raise ValueError(f"{where}={name!r} takes the options {known or 'none'}; got {option!r}")
        entries = value if isinstance(value, tuple) else (value,)
        if not all(entry is None or isinstance(entry, (bool, int, float, str)) for entry in entries):
            raise TypeError(
                f"{where}_options: {option!r} must be a plain value or a tuple of them; got {value!r}"
            )
        if any(
            isinstance(e, (int, float)) and not (math.isfinite(e) and (e is False or e > 0)) for e in entries
        ):
            raise ValueError(f"{where}_options: {option!r} must be positive and finite; got {value!r}")
    guide(lambda: None, **_options(options))  # NumPyro's own checks


def _options(options: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in options}


def check_target(engine: Any, target: Target) -> None:
    """Refuse a target whose sites the guide cannot lay out."""
    if target.is_amortised and engine.guide in (*_NEEDS_DENSITY, "AutoLaplaceApproximation"):
        raise ValueError(
            f"guide {engine.guide!r} needs a density, and with latents that carry their own posterior (attention rows) "
            "there is only a random bound; use another guide, such as 'AutoNormal' or 'AutoDelta'"
        )
    if engine.guide in _BATCHED:
        _check_batched(engine, target)
    if engine.guide not in _NEEDS_DENSITY:  # that one takes every target, and a look at it runs the model
        try:
            jax.eval_shape(lambda: program.run_guide(_guide(engine, target), jax.random.key(0), {}) and None)
        except (ValueError, RuntimeError) as error:
            raise ValueError(f"guide {engine.guide!r} on {_size(target)} latent values: {error}") from error


def _check_batched(engine: Any, target: Target) -> None:
    if len(target.sites) > 1:
        raise ValueError(
            f"guide {engine.guide!r}: NumPyro lays sites end to end before it cuts them in blocks, so with "
            f"{len(target.sites)} sites blocks would not follow the leading axis; use 'AutoLowRankMultivariateNormal'"
        )
    for site in target.sites:
        if len(site.unconstrained_shape) <= _batch_ndim(engine):
            raise ValueError(
                f"site '{site.name}': unconstrained shape {site.unconstrained_shape} has no axis beyond the "
                f"{_batch_ndim(engine)} that guide {engine.guide!r} takes for batch axes (option 'batch_ndim'); use "
                "'AutoMultivariateNormal'"
            )


def _batch_ndim(engine: Any) -> int:
    return dict(engine.guide_options).get("batch_ndim", 1) if engine.guide in _BATCHED else 0


def num_gradients(engine: Any) -> int:
    """Gradients of the log density in one estimate of the ELBO's."""
    inside = dict(engine.guide_options).get("K", 4) if engine.guide in _NEEDS_DENSITY else 0
    return engine.num_particles * (1 + inside)


def start(engine: Any, rng_key: Array, target: Target, position: Position) -> dict[str, Any]:
    """The guide's parameters, each on the reals, centred at the position (flows: at their own random start)."""
    vector = target.flatten(position).reshape(_shape(engine, target))
    sites = _parameter_sites(engine, rng_key, target, vector)
    parameters = {name: _transform(site).inv(site["value"]) for name, site in sites.items()}
    return jax.tree.map(jnp.asarray, parameters)  # some start as Python numbers


def objective(
    engine: Any,
    rng_key: Array,
    target: Target,
    parameters: dict[str, Any],
    batch: Data | None,
    kl_weight: Any = 1.0,
) -> Float[Array, ""]:
    """Monte-Carlo ELBO in nats at the (real) parameters; for guides that are a point, its log density.

    Latents that carry their own posterior are drawn with a key of each particle.
    """
    loss = Trace_ELBO(num_particles=engine.num_particles).loss

    def log_density(position: Position) -> Float[Array, ""]:
        key = numpyro.prng_key() if target.is_amortised else None
        return target.log_density(position, batch, key, kl_weight)

    model = _flat_program(engine, target, log_density)
    values = _constrain(engine, target, parameters)
    return -program.isolated(loss, rng_key, values, model, _guide(engine, target))


def draw(engine: Any, rng_key: Array, target: Target, parameters: dict[str, Any]) -> Position:
    """A position drawn from the guide."""
    values = _constrain(engine, target, parameters)
    trace = program.run_guide(_guide(engine, target), rng_key, values)
    return target.unflatten(jnp.ravel(trace[_SITE]["value"]))


def _guide(engine: Any, target: Target, centre: Array | None = None) -> Callable[[], Any]:
    """The guide, made anew at each call. Its centre matters to `start` alone."""

    def guide() -> Any:
        density = target.log_density if engine.guide in _NEEDS_DENSITY else lambda position: jnp.zeros(())
        values = {_SITE: jnp.zeros(_shape(engine, target)) if centre is None else centre}
        flat, at_centre = _flat_program(engine, target, density), init_to_value(values=values)
        return getattr(library, engine.guide)(flat, init_loc_fn=at_centre, **_options(engine.guide_options))()

    return guide


def _flat_program(engine: Any, target: Target, log_density: Callable) -> Callable[[], None]:
    """A NumPyro program of one real site, with the log density of the position as a factor."""
    shape, batch_ndim = _shape(engine, target), _batch_ndim(engine)

    def flat_program() -> None:
        value = numpyro.sample(
            _SITE, ImproperUniform(constraints.real, shape[:batch_ndim], shape[batch_ndim:])
        )
        numpyro.factor("log_density", log_density(target.unflatten(written(jnp.ravel(value)))))

    return flat_program


def _shape(engine: Any, target: Target) -> tuple[int, ...]:
    """A vector, but for batched guides, whose one site keeps its axes."""
    if engine.guide in _BATCHED:
        return target.sites[0].unconstrained_shape
    return (_size(target),)


def _size(target: Target) -> int:
    return sum(math.prod(site.unconstrained_shape) for site in target.sites)


def _parameter_sites(
    engine: Any, rng_key: Array, target: Target, centre: Array | None = None
) -> dict[str, program.Message]:
    trace = program.run_guide(_guide(engine, target, centre), rng_key, {})
    return {name: site for name, site in trace.items() if site["type"] == "param"}


def _transform(site: program.Message) -> Any:
    """From the reals to where the parameter lives."""
    return biject_to(site["kwargs"].get("constraint", constraints.real))


def _constrain(engine: Any, target: Target, parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters where the guide expects them."""
    transforms = {}

    def record() -> None:
        sites = _parameter_sites(engine, jax.random.key(0), target)
        transforms.update({name: _transform(site) for name, site in sites.items()})

    jax.eval_shape(record)  # constraints do not depend on values: nothing of this is compiled
    return {name: transforms[name](value) for name, value in parameters.items()}
