"""The compiled programs of one chain: its start, a chunk of its steps, and draws of an approximation.

The identity of a draw is the compiled one-chain chunk that returns its whole carry; every layout but the vectorised
one runs this program unchanged. The number of steps is an argument, so chunks of any length are the same program.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ptx.target import Position, Target
from ptx.threefry import fused

CHAIN_START, CHAIN_STEPS, CHAIN_DRAWS = 0, 1, 2  # streams of a chain's key
BUFFER_BYTES = 32 * 2**20  # kept draws a chunk may hold on the device
BUFFER_ROWS = 4096


class Chunk(NamedTuple):
    """State after the chunk, kept positions (the first `kept` are valid) and the info of each step."""

    state: Any
    kept: Array
    positions: Position
    history: dict[str, Array]


def capacity(engine: Any, target: Target) -> tuple[int, int]:
    """Kept draws and steps that one chunk can hold; fixed by sizes alone, never by timing."""
    row_bytes = sum(8 * max(1, _size(site.unconstrained_shape)) for site in target.sites)
    kept = max(1, min(engine.num_draws, BUFFER_ROWS, BUFFER_BYTES // max(row_bytes, 1)))
    return kept, max(1, min(engine.num_steps, BUFFER_ROWS))


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


def chain_key(rng_key: Array, chain: int, stream: int) -> Array:
    """The key of one chain's start, steps or draws."""
    return jax.random.fold_in(jax.random.fold_in(rng_key, chain), stream)


def start_position(target: Target, rng_key: Array, attempt: Array) -> tuple[Position, Array]:
    """A fresh start and the key of the state there.

    A program without the engine: drawing every site takes long to compile, and one compilation serves all engines.
    """
    key_position, key_state = jax.random.split(jax.random.fold_in(rng_key, attempt))
    return target.initial_position(key_position), key_state


def start_at(engine: Any, target: Target, rng_key: Array, position: Position) -> Any:
    """State at a given position."""
    return _strong(engine.init(rng_key, target, position))


def _strong(state: Any) -> Any:
    """The state with no weakly typed leaf, as a loop that carries it needs."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.asarray(leaf).dtype), state)


def steps(
    engine: Any,
    buffer: tuple[int, int],
    target: Target,
    rng_key: Array,
    state: Any,
    first: Array,
    count: Array,
) -> Chunk:
    """Steps `first, ..., first + count - 1` of one chain; step t uses `fold_in(rng_key, t)`."""
    max_kept, max_steps = buffer

    def step(state: Any, index: Array) -> tuple[Any, dict[str, Array], Position]:
        key_step, key_draw = jax.random.split(jax.random.fold_in(rng_key, index))
        state, info = engine.step(fused(key_step), target, state, index)
        return state, info, engine.draw(key_draw, target, state) if engine.is_sampler else {}

    def body(offset: Array, carry: Chunk) -> Chunk:
        state, info, position = step(carry.state, first + offset)
        positions = jax.tree.map(lambda rows, row: rows.at[carry.kept].set(row), carry.positions, position)
        history = jax.tree.map(lambda rows, row: rows.at[offset].set(row), carry.history, info)
        # A draw that is not kept is overwritten by the next one: cheaper than a branch.
        return Chunk(
            state, carry.kept + jnp.asarray(engine.keeps(first + offset), jnp.int32), positions, history
        )

    _, info, position = jax.eval_shape(step, state, first)
    empty = Chunk(
        state,
        jnp.int32(0),
        jax.tree.map(lambda row: jnp.zeros((max_kept + 1, *row.shape), row.dtype), position),
        jax.tree.map(lambda row: jnp.zeros((max_steps, *row.shape), row.dtype), info),
    )
    return jax.lax.fori_loop(0, count, body, empty)


def draws(
    engine: Any, max_kept: int, target: Target, rng_key: Array, state: Any, first: Array, count: Array
) -> Position:
    """Draws `first, ..., first + count - 1` of an approximation."""

    def body(offset: Array, positions: Position) -> Position:
        position = engine.draw(jax.random.fold_in(rng_key, first + offset), target, state)
        return jax.tree.map(lambda rows, row: rows.at[offset].set(row), positions, position)

    position = jax.eval_shape(lambda: engine.draw(rng_key, target, state))
    empty = jax.tree.map(lambda row: jnp.zeros((max_kept, *row.shape), row.dtype), position)
    return jax.lax.fori_loop(0, count, body, empty)
