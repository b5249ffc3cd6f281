"""The verbs: `infer` runs any engine on any model; `resume` goes on with a run that was stored."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ptx import layout
from ptx.drive import Run, lane_shapes, lane_starts, prepare, run_draws, run_steps
from ptx.findings import empty, finish
from ptx.inference.engine import Engine
from ptx.kept import Kept, Memory
from ptx.lowering import lower
from ptx.posterior import Posterior
from ptx.progress import display, interrupts
from ptx.start import as_key, given
from ptx.store import begin, data_file, files, fingerprint, manifest, read
from ptx.target import Target


def infer(
    rng_key: Any,
    model: Any,
    data: Any,
    engine: Engine,
    *,
    init: Any = None,
    store: str | Path | None = None,
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
        store: a directory for the run. Draws leave memory for it as they come, and the whole state is saved every
            few seconds, so that nothing is lost: see `ptx.store` for the files. Where it holds an unfinished run of
            the same model, data, key and settings, that run goes on; a finished one is extended by a sampler with
            more `num_draws` (cyclical ones: by whole cycles), and returned as it is by an equal engine.
        progress: on a terminal a table with a row a chain (phase, step, draws, step size, acceptance or loss, time
            left, gradients a second) and a live R-hat of what the network computes; elsewhere a line every few seconds
            on the standard error; nothing where the environment variable CI is set. It changes no draw.
        chain_layout: `auto` (one thread a chain), `threads`, `loop`, `devices` (chains dealt over all devices), or
            `vectorised` (one program for all chains; equal in distribution, last bits differ).
        chunk_size: steps between two looks at the clock and at Ctrl-C; default about two seconds' worth. It changes
            no draw.

    A draw depends on (seed, chain, step, settings) alone: chunk size, interruption, resumption and layout (but
    `vectorised`) change nothing, bit for bit, on one machine and set of versions. Kept draws leave the device chunk by
    chunk. Ctrl-C or SIGTERM ends the run after the present chunk, saves it and returns the draws so far, with a
    finding; a second one stops at once.

    Raises:
        TypeError, ValueError: bad data, model, engine, key or start, before anything is compiled where possible; a
            stored run of something else, or damaged.
        FloatingPointError: no start with a finite log density was found; the message names the sites.
        MemoryError: the run cannot fit; with the figures.
        OSError: the store cannot be written, or has no room; with path and bytes. BlockingIOError: it is in use.
    """
    rng_key = as_key(rng_key)
    chain_layout = layout.resolve(chain_layout)
    chunk_size = _checked_size(chunk_size)
    if isinstance(engine, type) or not hasattr(engine, "is_sampler"):
        raise TypeError(f"engine: expected an engine such as ptx.inference.NUTS(), got {engine!r}")
    target = lower(model, data, amortised=not engine.is_sampler)
    findings = engine.check(target)
    if not target.sites:
        return empty(target, engine, chain_layout)
    init = None if init is None else given(target, init, engine.num_chains)
    job = _Job(rng_key, target, engine, chain_layout, init, fingerprint.of_start(init))
    if store is None:
        return _infer(job, None, findings, progress, chunk_size)
    with files.locked(Path(store)):
        return _infer(job, Path(store), findings, progress, chunk_size)


def resume(
    path: str | Path, model: Any, data: Any = None, *, progress: bool = True, chunk_size: int | None = None
) -> Posterior:
    """Go on with a stored run to its end, as if it had never stopped; a finished one is returned as it is.

    Args:
        path: the directory given to `infer` as `store`.
        model: the model of the run; code is not stored.
        data: the data of the run; by default those that the run stored.
        progress: as in `infer`.
        chunk_size: as in `infer`. Engine, key and chain layout are the run's own.

    Raises:
        FileNotFoundError: no run there. Otherwise as `infer`: every difference is named.
    """
    directory, chunk_size = Path(path), _checked_size(chunk_size)
    read.require_run(directory)
    with files.locked(directory):
        content = read.load(directory, with_state=False).content
        engine = manifest.engine_of(content)
        rng_key = begin.recorded_key(content)
        rows = data_file.read(directory, content["data"]) if data is None else data
        target = lower(model, rows, amortised=not engine.is_sampler)
        chain_layout = "vectorised" if content["settings"].get("chains") == "vectorised" else "threads"
        findings = engine.check(target)
        job = _Job(rng_key, target, engine, chain_layout, None, content["settings"].get("init (digest)"))
        return _infer(job, directory, findings, progress, chunk_size)


