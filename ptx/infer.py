"""The verb: `infer` runs any engine on any model; it alone owns the loop, chains, chunks, devices and progress."""

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ptx import chunk, layout
from ptx.findings import empty, finish
from ptx.inference.engine import Engine
from ptx.memory import require_memory
from ptx.posterior import Posterior
from ptx.progress import Show, display, interrupts
from ptx.start import as_key, starts
from ptx.target import Target, lower

CHUNK_SECONDS = 2.0


def infer(
    rng_key: Any,
    model: Any,
    data: Any,
    engine: Engine,
    *,
    init: Any = None,
    progress: bool = True,
    chain_layout: str = "auto",
    chunk_size: int | None = None,
) -> Posterior:
    """Draw from p(latent sites | data) with an engine.

    Args:
        rng_key: a JAX key, or an integer seed in [0, 2**32).
        model: a NumPyro program `model(inputs, targets=None)`, such as `ptx.models.bayesian(...)`.
        data: `ptx.Data`, or a pair (inputs, targets).
        engine: settings of an algorithm, from `ptx.inference`.
        init: where chains start: a position (site -> unconstrained values, with or without a leading chain axis) or
            a `Posterior`, whose chains' last draws are used. Default: `Target.initial_position`.
        progress: show a progress bar on a terminal.
        chain_layout: `auto` (one thread a chain), `threads`, `loop`, `devices` (chains dealt over all devices), or
            `vectorised` (one program for all chains; equal in distribution, last bits differ).
        chunk_size: steps between two looks at the clock and at Ctrl-C; default about two seconds' worth. It changes
            no draw.

    A draw depends on (seed, chain, step, settings) alone: chunk size, interruption and layout (but `vectorised`)
    change nothing, bit for bit, on one machine and set of versions. Kept draws leave the device chunk by chunk.
    Ctrl-C ends the run after the present chunk and returns the draws so far, with a finding; a second one raises.

    Raises:
        TypeError, ValueError: bad data, model, engine, key or start; before anything is compiled where possible.
        FloatingPointError: no start with a finite log density was found; the message names the sites.
        MemoryError: the run cannot fit; with the figures.
    """
    rng_key = as_key(rng_key)
    chain_layout = layout.resolve(chain_layout)
    if chunk_size is not None and (not isinstance(chunk_size, int) or chunk_size < 1):
        raise ValueError(f"chunk_size: expected a positive integer or None, got {chunk_size!r}")
    if isinstance(engine, type) or not hasattr(engine, "is_sampler"):
        raise TypeError(f"engine: expected an engine such as ptx.inference.NUTS(), got {engine!r}")
    target = lower(model, data)
    findings = engine.check(target)
    begun = time.perf_counter()
    if not target.sites:
        return empty(target, engine, chain_layout)
    with display(engine, progress) as show, interrupts() as stop:
        show("compiling", 0, {})
        run = _prepare(rng_key, target, engine, init, chain_layout)
        compile_seconds = time.perf_counter() - begun
        positions, history, num_done = _run_steps(run, chunk_size, show, stop)
        if not engine.is_sampler:
            show("drawing", engine.num_steps, {})
            positions = _run_draws(run)
    seconds = time.perf_counter() - begun
    attributes = {"seconds": seconds, "compile_seconds": compile_seconds, "chain_layout": chain_layout}
    attributes |= {"seed": [int(word) for word in np.ravel(jax.random.key_data(rng_key))]}
    attributes |= {"num_steps": num_done, "device": run.lanes[0].device.device_kind}
    return finish(target, engine, positions, history, attributes, findings)


class _Run(NamedTuple):
    target: Target
    engine: Engine
    lanes: list[layout.Lane]
    num_workers: int
    targets: list[Target]  # one a lane, on its device
    step_keys: list[Any]
    draw_keys: list[Any]
    states: list[Any]  # one a lane, replaced chunk by chunk
    program: list[Any]


def _prepare(rng_key: Any, target: Target, engine: Engine, init: Any, chain_layout: str) -> _Run:
    """Start every chain, compile its chunk and check that the run fits in memory."""
    lanes = layout.lanes(chain_layout, engine.num_chains)
    num_workers = layout.workers(chain_layout, len(lanes))
    begun = starts(rng_key, target, engine, init)
    states = [layout.stack(lane, [begun[chain] for chain in lane.chains]) for lane in lanes]

    def keys(stream: int) -> list[Any]:
        return [
            layout.stack(lane, [chunk.chain_key(rng_key, c, stream) for c in lane.chains]) for lane in lanes
        ]

    targets = [jax.device_put(target, lane.device) for lane in lanes]
    step_keys, draw_keys = keys(chunk.CHAIN_STEPS), keys(chunk.CHAIN_DRAWS)
    static = (engine, chunk.capacity(engine, target))
    program = [
        layout.lane_program(
            lane, chunk.steps, static, targets[i], step_keys[i], states[i], np.int32(0), np.int32(1)
        )
        for i, lane in enumerate(lanes)
    ]
    kept_bytes = _kept_bytes(engine, target)
    require_memory(program, num_workers, kept_bytes, lanes[0].device)
    return _Run(target, engine, lanes, num_workers, targets, step_keys, draw_keys, states, program)


