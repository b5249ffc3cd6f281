"""What a run was made of, as plain values, so that another model, data set or setting is told apart by name."""

import hashlib
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ptx import program
from ptx.compiled import compiled
from ptx.data import Data
from ptx.target import Halves, Position, Target

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
    """Sites with shapes and supports, likelihood terms, and the value of each part of the density at one position.

    The program itself cannot be compared, but a changed prior changes its log density, and a changed likelihood its.
    """
    position = probe_position(target)
    halves, priors = compiled(_parts, (), target, position)(target, position)
    terms: dict[str, Any] = {name: _row_sums(np.asarray(rows)) for name, rows in halves.by_row.items()}
    terms |= {name: float(value) for name, value in halves.whole.items()}
    return {
        "name": _name(target.model),
        "sites": {site.name: _site(site) for site in target.sites},
        "terms": sorted(term.name for term in target.terms),
        "log_prior": {name: float(value) for name, value in priors.items()}
        | {"all": float(halves.log_prior)},
        "log_likelihood": terms,
    }


def _row_sums(rows: np.ndarray) -> dict[str, float]:
    """Two sums: where one of them happens to be at a maximum, a changed likelihood hardly moves it."""
    parts = {"all rows": rows, "every second row": rows[::2]}
    return {name: float(np.sum(part, dtype=np.float64)) for name, part in parts.items()}


def probe_position(target: Target) -> Position:
    """A position that depends on nothing but the shapes: 0.3 sin(1), 0.3 sin(2), ... site by site."""
    position = {}
    for site in target.sites:
        count = math.prod(site.unconstrained_shape)
        values = 0.3 * np.sin(np.arange(1, count + 1)).reshape(site.unconstrained_shape)
        position[site.name] = jnp.asarray(values, jnp.result_type(float))
    return position


def _parts(target: Target, position: Position) -> tuple[Halves, dict[str, Any]]:
    """Both halves, and the log prior of each site."""
    assign = program.from_position(position)
    _, latents = program.run(target.model, target.data.inputs, target.data.targets, assign)
    priors = {name: program.total(program.log_prob(latent.message)) for name, latent in latents.items()}
    return target.halves(position), priors


def _site(site: Any) -> dict[str, Any]:
    return {
        "shape": list(site.shape),
        "unconstrained_shape": list(site.unconstrained_shape),
        "support": site.support,
    }


def _name(model: Any) -> str:
    """The repr of a model that is equal by value; the name of a function, whose repr holds an address."""
    written = getattr(model, "program", model)
    return getattr(written, "__qualname__", None) or repr(written)


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
    return [f"{name}: {_short(old)}, now {_short(new)}"]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "..."
