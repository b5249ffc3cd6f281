"""The loop: every chain in compiled chunks, all chains equally far, draws leaving for the place where they are kept."""

import time
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ptx import chunk, layout
from ptx.inference.engine import Engine
from ptx.kept import Kept
from ptx.memory import require_memory
from ptx.progress import Show
from ptx.start import starts
from ptx.target import Target
from ptx.watch import Watch

CHUNK_SECONDS = 2.0


class Run(NamedTuple):
    """Chains on their devices, and the compiled chunk of each."""

    target: Target
    engine: Engine
    lanes: list[layout.Lane]
    num_workers: int
    targets: list[Target]  # one a lane, on its device
    step_keys: list[Any]
    draw_keys: list[Any]
    states: list[Any]  # one a lane, replaced chunk by chunk
    buffer: list[
        tuple[int, int]
    ]  # kept draws and steps that a chunk holds, the one entry; halved where memory ran out


def lane_starts(rng_key: Any, target: Target, engine: Engine, init: Any, chain_layout: str) -> list[Any]:
    """The state of each lane before its first step."""
    begun = starts(rng_key, target, engine, init)
    return [
        layout.stack(lane, [begun[chain] for chain in lane.chains])
        for lane in layout.lanes(chain_layout, engine.num_chains)
    ]


def lane_shapes(rng_key: Any, target: Target, engine: Engine, chain_layout: str) -> list[Any]:
    """The abstract state of each lane."""

    def one(key: Any) -> Any:
        return chunk.start_at(engine, target, key, target.initial_position(key))

    shapes = []
    for lane in layout.lanes(chain_layout, engine.num_chains):
        keys = layout.stack(lane, [rng_key] * len(lane.chains))
        shapes.append(jax.eval_shape(one if len(lane.chains) == 1 else jax.vmap(one), keys))
    return shapes


def prepare(
    rng_key: Any, target: Target, engine: Engine, states: list[Any], chain_layout: str, in_memory: bool
) -> Run:
    """Compile the chunk of every chain and check that the run fits in memory."""
    lanes = layout.lanes(chain_layout, engine.num_chains)
    num_workers = layout.workers(chain_layout, len(lanes))
    states = [jax.device_put(state, lane.device) for lane, state in zip(lanes, states, strict=True)]

    def keys(stream: int) -> list[Any]:
        return [
            layout.stack(lane, [chunk.chain_key(rng_key, c, stream) for c in lane.chains]) for lane in lanes
        ]

    targets = [jax.device_put(target, lane.device) for lane in lanes]
    step_keys, draw_keys = keys(chunk.CHAIN_STEPS), keys(chunk.CHAIN_DRAWS)
    buffer = [chunk.capacity(engine, target)]
    run = Run(target, engine, lanes, num_workers, targets, step_keys, draw_keys, states, buffer)
    kept_bytes = _kept_bytes(engine, target) if in_memory else 0
    require_memory([_program(run, i) for i in range(len(lanes))], num_workers, kept_bytes, lanes[0].device)
    return run


def _program(run: Run, i: int) -> jax.stages.Compiled:
    """The compiled chunk of a lane; its number of steps is an argument."""
    static, args = (run.engine, run.buffer[0]), (run.targets[i], run.step_keys[i], run.states[i])
    return layout.lane_program(run.lanes[i], chunk.steps, static, *args, np.int32(0), np.int32(1))


def _kept_bytes(engine: Engine, target: Target) -> int:
    size = sum(int(np.prod(site.unconstrained_shape)) for site in target.sites)
    itemsize = jnp.result_type(float).itemsize
    return engine.num_chains * (engine.num_draws * size * itemsize + engine.num_steps * 8 * itemsize)


