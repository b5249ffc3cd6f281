"""How a run on disk begins, and how it goes on: with the same model, data and settings, or not at all."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ptx.inference.engine import Engine
from ptx.posterior import is_identity
from ptx.store import checkpoint, data_file, files, fingerprint, layout, manifest, read
from ptx.store.disk import Disk
from ptx.target import Target
from ptx.version import versions

States = list[Any]


def describe(
    target: Target, engine: Engine, rng_key: jax.Array, chain_layout: str, start: str | None
) -> dict[str, Any]:
    """What decides the draws of a run, as plain values; `start` is the digest of given starting positions."""
    config: Any = jax.config
    return {
        "engine": manifest.to_json(engine),
        "model": fingerprint.of_model(target),
        "data": fingerprint.of_data(target.data),
        "rng_key": {
            "implementation": str(jax.random.key_impl(rng_key)),
            "words": [int(word) for word in np.ravel(jax.random.key_data(rng_key))],
        },
        "settings": {
            "dtype": jnp.result_type(float).name,
            "x64": bool(config.jax_enable_x64),
            "matmul_precision": str(config.jax_default_matmul_precision),
            "device": jax.devices()[0].device_kind,
            "chains": "vectorised" if chain_layout == "vectorised" else "one program a chain",
            "init (digest)": start,
        },
    }


def recorded_key(content: dict[str, Any]) -> jax.Array:
    """The key of a stored run.

    Raises:
        ValueError: not a key.
    """
    recorded = content["rng_key"]
    try:
        words = np.asarray(recorded["words"], np.uint32)
        return jax.random.wrap_key_data(jnp.asarray(words), impl=str(recorded["implementation"]))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"manifest: {recorded!r} is no key of JAX ({error})") from error


def new(directory: Path, target: Target, engine: Engine, description: dict[str, Any], states: States) -> Disk:
    """A run at its start, saved.

    Raises:
        OSError: no room, or a directory that cannot be written; before anything is sampled.
    """
    lengths = layout.lengths(target, engine.num_chains, jnp.result_type(float).itemsize)
    layout.variables([site.name for site in target.sites])
    _require_unused(directory)
    files.remove_leftovers(directory)
    files.require_space(directory, _bytes(target, engine, states, lengths))
    content = description | {
        "num_chains": engine.num_chains,
        "lengths": lengths,
        "versions": versions(),
        "steps": 0,
        "save": 0,
        "seconds": 0.0,
        "compile_seconds": 0.0,
    }
    content["data"] = content["data"] | {"structure": data_file.write(directory, target.data)}
    disk = Disk(directory, target, engine, content)
    disk.event("start", engine=repr(engine))
    disk.save(states, "running", {})
    return disk


def _require_unused(directory: Path) -> None:
    """Raise FileExistsError where draws lie that no manifest describes, which a new run would overwrite."""
    root = directory / layout.DRAWS
    if root.exists() and any(path.is_dir() for path in root.iterdir()):
        raise FileExistsError(
            f"{root}: holds draws, and no {manifest.MANIFEST} says of what; choose another directory, or move them away"
        )


def _bytes(target: Target, engine: Engine, states: States, lengths: dict[str, int]) -> int:
    """Bytes on disk at the end: draws (twice where a site is constrained), info of each step, three checkpoints."""
    itemsize = jnp.result_type(float).itemsize
    sizes = [
        math.prod(site.unconstrained_shape) + (0 if is_identity(site.support) else math.prod(site.shape))
        for site in target.sites
    ]
    draw = engine.num_chains * (sum(sizes) + 10) * itemsize
    padded = math.ceil(engine.num_draws / lengths["draw"]) * lengths["draw"]
    state = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(states))
    history = engine.num_chains * (engine.num_steps + lengths["step"]) * 10 * itemsize
    return padded * draw + history + 3 * (state + lengths["draw"] * draw)


def _used(directory: Path) -> int:
    """Bytes of the draws that are there already."""
    return sum(path.stat().st_size for path in (directory / layout.DRAWS).rglob("*") if path.is_file())


def go_on(
    directory: Path, target: Target, engine: Engine, description: dict[str, Any], likes: States
) -> tuple[Disk, States, tuple[str, ...]]:
    """The run as its last whole save left it, its states, and what a reader must know.

    Args:
        likes: abstract states, one for each program of chains.

    Raises:
        ValueError: another model, data, key, dtype, layout or setting, each named; damaged files; an extension that the
            engine cannot do.
    """
    saved = read.load(directory)
    content = saved.content
    require_same(directory, content, description)
    _require_extension(content, engine)
    for group in (*layout.DRAW_GROUPS, *layout.PRIOR_GROUPS, layout.HISTORY):
        for array in read.arrays_of(directory, content, group).values():
            array.check()
    files.require_inside(directory, (layout.DRAWS, layout.CHECKPOINTS))
    files.remove_leftovers(directory)
    impl = description["rng_key"]["implementation"]
    states = [
        checkpoint.restore_state(f"state/{i}", saved.tensors, like, impl) for i, like in enumerate(likes)
    ]
    notes = [f"stored run: {note}" for note in saved.notes]
    changed = fingerprint.differences(content.get("versions"), versions(), "versions")
    if changed:
        notes.append(
            f"resumed under other versions ({'; '.join(changed)}): draws need not be those of one run"
        )
    disk = Disk(directory, target, engine, content | {"engine": description["engine"]})
    disk.load(saved)
    disk.repair()
    is_whole = disk.num_steps >= engine.num_steps and disk.num_draws >= engine.num_draws
    if not (is_whole and disk.is_concluded):
        for name in ("attributes", "findings"):  # of the part of the run that ended here
            disk.content.pop(name, None)
        needed = _bytes(target, engine, states, content["lengths"]) - _used(directory)
        files.require_space(directory, needed)
        disk.event("resume", step=disk.num_steps, draws=disk.num_draws, notes=notes)
        disk.save(states, "running", {})
    return disk, states, tuple(notes)


def require_same(directory: Path, content: dict[str, Any], description: dict[str, Any]) -> None:
    """Raise ValueError, naming every difference, unless a run was made as described; the engine is another check."""
    recorded = {
        name: content[name] for name in ("settings", "rng_key", "data", "model") if name in description
    }
    recorded["data"] = {name: value for name, value in recorded["data"].items() if name != "structure"}
    wanted = {name: description[name] for name in recorded}
    found = fingerprint.differences(recorded, wanted)
    if found:
        raise ValueError(f"{directory} holds a run of something else: {fingerprint.listed(found)}")


def _require_extension(content: dict[str, Any], engine: Engine) -> None:
    """Raise ValueError unless the engine is the recorded one, or the same sampler with more draws."""
    old = manifest.engine_of(content)
    if old == engine:
        return
    longer = {"num_draws": old.num_draws}
    if hasattr(old, "num_cycles"):
        longer["num_cycles"] = old.num_cycles
    new: Any = engine
    same = type(new) is type(old) and new.is_sampler and dataclasses.replace(new, **longer) == old
    if not same or new.num_draws == old.num_draws:
        found = fingerprint.differences(content["engine"], manifest.to_json(engine), "engine")
        raise ValueError(
            f"the stored run has other settings: {'; '.join(found)}; only num_draws of a sampler may grow"
        )
    if content["state"] != "finished" or new.num_draws <= old.num_draws:
        raise ValueError(
            f"the stored run is {content['state']} with num_draws={old.num_draws}, and only a finished one grows, to "
            f"more draws; got num_draws={new.num_draws}"
        )
    cycle = [getattr(each, "steps_per_cycle", None) for each in (old, new)]
    if cycle[0] != cycle[1]:
        raise ValueError(
            f"a cyclical sampler grows by whole cycles of {cycle[0]} steps; with num_draws={new.num_draws} and "
            f"num_cycles={new.num_cycles} a cycle would have {cycle[1]}"
        )
