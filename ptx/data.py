"""Data: inputs and targets with a leading row axis, checked at the door."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.core import Tracer


@dataclass(frozen=True, eq=False)
class Data:
    """Rows of a data set: row n is `(inputs[n], targets[n])` in every leaf.

    Args:
        inputs: any pytree of arrays (or None), each leaf of shape (rows, ...).
        targets: any pytree of arrays (or None), each leaf of shape (rows, ...).

    Leaves are kept on the host as NumPy arrays. Integers stay integers; floats must be finite. Data is a JAX
    pytree, so it travels through `jax.jit` as an argument.

    Raises:
        TypeError: a leaf that is not a real number, integer or bool array.
        ValueError: no leaf at all, no rows, leading axes that differ, a scalar leaf, NaN or infinity, or an
            integer that the device's integer type cannot hold. The message names the leaf.
    """

    inputs: Any
    targets: Any = None

    def __post_init__(self) -> None:
        for field in ("inputs", "targets"):
            value = getattr(self, field)
            checked = jax.tree_util.tree_map_with_path(
                lambda path, leaf, f=field: _leaf(f, path, leaf), value
            )
            object.__setattr__(self, field, checked)
        _same_rows(self)

    @property
    def num_rows(self) -> int:
        """Number of rows, the length of every leaf's leading axis."""
        return jax.tree.leaves(self)[0].shape[0]

    def take(self, rows: Any) -> "Data":
        """Rows by index array or slice, in the order given; works on tracers."""
        return jax.tree.map(lambda leaf: leaf[rows], self)


def as_data(data: Any) -> Data:
    """`Data` from `Data` or from a pair `(inputs, targets)`."""
    if isinstance(data, Data):
        return data
    if isinstance(data, tuple) and len(data) == 2:
        return Data(*data)
    raise TypeError(f"data: expected ptx.Data or a pair (inputs, targets), got {type(data).__name__}")


def _flatten(data: Data) -> tuple[tuple[Any, Any], None]:
    return (data.inputs, data.targets), None


def _unflatten(_: None, children: tuple[Any, Any]) -> Data:
    data = object.__new__(Data)  # tracers and abstract leaves come through here: no checks
    object.__setattr__(data, "inputs", children[0])
    object.__setattr__(data, "targets", children[1])
    return data


jax.tree_util.register_pytree_node(Data, _flatten, _unflatten)


def _leaf(field: str, path: Any, leaf: Any) -> np.ndarray:
    name = field + jax.tree_util.keystr(path)
    if isinstance(leaf, Tracer):
        raise TypeError(f"{name}: Data is built from concrete arrays, outside jit, grad and vmap")
    if isinstance(leaf, (int, float, complex, str, bytes)):
        raise ValueError(
            f"{name}: got the scalar {leaf!r}; every leaf needs a leading row axis. Wrap a list of numbers in "
            "numpy.asarray(...); a value shared by all rows belongs in the model"
        )
    array = _as_array(name, leaf)
    is_float = jax.numpy.issubdtype(array.dtype, jax.numpy.floating)  # bfloat16 included
    if not (is_float or array.dtype.kind in "iub"):
        raise TypeError(f"{name}: expected a real, integer or bool array, got dtype {array.dtype}")
    if array.ndim == 0:
        raise ValueError(
            f"{name}: got a scalar; every leaf needs a leading row axis (or belongs in the model)"
        )
    if is_float:
        _finite(name, array)
    elif array.dtype.kind in "iu":
        _in_range(name, array)
    return array


def _as_array(name: str, leaf: Any) -> np.ndarray:
    if np.ma.is_masked(leaf):
        raise ValueError(f"{name}: masked entries, whose values would be used; fill, impute or drop them")
    try:
        return np.asarray(leaf)
    except TypeError as error:
        raise TypeError(
            f"{name}: expected an array of numbers, got {type(leaf).__name__} ({error})"
        ) from error


def _finite(name: str, array: np.ndarray) -> None:
    device = jax.dtypes.canonicalize_dtype(array.dtype)
    with np.errstate(over="ignore"):
        bad = ~np.isfinite(array.astype(device))
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"{name}: {int(bad.sum())} of {array.size} values are not finite as {device} (first {array[where]} at "
            f"index {where}); remove, impute or rescale them"
        )


def _in_range(name: str, array: np.ndarray) -> None:
    if array.size == 0:
        return
    limits = np.iinfo(jax.dtypes.canonicalize_dtype(array.dtype))
    for value in (array.min(), array.max()):
        if not limits.min <= int(value) <= limits.max:
            where = tuple(int(i) for i in np.argwhere(array == value)[0])
            raise ValueError(
                f"{name}: {value} at index {where} does not fit {limits.dtype}, JAX's integer type here; "
                "re-index the values, or enable 64-bit types with jax_enable_x64"
            )


def _same_rows(data: Data) -> None:
    leaves = jax.tree_util.tree_flatten_with_path({"inputs": data.inputs, "targets": data.targets})[0]
    if not leaves:
        raise ValueError("data: inputs and targets hold no array")
    rows = {jax.tree_util.keystr(path): leaf.shape[0] for path, leaf in leaves}
    if len(set(rows.values())) > 1:
        listed = ", ".join(f"{name}: {count}" for name, count in rows.items())
        raise ValueError(f"data: leading (row) axes differ: {listed}; give every leaf one entry per row")
    if next(iter(rows.values())) == 0:
        raise ValueError("data: no rows")
