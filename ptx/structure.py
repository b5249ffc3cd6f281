"""What a program is made of: its latent sites, its likelihood terms, and which axis of each follows the rows."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ptx import densities, program
from ptx.data import Data

Shape = tuple[int, ...]


class Site(NamedTuple):
    """A latent site. Shapes are those of one draw; `row_axis` is the axis that grows with the rows, or None;
    `amortised` says that the site carries a posterior of its own, and is sampled all the same."""

    name: str
    shape: Shape
    unconstrained_shape: Shape
    support: str
    proper: bool
    row_axis: int | None
    plates: tuple[str | None, ...]
    amortised: bool


class Term(NamedTuple):
    """An observed site, factor, or site that its own posterior integrates (its log density is -KL).

    `row_axis` is the axis of its log density that follows the rows, or None.
    """

    name: str
    row_axis: int | None
    is_factor: bool
    amortised: bool

    @property
    def is_observed(self) -> bool:
        """Whether data fix its value."""
        return not (self.is_factor or self.amortised)


def structure(model: Callable, data: Data) -> tuple[tuple[Site, ...], tuple[Term, ...]]:
    """Latent sites and likelihood terms, from abstract runs on these rows and on two other numbers of rows."""
    leaves, treedef = jax.tree.flatten(data)
    return _structure(
        model, treedef, tuple((leaf.shape, leaf.dtype) for leaf in leaves), jnp.result_type(float)
    )


@lru_cache(maxsize=64)
def _structure(
    model: Callable, treedef: Any, shapes: tuple, default: Any
) -> tuple[tuple[Site, ...], tuple[Term, ...]]:
    del default  # part of the cache key only
    data = jax.tree.unflatten(treedef, [jax.ShapeDtypeStruct(*shape) for shape in shapes])
    here = _probe(model, data)
    for name, shapes in here.observed.items():
        _refuse_crossed(name, shapes)
    row_axes = _row_axes(model, data)
    sites = tuple(site._replace(row_axis=row_axes.get(site.name)) for site in here.latents.values())
    terms = tuple(
        Term(name, row_axes.get(name), shapes.is_factor, shapes.amortised)
        for name, shapes in here.observed.items()
    )
    if not any(term.is_observed or (term.is_factor and term.row_axis is not None) for term in terms):
        raise ValueError(
            "model: no observed site; sample the targets with obs=targets, and give data with targets"
        )
    return sites, terms


class _Shapes(NamedTuple):
    """Batch shapes of an observed site: of its log density, its values and its distribution."""

    log_prob: Shape
    values: Shape
    outputs: Shape
    is_factor: bool
    amortised: bool


class _Probe(NamedTuple):
    latents: dict[str, Site]
    observed: dict[str, _Shapes]


def _probe(model: Callable, data: Any) -> _Probe:
    """Run abstractly on data of this shape."""
    found = _Probe({}, {})

    def record(data: Data) -> None:
        trace, met = program.run(model, data.inputs, data.targets, program.from_start(jax.random.key(0)))
        for name, site in trace.items():
            if program.is_latent(site):
                fn = site["fn"]
                shape, unconstrained = jnp.shape(site["value"]), jnp.shape(met[name].unconstrained)
                plates, proper = program.plate_names(site, shape), densities.is_proper(fn)
                amortised = program.is_amortised(site)
                found.latents[name] = Site(
                    name, shape, unconstrained, str(fn.support), proper, None, plates, amortised
                )
            elif site["type"] == "sample":
                fn, shape = site["fn"], jnp.shape(site["value"])
                values = shape[: len(shape) - fn.event_dim]
                log_prob = jnp.shape(densities.log_prob(site))
                kind = densities.is_factor(site), program.is_amortised(site)
                found.observed[name] = _Shapes(log_prob, values, fn.batch_shape, *kind)

    try:
        jax.eval_shape(record, data)
    except _NEEDS_NUMBERS as error:
        raise TypeError(
            "model: the program needs the numbers in its data (int(...), if, numpy), but it is compiled for any data "
            f"of these shapes; compute such settings before and keep them in the model ({str(error).splitlines()[0]})"
        ) from error
    return found


_NEEDS_NUMBERS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


def _row_axes(model: Callable, data: Any) -> dict[str, int]:
    """The axis of each latent, and of each observed log density, that grows by one when the data do."""
    num_rows = max(data.num_rows, 2)
    try:
        fewer, more = (_probe(model, _with_rows(data, count)) for count in (num_rows, num_rows + 1))
    except Exception:  # a program written for exactly these rows: nothing factors, as far as can be seen
        return {}
    axes: dict[str, list[int]] = {}
    for name in fewer.latents.keys() & more.latents.keys():
        axes[name] = _grown(fewer.latents[name].shape, more.latents[name].shape)[:1]
    for name in fewer.observed.keys() & more.observed.keys():
        before, after = fewer.observed[name], more.observed[name]
        axes[name] = _grown(before.log_prob, after.log_prob)
        if len(axes[name]) > max(1, len(_grown(before.values, after.values))):
            raise _broadcast_error(name, before)
    # A term with rows on two axes, of its values too, compares rows with rows: it does not factor.
    return {name: grown[0] for name, grown in axes.items() if len(grown) == 1}


def _grown(fewer: Shape, more: Shape) -> list[int]:
    return [axis for axis, (a, b) in enumerate(zip(fewer, more, strict=True)) if a != b]


def _with_rows(data: Any, count: int) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape[1:]), leaf.dtype), data)


def _refuse_crossed(name: str, shapes: _Shapes) -> None:
    """Refuse values that spread over the outputs while these spread over them, as (N, 1) against (N,)."""
    size = len(shapes.log_prob)
    values, outputs = ((1,) * (size - len(shape)) + shape for shape in (shapes.values, shapes.outputs))
    pairs = list(zip(values, outputs, strict=True))
    if any(a == 1 < b for a, b in pairs) and any(b == 1 < a for a, b in pairs):
        raise _broadcast_error(name, shapes)


def _broadcast_error(name: str, shapes: _Shapes) -> ValueError:
    return ValueError(
        f"site '{name}': values of shape {shapes.values} broadcast against outputs of shape {shapes.outputs} to a log "
        f"density of shape {shapes.log_prob}, so that every value is compared with every output; give both the same "
        "shape, (rows,) against (rows,) or (rows, 1) against (rows, 1)"
    )
