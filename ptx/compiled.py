"""Compiled programs in one bounded cache: a second call with equal settings neither retraces nor recompiles."""

from collections.abc import Callable, Hashable
from functools import lru_cache, partial
from threading import RLock
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

_TRACING = RLock()  # NumPyro's stack of handlers belongs to the process: two threads must not trace at once


def compiled(
    fn: Callable, static: tuple[Hashable, ...], *args: Any, quickly: bool = False
) -> jax.stages.Compiled:
    """`jax.jit(fn)` with `static` as its leading arguments, lowered and compiled for arguments like `args`.

    What runs once is compiled `quickly`, with the least optimisation: that of a check can take longer than a fit.

    The cache holds the 64 programs used last, keyed by function, static values, tree structure, shapes, dtypes,
    devices and the JAX settings that change what is traced. `fn` must be a module-level function of hashable statics.
    """
    leaves, treedef = jax.tree.flatten(args)
    signatures = tuple(_signature(leaf) for leaf in leaves)
    with _TRACING:
        return _compile(fn, static, treedef, signatures, quickly, _settings())


def call(fn: Callable, *args: Any) -> Any:
    """`fn(*args)`: compiled when called from outside, inlined inside another trace."""
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(args)):
        return fn(*args)
    return compiled(fn, (), *args)(*args)


def _signature(leaf: Any) -> tuple[Any, ...]:
    if not isinstance(leaf, jax.Array):  # a host value goes to whatever device the others are on
        array = np.asarray(leaf)
        return array.shape, array.dtype, False, None
    weak = getattr(leaf, "weak_type", False)  # keys have none
    return leaf.shape, leaf.dtype, weak, leaf.sharding


def _settings() -> tuple[Any, ...]:
    config: Any = jax.config  # its attributes are made at run time
    return config.jax_enable_x64, config.jax_default_matmul_precision, config.jax_debug_nans


@lru_cache(maxsize=64)
def _compile(
    fn: Callable, static: tuple, treedef: Any, signatures: tuple, quickly: bool, settings: tuple
) -> jax.stages.Compiled:
    del settings  # part of the key only
    leaves = [
        jax.ShapeDtypeStruct(shape, dtype, sharding=sharding, weak_type=weak)
        for shape, dtype, weak, sharding in signatures
    ]
    lowered = jax.jit(partial(fn, *static)).lower(*jax.tree.unflatten(treedef, leaves))
    return lowered.compile({"xla_backend_optimization_level": "0"} if quickly else None)
