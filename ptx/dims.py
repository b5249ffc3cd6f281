"""Names that xarray accepts for sites and their axes."""

from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np

from ptx.sites import Observed, observed_sites
from ptx.target import Target

RESERVED = ("chain", "draw", "sample")
Dims = tuple[str | None, ...]


def as_host(values: Any) -> np.ndarray:
    """A NumPy array that netCDF can hold: bfloat16 and float16 become float32."""
    array = np.asarray(values)
    narrow = jnp.issubdtype(array.dtype, jnp.floating) and array.dtype.itemsize < 4
    return array.astype(np.float32) if narrow else array


def exported_names(names: Iterable[str]) -> dict[str, str]:
    """Names as exported: "/" becomes ".", and a name that xarray takes for a dimension gets a trailing "_".

    Raises:
        ValueError: two names that become the same.
    """
    exported: dict[str, str] = {}
    for name in names:
        dotted = name.replace("/", ".")
        new = dotted + "_" if dotted in RESERVED else dotted
        for other, taken in exported.items():
            if taken == new:
                raise ValueError(
                    f"sites '{other}' and '{name}' would both be exported as '{new}'; rename one of them"
                )
        exported[name] = new
    return exported


def row_dim(target: Target) -> str:
    """The dimension of whatever follows the rows: the name its first observed site gives to them, or `row`."""
    for site in observed_sites(target):
        if site.row_axis is not None:
            return _observed_dims(target, site)[0] or "row"
    return "row"


def site_dims(target: Target) -> dict[str, Dims]:
    """Dimension names of latent and observed sites, None where nothing names an axis; rows first in observed ones."""
    latent = {
        site.name: target_dims(target, site.name, len(site.shape)) or site.plates for site in target.sites
    }
    layered = {
        name: names for name, names in target.dims if name.startswith("attention.") and name not in latent
    }
    return layered | latent | {site.name: _observed_dims(target, site) for site in observed_sites(target)}


def target_dims(target: Target, name: str, ndim: int) -> Dims:
    """The names that the model itself gives, if they fit; else none at all."""
    names = dict(target.dims).get(name, ())
    return names if len(names) == ndim else ()


def _observed_dims(target: Target, site: Observed) -> Dims:
    named = list(target_dims(target, site.name, len(site.plates)) or site.plates)
    if site.row_axis is None:
        return tuple(named)
    return (named.pop(site.row_axis) or "row", *named)


def stacked_layers(target: Target, values: dict[str, Any]) -> dict[str, Any]:
    """Draws of latents that the model names one a layer, `attention.probs.0` and so on, as one array `attention.probs`
    with the axis `layer` that its dims have; others, and arrays on disk, as they are."""
    stacked = dict(values)
    for kind, dims in target.dims:
        numbered = [name for name in values if name.rpartition(".")[0] == kind]
        layers = [f"{kind}.{number}" for number in range(len(numbered))]
        if "layer" in dims and kind not in values and set(layers) == set(numbered):
            arrays = [stacked[name] for name in layers]
            if _stackable(arrays, len(dims)):
                stacked = {name: array for name, array in stacked.items() if name not in layers}
                stacked[kind] = np.stack(arrays, axis=2 + dims.index("layer"))
    return stacked


def _stackable(arrays: list[Any], ndim: int) -> bool:
    """Whether draws, with their chains first, are in memory, alike, and of `ndim` axes once they are one array."""
    in_memory = all(isinstance(array, np.ndarray) for array in arrays)
    return in_memory and len({array.shape for array in arrays}) == 1 and arrays[0].ndim == ndim + 1


def usable_dims(
    values: dict[str, np.ndarray], dims: dict[str, Dims], num_sample_dims: int
) -> dict[str, list[str]]:
    """A name for every axis after the sample dimensions.

    A name falls back to `<variable>_dim_<axis>` where there is none, or where it is that of a variable, of a sample
    dimension, of another axis of the same variable, or of an axis of another length: xarray would drop or refuse it.
    """
    lengths: dict[str, int] = {}
    usable: dict[str, list[str]] = {}
    for name, array in values.items():
        usable[name] = []
        shape = array.shape[num_sample_dims:]
        given = dims.get(name, ())
        for axis, length in enumerate(shape):
            dim = given[axis] if axis < len(given) else None
            taken = (
                dim in values
                or dim in RESERVED
                or dim in usable[name]
                or lengths.get(str(dim), length) != length
            )
            if dim is None or taken:
                dim = f"{name}_dim_{axis}"
                while dim in values:
                    dim += "_"
            lengths[dim] = length
            usable[name].append(dim)
    return usable
