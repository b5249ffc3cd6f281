"""The whole state of a run as one safetensors file: names, dtypes and bytes, nothing that could be executed."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Tensors = dict[str, np.ndarray]


def dump(tensors: Tensors) -> bytes:
    """The file of named arrays."""
    from safetensors.numpy import save

    # safetensors permutes what is not in C order; 16-bit floats that NumPy lacks travel as bits.
    return save(
        {name: _bits(np.ascontiguousarray(array).reshape(array.shape)) for name, array in tensors.items()}
    )


def parse(content: bytes, name: str) -> Tensors:
    """Inverse of `dump`, with bits left as they are.

    Raises:
        ValueError: not such a file.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return load(content)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{name}: not a readable checkpoint ({error})") from error


def state_tensors(prefix: str, state: Any) -> Tensors:
    """The leaves of a state on the host, numbered in the order of its structure; keys as their data."""
    leaves = [jax.random.key_data(leaf) if _is_key(leaf) else leaf for leaf in jax.tree.leaves(state)]
    return {f"{prefix}/{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}


def restore_state(prefix: str, tensors: Tensors, like: Any, key_impl: str) -> Any:
    """The state with the structure, shapes and dtypes of `like` (abstract values serve); keys of an implementation.

    Raises:
        ValueError: another number of leaves, or a leaf of another shape or dtype.
    """
    leaves, treedef = jax.tree.flatten(like)
    found = {name: array for name, array in tensors.items() if name.startswith(f"{prefix}/")}
    if len(found) != len(leaves):
        raise ValueError(
            f"checkpoint: {len(found)} arrays for {prefix}, and this engine's state has {len(leaves)}"
        )
    restored = [
        _leaf(f"{prefix}/{i}", found[f"{prefix}/{i}"], leaf, key_impl) for i, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(treedef, restored)


def _leaf(name: str, array: np.ndarray, like: Any, key_impl: str) -> jax.Array:
    if _is_key(like):
        data = jax.eval_shape(jax.random.key_data, like)
        _require_like(name, array, data.shape, data.dtype)
        return jax.random.wrap_key_data(jnp.asarray(array), impl=key_impl)
    dtype = np.dtype(like.dtype)
    array = with_dtype(array, dtype.name)
    _require_like(name, array, like.shape, dtype)
    return jnp.asarray(array)


def with_dtype(array: np.ndarray, name: str) -> np.ndarray:
    """The array, whose bits are those of a dtype that NumPy lacks, in that dtype."""
    if array.dtype.name == name or name not in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"):
        return array
    return array.view(jnp.dtype(name))


def _require_like(name: str, array: np.ndarray, shape: tuple[int, ...], dtype: Any) -> None:
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(
            f"checkpoint: {name} is {array.dtype} {array.shape}, and this engine's state has {dtype} "
            f"{tuple(shape)} there"
        )


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _bits(array: np.ndarray) -> np.ndarray:
    return array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")
