"""How whole chains are spread over threads and devices. None of it changes a chain's numbers but `vectorised`."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from ptx.compiled import compiled

LAYOUTS = ("auto", "threads", "loop", "devices", "vectorised")


class Lane(NamedTuple):
    """Chains that advance in one program: one chain on one device, or all of them vectorised."""

    chains: tuple[int, ...]
    device: jax.Device  # pyright: ignore[reportInvalidTypeForm]


def resolve(chain_layout: str) -> str:
    """The layout that a name stands for: `auto` is one thread a chain, and never depends on timing.

    Raises:
        ValueError: an unknown name, or `devices` where there is only one.
    """
    if chain_layout not in LAYOUTS:
        raise ValueError(f"chain_layout: expected one of {', '.join(LAYOUTS)}; got {chain_layout!r}")
    if chain_layout == "devices" and len(jax.local_devices()) < 2:
        raise ValueError(
            "chain_layout='devices': JAX sees one device here; use 'threads', or on CPU start Python with "
            "XLA_FLAGS=--xla_force_host_platform_device_count=2"
        )
    return "threads" if chain_layout == "auto" else chain_layout


def lanes(chain_layout: str, num_chains: int) -> list[Lane]:
    """One lane a chain, on the present device (`threads`, `loop`) or in turn on all (`devices`); or one for all."""
    devices = jax.local_devices()
    here = getattr(jax.config, "jax_default_device", None) or devices[0]
    if chain_layout == "vectorised":
        return [Lane(tuple(range(num_chains)), here)]
    if chain_layout == "devices":
        return [Lane((chain,), devices[chain % len(devices)]) for chain in range(num_chains)]
    return [Lane((chain,), here) for chain in range(num_chains)]


def workers(chain_layout: str, num_lanes: int) -> int:
    """Lanes that run at the same time."""
    return 1 if chain_layout == "loop" else min(num_lanes, max(os.cpu_count() or 1, len(jax.local_devices())))


def map_lanes(fn: Callable[[int], Any], num_lanes: int, num_workers: int) -> list[Any]:
    """`[fn(0), fn(1), ...]`, in threads where there are several workers."""
    if num_workers == 1:
        return [fn(lane) for lane in range(num_lanes)]
    with ThreadPoolExecutor(num_workers) as pool:
        return list(pool.map(fn, range(num_lanes)))


def lane_program(lane: Lane, fn: Callable, static: tuple, *args: Any) -> jax.stages.Compiled:
    """The compiled `fn(*static, target, key, state, ...)` of a lane, vectorised where it holds several chains."""
    if len(lane.chains) == 1:
        return compiled(fn, static, *args)
    return compiled(_vectorised, (fn, static), *args)


def _vectorised(fn: Callable, static: tuple, target: Any, rng_key: Any, state: Any, *shared: Any) -> Any:
    over_chain = jax.vmap(lambda key, chain_state: fn(*static, target, key, chain_state, *shared))
    return over_chain(rng_key, state)


def stack(lane: Lane, chains: list[Any]) -> Any:
    """The lane's argument from one value a chain, on the lane's device."""
    value = (
        chains[0] if len(lane.chains) == 1 else jax.tree.map(lambda *leaves: jax.numpy.stack(leaves), *chains)
    )
    return jax.device_put(value, lane.device)


def to_host(lane: Lane, value: Any) -> Any:
    """NumPy arrays with a leading chain axis."""
    return jax.tree.map(
        lambda leaf: np.asarray(leaf)[None] if len(lane.chains) == 1 else np.asarray(leaf), value
    )
