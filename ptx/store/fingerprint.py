"""What a run was made of, as plain values, so that another model, data set or setting is told apart by name."""

import hashlib
import math
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ptx import densities, program
from ptx.compiled import compiled
from ptx.data import Data
from ptx.target import Halves, Position, Target

MOST_SHOWN, MOST_LISTED = 200, 8  # characters of a value, differences in a message
TOLERANCE = (
    1e-5  # of a float32 sum: two machines round differently, another prior or likelihood differs by more
)


def of_data(data: Data) -> dict[str, Any]:
    """Structure, shapes, dtypes and a digest of all values."""
    digest, leaves = hashlib.sha256(), {}
    for path, leaf in jax.tree_util.tree_flatten_with_path({"inputs": data.inputs, "targets": data.targets})[
        0
    ]:
        array = np.ascontiguousarray(np.asarray(leaf))
        name = jax.tree_util.keystr(path)
        leaves[name] = f"{array.dtype} {list(array.shape)}"
        digest.update(f"{name} {leaves[name]}".encode() + array.tobytes())
    return {"leaves": leaves, "sha256": digest.hexdigest()}


def of_start(init: Any) -> str | None:
    """A digest of the positions that chains were told to start at; None where they found their own."""
    if init is None:
        return None
    digest = hashlib.sha256()
    for name in sorted(init):
        array = np.ascontiguousarray(np.asarray(init[name]))
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def of_model(target: Target) -> dict[str, Any]:
    """Sites with shapes and supports, likelihood terms, and the parts of the density at two positions.

    The program itself cannot be compared, but a changed prior changes the log density of its site, and a changed
    likelihood that of some of the rows looked at: the sum over all, and up to eight rows by themselves, since a sum may
    be at its maximum, where it hardly moves.
    """
    log_prior: dict[str, float] = {}
    log_likelihood: dict[str, dict[str, float]] = {}
    for place, position in probe_positions(target).items():
        halves, priors = compiled(_parts, (), target, position)(target, position)
        for name, value in (*priors.items(), ("all sites", halves.log_prior)):
            log_prior[f"{name} ({place})"] = float(value)
        for name, rows in halves.by_row.items():
            found = log_likelihood.setdefault(name, {})
            found |= {f"{key} ({place})": value for key, value in _row_values(np.asarray(rows)).items()}
        for name, value in halves.whole.items():
            log_likelihood.setdefault(name, {})[f"whole ({place})"] = float(value)
    return {
        "name": _name(target.model),
        "sites": {site.name: _site(site) for site in target.sites},
        "terms": sorted(term.name for term in target.terms),
        "log_prior": log_prior,
        "log_likelihood": log_likelihood,
    }


def _row_values(rows: np.ndarray) -> dict[str, float]:
    some = np.unique(np.linspace(0, len(rows) - 1, 8).round().astype(int))
    return {"all rows": float(np.sum(rows, dtype=np.float64))} | {f"row {n}": float(rows[n]) for n in some}


def probe_positions(target: Target) -> dict[str, Position]:
    """Two positions that depend on the shapes alone: `0.3 sin k` and `3 cos k` with k = 1, 2, ... in each site."""
    waves = {"near": lambda k: 0.3 * np.sin(k), "far": lambda k: 3 * np.cos(k)}
    return {
        place: {
            site.name: jnp.asarray(
                wave(np.arange(1, math.prod(site.unconstrained_shape) + 1)).reshape(site.unconstrained_shape),
                jnp.result_type(float),
            )
            for site in target.sites
        }
        for place, wave in waves.items()
    }


def _parts(target: Target, position: Position) -> tuple[Halves, dict[str, Any]]:
    """Both halves, and the log prior of each site."""
    assign = program.from_position(position)
    _, latents = program.run(target.model, target.data.inputs, target.data.targets, assign)
    priors = {name: densities.total(densities.log_prob(latent.message)) for name, latent in latents.items()}
    return target.halves(position), priors


def _site(site: Any) -> dict[str, Any]:
    return {
        "shape": list(site.shape),
        "unconstrained_shape": list(site.unconstrained_shape),
        "support": site.support,
    }


def _name(model: Any) -> str:
    """The name of a function, or the repr of a model; without addresses, which differ in every process."""
    written = getattr(model, "program", model)
    return getattr(written, "__qualname__", None) or re.sub(r" at 0x[0-9a-fA-F]+", "", repr(written))


def differences(old: Any, new: Any, name: str = "") -> list[str]:
    """Where two fingerprints differ, each as `name: old, now new`. Floats may differ by rounding."""
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for key in [*old, *(key for key in new if key not in old)]:
            inner = f"{name}.{key}" if name else str(key)
            if key not in old or key not in new:
                found.append(f"{inner}: {'missing' if key not in new else 'not there before'}")
            else:
                found += differences(old[key], new[key], inner)
        return found
    if isinstance(old, float) and isinstance(new, float):
        both_nan = math.isnan(old) and math.isnan(new)
        if both_nan or old == new or math.isclose(old, new, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            return []
    elif old == new:
        return []
    start = max(0, _first_difference(old, new) - 40) if isinstance(old, str) and isinstance(new, str) else 0
    return [f"{name}: {_short(old, start)}, now {_short(new, start)}"]


def listed(found: list[str]) -> str:
    """The first differences in words, and how many more there are."""
    more = f"; and {len(found) - MOST_LISTED} more" if len(found) > MOST_LISTED else ""
    return "; ".join(found[:MOST_LISTED]) + more


def _first_difference(old: str, new: str) -> int:
    """Where two long texts part; 0 for those that are shown whole."""
    pairs = enumerate(zip(old, new, strict=False))
    same = next((i for i, (a, b) in pairs if a != b), min(len(old), len(new)))
    return same if max(len(old), len(new)) > MOST_SHOWN else 0


def _short(value: Any, start: int) -> str:
    text = repr(value[start:] if start else value)
    return ("..." if start else "") + (text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + "...")
