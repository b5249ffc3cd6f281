"""Minibatches on the device: exactly B rows a step, cut from a continuing stream of permutations."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ptx.amortised import Probe
from ptx.compiled import compiled
from ptx.data import Data
from ptx.target import Position, Target

TOLERANCE = 1e-3  # rounding stays far below it, another row's influence hardly ever does


class Stream(NamedTuple):
    """This epoch's order of the rows and the next one's, and where the next batch starts in it."""

    order: Int[Array, "two rows"]
    start: Int[Array, ""]
    epoch: Int[Array, ""]
    rng_key: Any


def check(engine: Any, target: Target) -> None:
    """Refuse minibatches of a target whose likelihood does not factor over rows.

    Shapes tell most such models; a mean over the rows (batch normalisation, centring) shows only in the numbers, so
    some rows are evaluated together and one by one, at a random position. Cost: one forward pass over 32 rows, twice.
    """
    if engine.batch_size is None:
        return
    purpose = f"{type(engine).__name__} with batch_size={engine.batch_size}"
    target.require_rows(purpose)
    if engine.batch_size >= target.num_rows:
        return
    batch = jax.tree.map(jnp.asarray, target.data.take(slice(0, 32)))
    rng = np.random.default_rng(0)  # JAX would compile a generator for every shape
    position = {
        site.name: jnp.asarray(rng.standard_normal(site.unconstrained_shape), jnp.result_type(float))
        for site in target.sites
    }
    args = target, position, batch
    gaps = compiled(_gaps, (False,), *args, quickly=True)(*args)
    if target.is_amortised:  # rows may hang together through their latents, whose means can be alike
        probed = compiled(_gaps, (True,), *args, quickly=True)(*args)
        gaps = {name: max(gap, probed[name]) for name, gap in gaps.items()}
    for name, gap in gaps.items():
        if gap > TOLERANCE:
            raise ValueError(
                f"site '{name}': a row's log density depends on the rows beside it (a mean over rows, batch "
                f"normalisation?), and {purpose} needs rows that stand alone; use batch_size=None, or "
                "compute it beforehand"
            )


def _gaps(probed: bool, target: Target, position: Position, batch: Data) -> dict[str, Array]:
    """By site, the largest difference between rows together and alone, relative to the largest value.

    Latents that carry their own posterior are at its mean, or, `probed`, at values that differ from row to row.
    """

    def at(rows: Data, number: Array) -> dict[str, Array]:
        probe = Probe(number, target.amortised_axes) if probed else None
        return target.halves(position, rows, probe).by_row

    numbers = jnp.arange(batch.num_rows)
    together = at(batch, numbers)
    alone = jax.vmap(lambda row, number: at(jax.tree.map(lambda leaf: leaf[None], row), number[None]))(
        batch, numbers
    )

    def gap(first: Array, second: Array) -> Array:
        difference = jnp.where(jnp.isfinite(first) & jnp.isfinite(second), first - second, 0.0)
        largest = jnp.max(jnp.where(jnp.isfinite(first), jnp.abs(first), 0.0))
        return jnp.max(jnp.abs(difference)) / jnp.maximum(largest, 1.0)

    return {name: gap(rows, alone[name][:, 0]) for name, rows in together.items()}


def start(batch_size: int | None, target: Target, rng_key: Array) -> Stream | None:
    """The stream before the first batch; None for whole data, which keep their order (B is None, or N and more)."""
    if batch_size is None or batch_size >= target.num_rows:
        return None
    order = jnp.stack([_permutation(rng_key, epoch, target.num_rows) for epoch in (0, 1)])
    return Stream(order, jnp.int32(0), jnp.int32(2), rng_key)


def take(batch_size: int | None, target: Target, stream: Stream | None) -> tuple[Stream | None, Data | None]:
    """The next batch and the stream after it.

    The stream is pi_0, pi_1, ... with every pi_e a fresh permutation of the N rows; batch t is its entries t B, ...,
    t B + B - 1, across epochs where it must. So every batch has B rows, no row repeats inside an epoch, and over N
    batches each row comes B times: the mean scaled gradient equals the full one. The batch None is the whole data.
    """
    if stream is None or batch_size is None:
        return None, None
    num_rows = target.num_rows
    rows = jax.lax.dynamic_slice(stream.order.reshape(-1), (stream.start,), (batch_size,))

    def next_epoch(stream: Stream) -> Stream:
        fresh = _permutation(stream.rng_key, stream.epoch, num_rows)
        order = jnp.stack([stream.order[1], fresh])
        return Stream(order, stream.start - num_rows, stream.epoch + 1, stream.rng_key)

    # Runs once or not at all. A `cond` would do, but vectorised over chains it would sort at every step.
    stream = stream._replace(start=stream.start + batch_size)
    stream = jax.lax.while_loop(lambda stream: stream.start >= num_rows, next_epoch, stream)
    return stream, target.data.take(rows)


def _permutation(rng_key: Array, epoch: Any, num_rows: int) -> Int[Array, "rows"]:
    return jax.random.permutation(jax.random.fold_in(rng_key, epoch), num_rows).astype(jnp.int32)