def _kept_bytes(engine: Engine, target: Target) -> int:
    size = sum(int(np.prod(site.unconstrained_shape)) for site in target.sites)
    itemsize = jnp.result_type(float).itemsize
    return engine.num_chains * (engine.num_draws * size * itemsize + engine.num_steps * 8 * itemsize)


def _run_steps(run: _Run, chunk_size: int | None, show: Show, stop: Any) -> tuple[dict, dict, int]:
    """Advance all chains chunk by chunk; kept positions (chain, draw), history (chain, step), steps done."""
    engine, first, kept = run.engine, 0, 0
    positions: dict[str, np.ndarray] = {}
    history: dict[str, np.ndarray] = {}
    count = chunk_size or 10
    while first < engine.num_steps and (first == 0 or not stop.is_set()):
        count = _count(engine, run.target, first, count)
        begun = time.perf_counter()
        new_positions, new_history = _run_chunk(run, first, count)
        positions = _append(positions, new_positions, kept, engine.num_draws)
        history = _append(history, new_history, first, engine.num_steps)
        first += count
        kept += next((values.shape[1] for values in new_positions.values()), 0)
        show("sampling" if engine.is_sampler else "fitting", first, new_history)
        if chunk_size is None:
            elapsed = max(time.perf_counter() - begun, 1e-6)
            count = int(np.clip(count * CHUNK_SECONDS / elapsed, 1, 8 * count))
        else:
            count = chunk_size
    trim = lambda arrays, size: {name: values[:, :size] for name, values in arrays.items()}  # noqa: E731
    return trim(positions, kept), trim(history, first), first


def _append(arrays: dict, new: dict, start: int, size: int) -> dict[str, np.ndarray]:
    """`new` written at `start` along axis 1 of host arrays of length `size`, which are made at first use."""
    for name, values in new.items():
        if name not in arrays:
            arrays[name] = np.empty((values.shape[0], size, *values.shape[2:]), values.dtype)
        arrays[name][:, start : start + values.shape[1]] = values
    return arrays


def _count(engine: Engine, target: Target, first: int, wanted: int) -> int:
    """Steps of the next chunk: no more than its buffers hold."""
    max_kept, max_steps = chunk.capacity(engine, target)
    count = min(wanted, max_steps, engine.num_steps - first)
    kept = np.cumsum(np.broadcast_to(engine.keeps(np.arange(first, first + count)), count))
    return int(np.searchsorted(kept, max_kept, side="right")) if kept[-1] > max_kept else count


def _run_chunk(run: _Run, first: int, count: int) -> tuple[dict, dict]:
    def advance(i: int) -> tuple[dict, dict]:
        lane = run.lanes[i]
        out = run.program[i](
            run.targets[i], run.step_keys[i], run.states[i], np.int32(first), np.int32(count)
        )
        run.states[i] = out.state
        kept = int(np.max(out.kept))
        positions = jax.tree.map(lambda rows: rows[:, :kept], layout.to_host(lane, out.positions))
        return positions, jax.tree.map(lambda rows: rows[:, :count], layout.to_host(lane, out.history))

    return _join_lanes(layout.map_lanes(advance, len(run.lanes), run.num_workers))


def _join_lanes(parts: list[Any]) -> Any:
    return jax.tree.map(lambda *arrays: np.concatenate(arrays, axis=0), *parts)


def _run_draws(run: _Run) -> dict[str, np.ndarray]:
    """`num_draws` draws of each chain's approximation, a buffer at a time."""
    max_kept, _ = chunk.capacity(run.engine, run.target)
    positions: dict[str, np.ndarray] = {}
    for first in range(0, run.engine.num_draws, max_kept):
        count = min(max_kept, run.engine.num_draws - first)

        def draw(i: int, first: int = first, count: int = count) -> dict[str, np.ndarray]:
            args = (run.targets[i], run.draw_keys[i], run.states[i], np.int32(first), np.int32(count))
            program = layout.lane_program(run.lanes[i], chunk.draws, (run.engine, max_kept), *args)
            return jax.tree.map(lambda rows: rows[:, :count], layout.to_host(run.lanes[i], program(*args)))

        drawn = _join_lanes(layout.map_lanes(draw, len(run.lanes), run.num_workers))
        positions = _append(positions, drawn, first, run.engine.num_draws)
    return positions
