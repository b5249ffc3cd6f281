"""A function of one draw and one row, evaluated over all draws and rows in chunks of bounded size.

The function is `fn(*static, shared, draw, batch) -> (by_row, by_draw)`: dicts of arrays, the first with the rows of the
batch as leading axis, the second without. Where rows are separable it only ever meets batches of one row, vectorised
over rows and draws, so a row's numbers and random keys do not depend on its neighbours or on the chunks.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np

from ptx.compiled import compiled
from ptx.memory import host_available

AGREEMENT_ROWS = 32  # neighbouring rows, and as many spread out, looked at to see whether rows are separable
AGREEMENT = 1e-3  # relative to the spread of the values
ROUNDING = 3e-5  # relative to the largest value

Values = dict[str, np.ndarray]


class Limits(NamedTuple):
    """Sizes of a chunk: draws and rows, or what fits into `max_bytes` where they are None."""

    draw_chunk: int | None
    row_chunk: int | None
    max_bytes: int

    def check(self) -> None:
        """Raise ValueError unless all are positive integers."""
        for name, value in self._asdict().items():
            if name != "max_bytes" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise ValueError(f"{name}: expected a positive integer, got {value!r}")


def sweep(
    fn: Callable, static: tuple, shared: Any, draws: Any, batch: Any, separable: bool, limits: Limits
) -> tuple[Values, Values]:
    """`fn` over all draws and rows: values by row, of shape (draws, rows, ...), and by draw, (draws, ...), on the host.

    draws, batch: pytrees of host arrays with a leading axis of draws and of rows. Floats come back as float32 or wider.
    Raises MemoryError, with the figures, where the results cannot fit into host memory.
    """
    num_draws, num_rows = _length(draws), _length(batch)
    draw_chunk, row_chunk = _chunk_sizes(fn, static, shared, draws, batch, separable, limits)
    static = (fn, static, separable)
    results: tuple[Values, Values] = ({}, {})
    for first_draw in range(0, num_draws, draw_chunk):
        chunk = _take(draws, first_draw, draw_chunk)
        for first_row in range(0, num_rows, row_chunk):
            args = shared, chunk, _take(batch, first_row, row_chunk)
            found = jax.device_get(compiled(evaluate, static, *args)(*args))
            if not results[0] and not results[1]:
                results = _allocate(found, num_draws, num_rows)
            _store(results[0], found[0], slice(first_draw, num_draws), slice(first_row, num_rows))
            if first_row == 0:
                _store(results[1], found[1], slice(first_draw, num_draws))
    return results


def rows_agree(fn: Callable, static: tuple, shared: Any, draw: Any, batch: Any) -> bool:
    """Whether `fn` gives a few rows the same values together and one by one, at one draw."""
    rows = some_rows(_length(batch))
    args = shared, draw, jax.tree.map(lambda leaf: jnp.asarray(leaf[rows]), batch)
    return len(rows) == 1 or bool(compiled(agreement, (fn, static), *args, quickly=True)(*args))


def some_rows(num_rows: int) -> np.ndarray:
    """The first rows and as many spread over all: neighbours may share a group, distant ones a trend."""
    spread = np.linspace(0, num_rows - 1, AGREEMENT_ROWS).round().astype(int)
    return np.unique(np.concatenate([np.arange(min(num_rows, AGREEMENT_ROWS)), spread]))


def agreement(fn: Callable, static: tuple, shared: Any, draw: Any, batch: Any) -> jax.Array:
    """Whether the values of the batch and of its rows alone are equal, up to rounding."""
    together = fn(*static, shared, draw, batch)
    by_row, by_draw = _one_by_one(fn, static, shared, draw, batch)
    alone = by_row, jax.tree.map(lambda leaf: leaf[0], by_draw)
    close = jax.tree.map(_close, together, alone)
    return jnp.all(jnp.asarray(jax.tree.leaves(close)))


def _close(first: jax.Array, second: jax.Array) -> jax.Array:
    first, second = (leaf.astype(jnp.result_type(leaf.dtype, jnp.float32)) for leaf in (first, second))
    finite = jnp.isfinite(first)
    largest = jnp.max(jnp.where(finite, jnp.abs(first), 0.0), initial=0.0)
    highest = jnp.max(jnp.where(finite, first, -largest), initial=-largest)
    lowest = jnp.min(jnp.where(finite, first, largest), initial=largest)
    within = AGREEMENT * jnp.maximum(highest - lowest, 0.0) + ROUNDING * largest
    return jnp.all(jnp.isclose(first, second, rtol=0.0, atol=within, equal_nan=True))


def evaluate(
    fn: Callable, static: tuple, separable: bool, shared: Any, draws: Any, batch: Any
) -> tuple[Any, Any]:
    """`fn` over a chunk of draws and rows."""

    def at_draw(draw: Any) -> tuple[Any, Any]:
        if not separable:
            return fn(*static, shared, draw, batch)
        by_row, by_draw = _one_by_one(fn, static, shared, draw, batch)
        return by_row, jax.tree.map(lambda leaf: leaf[0], by_draw)

    return jax.tree.map(_widened, jax.vmap(at_draw)(draws))


def _one_by_one(fn: Callable, static: tuple, shared: Any, draw: Any, batch: Any) -> tuple[Any, Any]:
    def at_row(row: Any) -> tuple[Any, Any]:
        by_row, by_draw = fn(*static, shared, draw, jax.tree.map(lambda leaf: leaf[None], row))
        return jax.tree.map(lambda leaf: leaf[0], by_row), by_draw

    return jax.vmap(at_row)(batch)


def _widened(leaf: jax.Array) -> jax.Array:
    floating = jnp.issubdtype(leaf.dtype, jnp.floating)
    return leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)) if floating else leaf


def _chunk_sizes(
    fn: Callable, static: tuple, shared: Any, draws: Any, batch: Any, separable: bool, limits: Limits
) -> tuple[int, int]:
    """Draws and rows of a chunk: as many rows as fit at one draw, then as many draws; fixed by sizes alone."""
    num_draws, num_rows = _length(draws), _length(batch)
    leaves, treedef = jax.tree.flatten((shared, _take(draws, 0, 1), batch))
    shapes = tuple(
        (leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype, allow_extended_dtype=True)) for leaf in leaves
    )
    per_draw, per_row = _bytes(fn, static, separable, treedef, shapes, jnp.result_type(float))
    fitting = (limits.max_bytes - per_draw) // max(per_row, 1)
    row_chunk = min(num_rows, limits.row_chunk or _even(num_rows, fitting)) if separable else num_rows
    fitting = limits.max_bytes // max(per_draw + row_chunk * per_row, 1)
    return min(num_draws, limits.draw_chunk or _even(num_draws, fitting)), row_chunk


def _even(count: int, most: int) -> int:
    """A chunk size of at most `most`, but at least 1, that leaves the last chunk nearly full."""
    return math.ceil(count / math.ceil(count / max(1, most)))


@lru_cache(maxsize=64)
def _bytes(
    fn: Callable, static: tuple, separable: bool, treedef: Any, shapes: tuple, real: Any
) -> tuple[int, int]:
    """Bytes of all values computed for one draw, without the rows and for each row: an upper bound on what is live."""
    del real  # part of the key only
    shared, draws, batch = jax.tree.unflatten(treedef, [jax.ShapeDtypeStruct(*shape) for shape in shapes])

    def at(rows: int | None) -> int:
        cut = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((rows or leaf.shape[0], *leaf.shape[1:]), leaf.dtype), batch
        )
        return _computed(jax.make_jaxpr(evaluate, (0, 1, 2))(fn, static, separable, shared, draws, cut).jaxpr)

    if not separable:
        return at(None), 0
    one, two = at(1), at(2)
    return max(0, 2 * one - two), two - one


def _computed(jaxpr: Any) -> int:
    inner = sum(_computed(getattr(sub, "jaxpr", sub)) for sub in jax.extend.core.subjaxprs(jaxpr))
    outer = (var.aval for eqn in jaxpr.eqns for var in eqn.outvars)
    return inner + sum(math.prod(aval.shape) * aval.dtype.itemsize for aval in outer)


def _length(tree: Any) -> int:
    return jax.tree.leaves(tree)[0].shape[0]


def _take(tree: Any, first: int, count: int) -> Any:
    """Entries first, ..., first + count - 1, the last one repeated past the end: every chunk has one shape."""
    entries = np.minimum(np.arange(first, first + count), _length(tree) - 1)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[entries]), tree)


def _allocate(found: tuple[Values, Values], num_draws: int, num_rows: int) -> tuple[Values, Values]:
    """Empty results for chunks like `found`."""
    by_row = {name: ((num_draws, num_rows, *leaf.shape[2:]), leaf.dtype) for name, leaf in found[0].items()}
    by_draw = {name: ((num_draws, *leaf.shape[1:]), leaf.dtype) for name, leaf in found[1].items()}
    needed = sum(math.prod(shape) * dtype.itemsize for shape, dtype in (*by_row.values(), *by_draw.values()))
    free = host_available()
    if needed > free:
        raise MemoryError(
            f"the results take {needed / 2**30:.2f} GiB and {free / 2**30:.2f} GiB of host memory is free; ask for "
            "fewer sites, thin the posterior, or call with fewer rows at a time"
        )
    empty = ({name: np.empty(*spec) for name, spec in group.items()} for group in (by_row, by_draw))
    return next(empty), next(empty)


def _store(results: Values, found: Values, *ends: slice) -> None:
    """Copy a chunk into its place, without what repeats past the end."""
    for name, leaf in found.items():
        place = tuple(
            slice(end.start, min(end.start + n, end.stop)) for end, n in zip(ends, leaf.shape, strict=False)
        )
        results[name][place] = leaf[tuple(slice(0, at.stop - at.start) for at in place)]