def run_steps(run: Run, kept: Kept, chunk_size: int | None, show: Show, stop: Any, save: Any) -> str | None:
    """Advance all chains chunk by chunk to the last step, or to the chunk in which `stop` was set.

    Returns the reason, in words, where a chain can go no further; all end with that very step, whatever the chunks.
    """
    engine, watch = run.engine, Watch(run.engine, run.target)
    reason = watch.recall(kept.num_steps, kept.arrays().history)
    count = chunk_size or 10
    begun_at = kept.num_steps
    while kept.num_steps < engine.num_steps and not reason:
        if kept.num_steps > begun_at and stop.is_set():
            break
        first, before, begun = kept.num_steps, list(run.states), time.perf_counter()
        positions, history, done = _run_chunk(run, first, count, kept)
        reason = watch.look(first, history)
        if reason and reason.step + 1 < first + done:
            run.states[:] = before
            positions, history, done = _run_chunk(run, first, reason.step + 1 - first, kept)
        kept.add(positions, history, done)
        phase = "sampling" if engine.is_sampler else "fitting"
        show(phase, kept.num_steps, history, positions, kept.num_draws)
        if kept.due():
            save("running")
        if chunk_size is None:
            elapsed = max(time.perf_counter() - begun, 1e-6)
            count = int(np.clip(done * CHUNK_SECONDS / elapsed, 1, 8 * done))
    return reason.text if reason else None


def _count(run: Run, first: int, wanted: int) -> int:
    """Steps of the next chunk: no more than its buffers hold."""
    engine, (max_kept, max_steps) = run.engine, run.buffer[0]
    count = min(wanted, max_steps, engine.num_steps - first)
    kept = np.cumsum(np.broadcast_to(engine.keeps(np.arange(first, first + count)), count))
    return int(np.searchsorted(kept, max_kept, side="right")) if kept[-1] > max_kept else count


def _run_chunk(run: Run, first: int, wanted: int, kept: Kept) -> tuple[dict, dict, int]:
    """Kept positions, history and number of the next steps of all chains; where memory runs out, of half as many."""
    while True:
        count = _count(run, first, wanted)
        # Compiled here: a thread would not see settings of this one, such as `jax.enable_x64(True)`.
        programs = [_program(run, i) for i in range(len(run.lanes))]
        advance = partial(_advance, run, programs, first, count)
        try:
            parts = layout.map_lanes(advance, len(run.lanes), run.num_workers)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error) or run.buffer[0] == (1, 1):
                raise
            max_kept, max_steps = run.buffer[0]
            run.buffer[0] = max(1, max_kept // 2), max(1, max_steps // 2)
            kept.event("out of memory", step=first, buffer=run.buffer[0], error=str(error)[:300])
            continue
        run.states[:] = [state for state, _, _ in parts]  # only when every chain has arrived
        positions, history = (_join_lanes([part[i] for part in parts]) for i in (1, 2))
        return positions, history, count


def _advance(run: Run, programs: list[Any], first: int, count: int, i: int) -> tuple[Any, dict, dict]:
    """State, kept positions and history of one lane."""
    lane, args = run.lanes[i], (run.targets[i], run.step_keys[i], run.states[i])
    out = programs[i](*args, np.int32(first), np.int32(count))
    kept = int(np.max(out.kept))
    positions = jax.tree.map(lambda rows: rows[:, :kept], layout.to_host(lane, out.positions))
    return out.state, positions, jax.tree.map(lambda rows: rows[:, :count], layout.to_host(lane, out.history))


def _join_lanes(parts: list[Any]) -> Any:
    return jax.tree.map(lambda *arrays: np.concatenate(arrays, axis=0), *parts)


def run_draws(run: Run, kept: Kept, stop: Any, save: Any) -> None:
    """`num_draws` draws of each chain's approximation, a buffer at a time."""
    max_kept, _ = chunk.capacity(run.engine, run.target)
    begun_at = kept.num_draws
    while kept.num_draws < run.engine.num_draws and (kept.num_draws == begun_at or not stop.is_set()):
        first = kept.num_draws
        count = min(max_kept, run.engine.num_draws - first)

        args = [
            (run.targets[i], run.draw_keys[i], run.states[i], np.int32(first), np.int32(count))
            for i in range(len(run.lanes))
        ]
        static = (run.engine, max_kept)
        programs = [
            layout.lane_program(run.lanes[i], chunk.draws, static, *args[i]) for i in range(len(args))
        ]

        def draw(
            i: int, args: Any = args, programs: Any = programs, count: int = count
        ) -> dict[str, np.ndarray]:
            rows = layout.to_host(run.lanes[i], programs[i](*args[i]))
            return jax.tree.map(lambda values: values[:, :count], rows)

        kept.add(_join_lanes(layout.map_lanes(draw, len(run.lanes), run.num_workers)), {}, 0)
        if save is not None and kept.due():
            save("running")