def _checked_size(chunk_size: Any) -> int | None:
    if chunk_size is None:
        return None
    if not isinstance(chunk_size, (int, np.integer)) or isinstance(chunk_size, bool) or chunk_size < 1:
        raise ValueError(f"chunk_size: expected a positive integer or None, got {chunk_size!r}")
    return int(chunk_size)


def _infer(
    job: "_Job", directory: Path | None, findings: tuple[str, ...], progress: bool, chunk_size: int | None
) -> Posterior:
    """Start or load the run, drive it to its end, and say what came out."""
    clock, engine = _Clock(), job.engine
    with display(engine, progress, job.target) as show, interrupts() as stop:
        show("compiling", 0, {})
        kept, states, notes = _begin(job, directory)
        clock.add(getattr(kept, "content", {}))
        is_new, reason = not kept.is_concluded, None
        drawn: Kept = kept
        if is_new:
            in_memory = directory is None
            run = prepare(job.rng_key, job.target, engine, states, job.chain_layout, in_memory)
            clock.compiled()
            phase = "sampling" if engine.is_sampler else "fitting"
            show(phase, kept.num_steps, {}, None, kept.num_draws)
            with _saving(kept, run, clock) as save:
                reason = run_steps(run, kept, chunk_size, show, stop, save)
                if not engine.is_sampler:
                    show("drawing", kept.num_steps, {})
                    # Draws of an unfinished approximation serve now, and are not those of the finished one.
                    drawn = kept if kept.num_steps == engine.num_steps else Memory(engine)
                    run_draws(run, drawn, stop, save if drawn is kept else None)
                save(_state(kept, engine, reason))
    arrays = kept.arrays()
    if drawn is not kept:
        arrays = arrays._replace(draws=drawn.arrays().draws, parameters=None)
    attributes = (clock.seconds() if is_new else clock.before) | {
        "chain_layout": job.chain_layout,
        "seed": [int(word) for word in np.ravel(jax.random.key_data(job.rng_key))],
        "num_steps": kept.num_steps,
        "interrupted": not _is_done(kept, engine),
        "stopped": reason,
        "device": layout.lanes(job.chain_layout, engine.num_chains)[0].device.device_kind,
    }
    posterior = finish(job.target, engine, arrays, attributes, (*findings, *notes))
    if is_new:
        kept.conclude(posterior.attributes, posterior.findings)
    return posterior


class _Job(NamedTuple):
    """What is to be run; `start` is the digest of given starting positions."""

    rng_key: jax.Array
    target: Target
    engine: Engine
    chain_layout: str
    init: Any
    start: str | None


def _begin(job: _Job, directory: Path | None) -> tuple[Kept, list[Any], tuple[str, ...]]:
    """Where draws go, and the state of each lane: fresh, or as a stored run left them."""
    rng_key, target, engine, chain_layout, init, start = job
    if directory is None:
        return Memory(engine), lane_starts(rng_key, target, engine, init, chain_layout), ()
    description = begin.describe(target, engine, rng_key, chain_layout, start)
    if read.exists(directory):
        likes = lane_shapes(rng_key, target, engine, chain_layout)
        return begin.go_on(directory, target, engine, description, likes)
    states = lane_starts(rng_key, target, engine, init, chain_layout)
    return begin.new(directory, target, engine, description, states), states, ()


def _state(kept: Kept, engine: Engine, reason: str | None) -> str:
    if _is_done(kept, engine):
        return "finished"
    return "stopped" if reason else "interrupted"


def _is_done(kept: Kept, engine: Engine) -> bool:
    return kept.num_steps >= engine.num_steps and kept.num_draws >= engine.num_draws


class _Clock:
    """Seconds of this run, and of those before it that it goes on from."""

    def __init__(self) -> None:
        self.begun = time.perf_counter()
        self.before = {"seconds": 0.0, "compile_seconds": 0.0}
        self.compile_seconds = 0.0

    def add(self, before: dict[str, Any]) -> None:
        self.before = {name: float(before.get(name, 0.0)) for name in self.before}

    def compiled(self) -> None:
        self.compile_seconds = time.perf_counter() - self.begun

    def seconds(self) -> dict[str, float]:
        now = {"seconds": time.perf_counter() - self.begun, "compile_seconds": self.compile_seconds}
        return {name: self.before[name] + now[name] for name in now}


@contextmanager
def _saving(kept: Kept, run: Run, clock: _Clock) -> Iterator[Any]:
    """`save(state)`; an error on the way is noted in the run's event log, where that can be written."""
    try:
        yield lambda state: kept.save(run.states, state, clock.seconds())
    except BaseException as error:
        with suppress(OSError):  # a full disk: the error itself says so
            kept.settle()
        with suppress(OSError):
            kept.event("error", error=f"{type(error).__name__}: {error}"[:1000])
        raise
