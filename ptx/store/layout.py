"""Which arrays a run has on disk: their groups, file names, shapes, axes and chunk lengths."""

import re
from typing import Any

import numpy as np

from ptx.dims import exported_names, site_dims, usable_dims
from ptx.inference import Prior
from ptx.store.arrays import Spec
from ptx.target import Target

DRAWS, CHECKPOINTS, EVENTS, DATA = "draws.zarr", "checkpoints", "events.jsonl", "data.safetensors"
CHECKPOINT = re.compile(r"[0-9]{8,}\.safetensors")
CHUNK_BYTES = 4 * 2**20
MOST_ROWS = 1000  # of a chunk
_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
_METADATA = ("zarr.json", "c")
DRAW_GROUPS = ("posterior", "unconstrained_posterior", "sample_stats")
PRIOR_GROUPS = ("prior", "unconstrained_prior", "sample_stats_prior")
HISTORY = "history"


def lengths(target: Target, num_chains: int, itemsize: int) -> dict[str, int]:
    """Draws and steps of a chunk, by sizes alone: about 4 MiB, at most 1,000."""
    size = sum(max(1, int(np.prod(site.unconstrained_shape))) for site in target.sites)
    draws = CHUNK_BYTES // max(1, num_chains * size * itemsize)
    return {"draw": int(np.clip(draws, 1, MOST_ROWS)), "step": MOST_ROWS}


def groups(engine: Any) -> tuple[str, str, str]:
    """Names of the groups of parameters, of unconstrained values and of statistics."""
    return PRIOR_GROUPS if isinstance(engine, Prior) else DRAW_GROUPS


def variables(names: Any) -> dict[str, str]:
    """The variable, which is also a directory, of each site: ArviZ's name, with unsafe characters as `%2F`.

    Raises:
        ValueError: two sites with one variable, an empty name, or one longer than file systems take.
    """
    escaped = {name: _escaped(exported) for name, exported in exported_names(names).items()}
    folded = [variable.lower() for variable in escaped.values()]
    for name, variable in escaped.items():
        if not variable:
            raise ValueError("store: a site has the empty name; rename it")
        if len(variable.encode()) > 200:
            raise ValueError(
                f"store: the name of site '{name[:40]}...' is longer than 200 bytes; rename the site"
            )
        if folded.count(variable.lower()) > 1:
            raise ValueError(
                f"store: site '{name}' and another one would share the directory '{variable}' where case does not "
                "count; rename one of them"
            )
    return escaped


def _escaped(name: str) -> str:
    if _SAFE.fullmatch(name) and name not in _METADATA:
        return name
    first, rest = name[:1], name[1:]
    safe = first if re.fullmatch(r"[A-Za-z0-9_]", first) and name not in _METADATA else _percent(first)
    return safe + "".join(char if re.fullmatch(r"[A-Za-z0-9_.\-]", char) else _percent(char) for char in rest)


def _percent(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


def specs(target: Target, group: str, values: dict[str, np.ndarray], axis: str) -> dict[str, Spec]:
    """The arrays of a group, by site or statistic, for values with axes (chain, draw or step, ...).

    In alphabetical order, whatever order the values come in: names of axes depend on it.
    """
    values = dict(sorted(values.items()))
    named = variables(values)
    arrays = {named[name]: array for name, array in values.items()}
    known = {named[name]: dims for name, dims in site_dims(target).items() if name in named}
    dims = usable_dims(arrays, known, 2)
    return {
        name: Spec(
            group, named[name], tuple(array.shape[2:]), array.dtype.name, ("chain", axis, *dims[named[name]])
        )
        for name, array in values.items()
    }
