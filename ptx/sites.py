"""What a program's run without targets holds: its sites, and which of them follow the rows."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ptx import densities, program
from ptx.compiled import compiled
from ptx.target import Position, Target

Trace = dict[str, program.Message]


class Observed(NamedTuple):
    """An observed site on the training data: batch shape, the axis that follows the rows, plates by value axis."""

    name: str
    batch_shape: tuple[int, ...]
    row_axis: int | None
    plates: tuple[str | None, ...]


class Predicted(NamedTuple):
    """Names of the deterministic sites, of the drawn ones, of those with class probabilities; row axes of their values.

    `separable` says that, as far as shapes tell, a row's values are those of the program run on that row alone. `fresh`
    are latents of the rows that are not known for these rows, and are drawn from their prior.
    """

    deterministic: tuple[str, ...]
    drawn: tuple[str, ...]
    classes: tuple[str, ...]
    row_axes: tuple[tuple[str, int], ...]
    separable: bool
    fresh: tuple[str, ...]


def observed_sites(target: Target) -> tuple[Observed, ...]:
    """The observed sites, factors left out."""
    return _observed(target.model, target.terms, *_abstract(target.data), jnp.result_type(float))


@lru_cache(maxsize=64)
def _observed(model: Callable, terms: tuple, treedef: Any, shapes: tuple, real: Any) -> tuple[Observed, ...]:
    del real  # part of the cache key only
    found: list[Observed] = []

    def record(data: Any) -> None:
        start = program.from_start(jax.random.key(0))
        trace, _ = program.run(model, data.inputs, data.targets, start)
        for term in terms:
            if term.is_observed:
                msg = trace[term.name]
                shape = jnp.shape(msg["value"])
                batch = np.broadcast_shapes(msg["fn"].batch_shape, shape[: len(shape) - msg["fn"].event_dim])
                found.append(Observed(term.name, batch, term.row_axis, program.plate_names(msg, shape)))

    jax.eval_shape(record, _concrete(treedef, shapes))
    return tuple(found)


def observed_values(target: Target) -> dict[str, np.ndarray]:
    """What the observed sites were observed at, on the host, rows first."""
    values = jax.device_get(compiled(_observed_values, (), target, quickly=True)(target))
    for site in observed_sites(target):
        if site.row_axis is not None:
            values[site.name] = np.moveaxis(values[site.name], site.row_axis, 0)
    return values


def _observed_values(target: Target) -> dict[str, jax.Array]:
    start = program.from_start(jax.random.key(0))
    trace, _ = program.run(target.model, target.data.inputs, target.data.targets, start)
    return {term.name: jnp.asarray(trace[term.name]["value"]) for term in target.terms if term.is_observed}


def simulate(
    model: Callable,
    observed: tuple[Observed, ...],
    rng_key: jax.Array,
    position: Position,
    inputs: Any,
    num_rows: int,
    fixed: tuple[str, ...] = (),
    row_key: Any = None,
) -> Trace:
    """Run the program at a position with its observed sites drawn, one independent draw for each of `num_rows` rows.

    Sites in `fixed` take a value that only depends on their support instead.
    """
    shapes = {site.name: _with_rows(site, num_rows) for site in observed}
    return program.run_freed(model, inputs, position, rng_key, shapes, fixed, row_key)


def _with_rows(site: Observed, num_rows: int) -> tuple[int, ...]:
    return tuple(num_rows if axis == site.row_axis else size for axis, size in enumerate(site.batch_shape))


def fresh_sites(target: Target, inputs: Any) -> tuple[str, ...]:
    """Attention rows (latents of the rows that could carry their own posterior) that these inputs, other than those of
    the training, have anew: no data speak of them, so their posterior is their prior given the other latents."""
    rows = tuple(site.name for site in target.sites if site.amortised and site.row_axis is not None)
    if not rows:
        return ()
    pairs = zip(jax.tree.leaves(inputs), jax.tree.leaves(target.data.inputs), strict=True)
    same = all(np.array_equal(np.asarray(a, b.dtype), np.asarray(b)) for a, b in pairs)
    return () if same else rows


def predicted_sites(target: Target, inputs: Any, num_rows: int, fresh: tuple[str, ...] = ()) -> Predicted:
    """What the program holds when it runs on `inputs` without targets; `fresh` latents are drawn.

    Raises:
        ValueError: the number of rows differs from the training data's where a latent belongs to them.
        Exception: whatever the program raises without targets, with a note.
    """
    observed = observed_sites(target)
    known = [site for site in target.sites if site.name not in fresh]
    for site in known:
        if site.row_axis is not None and num_rows != target.num_rows:
            raise ValueError(
                f"site '{site.name}': a latent that belongs to the rows, known for the {target.num_rows} training rows "
                f"alone, not for the {num_rows} rows given; predict on the training inputs, or change the model"
            )
    latents = tuple((site.name, site.unconstrained_shape, site.row_axis) for site in known)
    return _predicted(
        target.model, observed, latents, fresh, *_abstract(inputs), num_rows, jnp.result_type(float)
    )


@lru_cache(maxsize=64)
def _predicted(
    model: Callable,
    observed: tuple,
    latents: tuple,
    fresh: tuple[str, ...],
    treedef: Any,
    shapes: tuple,
    num_rows: int,
    real: Any,
) -> Predicted:
    del real  # part of the cache key only
    inputs = _concrete(treedef, shapes)

    def probe(count: int) -> dict[str, tuple[str, tuple[int, ...], bool]]:
        dtype = jnp.result_type(float)
        at_count = {
            name: jax.ShapeDtypeStruct(_replaced(shape, axis, count), dtype) for name, shape, axis in latents
        }
        return _probe(model, observed, at_count, _resized(inputs, count), count)

    try:
        here = probe(num_rows)
    except Exception as error:
        error.add_note(
            "ptx: while running model(inputs, targets=None); it must run without targets to predict them"
        )
        raise
    try:
        one, two, three = (probe(count) for count in (1, 2, 3))
        row_axes = {
            name: axis for name in here if (axis := _moving(two[name][1], three[name][1])) is not None
        }
        fits = all(one[name][1] == _replaced(two[name][1], row_axes.get(name), 1) for name in here)
        separable = fits and all(name in row_axes for name, (kind, *_) in here.items() if kind == "drawn")
    except Exception:  # a program written for exactly these rows
        row_axes = {site.name: site.row_axis for site in observed if site.row_axis is not None}
        separable = False
    return Predicted(
        deterministic=tuple(name for name, (kind, *_) in here.items() if kind == "deterministic"),
        drawn=tuple(name for name, (kind, *_) in here.items() if kind == "drawn"),
        classes=tuple(name for name, (*_, has_classes) in here.items() if has_classes),
        row_axes=tuple(row_axes.items()),
        separable=separable and all(site.row_axis is not None for site in observed),
        fresh=fresh,
    )


def _probe(model: Callable, observed: tuple, position: Any, inputs: Any, num_rows: int) -> dict[str, tuple]:
    """Kind, shape and whether it has class probabilities, of every predicted site."""
    found = {}

    def record(position: Position, inputs: Any) -> None:
        for name, msg in simulate(model, observed, jax.random.key(0), position, inputs, num_rows).items():
            if msg["type"] == "deterministic":
                found[name] = ("deterministic", jnp.shape(msg["value"]), False)
            elif is_drawn(msg, position):
                found[name] = (
                    "drawn",
                    jnp.shape(msg["value"]),
                    densities.class_probabilities(msg) is not None,
                )

    jax.eval_shape(record, position, inputs)
    return found


def is_drawn(msg: program.Message, position: Position) -> bool:
    """A sample site that the position does not fix."""
    if densities.is_factor(msg) or program.is_amortised(msg):
        return False
    return msg["type"] == "sample" and msg["name"] not in position


def _moving(fewer: tuple[int, ...], more: tuple[int, ...]) -> int | None:
    """The axis that grows with the rows, or None. Raises ValueError where several do."""
    moved = [axis for axis, (a, b) in enumerate(zip(fewer, more, strict=True)) if a != b]
    if len(moved) > 1:
        raise ValueError("several axes follow the rows")
    return moved[0] if moved else None


def _replaced(shape: tuple[int, ...], axis: int | None, size: int) -> tuple[int, ...]:
    return tuple(size if i == axis else length for i, length in enumerate(shape))


def _resized(inputs: Any, num_rows: int) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((num_rows, *leaf.shape[1:]), leaf.dtype), inputs)


def _abstract(tree: Any) -> tuple[Any, tuple]:
    """Structure, shapes and dtypes on the device, hashable."""
    leaves, treedef = jax.tree.flatten(tree)
    return treedef, tuple((leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype)) for leaf in leaves)


def _concrete(treedef: Any, shapes: tuple) -> Any:
    return jax.tree.unflatten(treedef, [jax.ShapeDtypeStruct(*shape) for shape in shapes])
