"""Where chains start: keys, given positions, and a search for a finite log density."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ptx import chunk
from ptx.compiled import compiled
from ptx.posterior import Posterior
from ptx.target import Position, Target

ATTEMPTS = 100


def as_key(rng_key: Any) -> jax.Array:
    """A typed JAX key from a key (typed or legacy) or an integer seed in [0, 2**32).

    Raises:
        TypeError, ValueError: anything else; a seed outside the range would be cut silently.
    """
    if isinstance(rng_key, np.ndarray) and rng_key.shape == () and rng_key.dtype.kind in "iu":
        rng_key = int(rng_key)
    if isinstance(rng_key, bool) or not isinstance(rng_key, (int, np.integer, np.ndarray, jax.Array)):
        raise TypeError(f"rng_key: expected a JAX key or an integer seed, got {rng_key!r}")
    if isinstance(rng_key, (int, np.integer)):
        if not 0 <= int(rng_key) < 2**32:
            raise ValueError(
                f"rng_key: expected an integer seed in [0, 2**32), got {rng_key}; or pass jax.random.key(...)"
            )
        return jax.random.wrap_key_data(jnp.array([0, int(rng_key)], jnp.uint32), impl="threefry2x32")
    array = jnp.asarray(rng_key)
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        if array.shape != ():
            raise ValueError(
                f"rng_key: expected one key, got an array of keys of shape {array.shape}; pass one of them"
            )
        return array
    if array.dtype != jnp.uint32 or array.ndim != 1:
        raise TypeError(
            f"rng_key: expected a JAX key or an integer seed, got {array.dtype} of shape {array.shape}"
        )
    if array.shape != jax.random.key_data(jax.random.key(0)).shape:
        raise ValueError(
            f"rng_key: legacy key data of shape {array.shape}; make it with jax.random.key(seed)"
        )
    return jax.random.wrap_key_data(array)


def starts(rng_key: jax.Array, target: Target, engine: Any, init: Position | None) -> list[Any]:
    """The state of each chain before its first step; `init` is what `given` returns, or None.

    Raises:
        FloatingPointError: no finite start in 100 attempts, or the given one is not finite; the sites are named.
    """
    keys = [chunk.chain_key(rng_key, chain, chunk.CHAIN_START) for chain in range(engine.num_chains)]
    if init is not None:
        positions = [
            {name: values[chain] for name, values in init.items()} for chain in range(engine.num_chains)
        ]
        return [_start_at(target, engine, *pair) for pair in zip(keys, positions, strict=True)]
    return [_start(target, engine, key) for key in keys]


def _start(target: Target, engine: Any, key: jax.Array) -> Any:
    program = compiled(chunk.start_position, (), target, key, np.int32(0), quickly=True)
    position = {}
    for attempt in range(ATTEMPTS):
        position, key_state = program(target, key, np.int32(attempt))
        state = _state_at(target, engine, key_state, position)
        if _finite(state):
            return state
    raise FloatingPointError(
        f"no start with a finite log density in {ATTEMPTS} attempts; {_blame(target, position)}; "
        "check the model, or pass init="
    )


def _start_at(target: Target, engine: Any, key: jax.Array, position: Position) -> Any:
    state = _state_at(target, engine, key, position)
    if not _finite(state):
        raise FloatingPointError(f"the given start has no finite log density; {_blame(target, position)}")
    return state


def _state_at(target: Target, engine: Any, key: jax.Array, position: Position) -> Any:
    return compiled(chunk.start_at, (engine,), target, key, position)(target, key, position)


def _finite(state: Any) -> bool:
    """In NumPy, as JAX would compile a look at each shape."""
    floats = [leaf for leaf in jax.tree.leaves(state) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return all(np.isfinite(np.asarray(leaf)).all() for leaf in floats)


def _blame(target: Target, position: Position) -> str:
    """Which terms are not finite there."""
    halves = compiled(_halves, (), target, position, quickly=True)(target, position)
    terms = {f"site '{name}'": rows for name, rows in (*halves.by_row.items(), *halves.whole.items())}
    terms["the log prior"] = halves.log_prior
    flat = {name: np.ravel(values) for name, values in terms.items()}
    bad = [f"{name} has {v[~np.isfinite(v)][0]}" for name, v in flat.items() if not np.isfinite(v).all()]
    return ", ".join(bad) or "the log density is finite, but its gradient is not"


def _halves(target: Target, position: Position) -> Any:
    return target.halves(position)


def given(target: Target, init: Any, num_chains: int) -> Position:
    """Starts with a leading chain axis, from a position, one with a chain axis, or a Posterior's last draws.

    Raises:
        TypeError, ValueError, FloatingPointError: `init` does not fit the model's sites, or is not finite.
    """
    if isinstance(init, Posterior):
        if init.num_draws == 0:
            raise ValueError(
                "init: the posterior holds no draw (interrupted in warm-up?), so no chain has a last one"
            )
        if init.target is None:
            raise ValueError(
                "init: a stored run that was opened without its model; use ptx.open_run(path, model)"
            )
        _require_same_supports(target, init.target)
        last = {name: values[:, -1] for name, values in init.draws.items()}
        init = {name: values[np.arange(num_chains) % len(values)] for name, values in last.items()}
    if not isinstance(init, dict):
        raise TypeError(
            f"init: expected a dict of unconstrained values by site, or a Posterior; got {type(init).__name__}"
        )
    names = {site.name for site in target.sites}
    if set(init) != names:
        raise ValueError(
            f"init: sites missing: {sorted(names - set(init)) or 'none'}; "
            f"unknown: {sorted(set(init) - names) or 'none'}"
        )
    return {
        site.name: _spread(site.name, init[site.name], site.unconstrained_shape, num_chains)
        for site in target.sites
    }


def _require_same_supports(target: Target, other: Target) -> None:
    """Refuse a posterior whose unconstrained values mean something else here: a site on another support."""
    supports = {site.name: site.support for site in other.sites}
    for site in target.sites:
        if supports.get(site.name, site.support) != site.support:
            raise ValueError(
                f"init: site '{site.name}' has support {site.support} here and {supports[site.name]} in the "
                "posterior's model, so its unconstrained draws mean other values; pass a dict of unconstrained values"
            )


def _spread(name: str, value: Any, shape: tuple[int, ...], num_chains: int) -> jax.Array:
    if np.asarray(value).dtype.kind not in "biuf" and np.asarray(value).dtype.name != "bfloat16":
        raise TypeError(f"init: site '{name}' expected numbers of shape {shape}, got {value!r}")
    array = jnp.asarray(value, jnp.result_type(float))
    if not bool(jnp.isfinite(array).all()):
        raise FloatingPointError(f"init: site '{name}' has non-finite values")
    if array.shape == shape:
        return jnp.broadcast_to(array, (num_chains, *shape))
    if array.shape == (num_chains, *shape):
        return array
    raise ValueError(
        f"init: site '{name}' has shape {array.shape}; expected its unconstrained shape {shape}, or that with a "
        f"leading chain axis of {num_chains}"
    )
