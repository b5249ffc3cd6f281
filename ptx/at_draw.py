"""What is computed at one draw for a batch of rows: the functions that `sweep` evaluates.

Each returns `(by_row, by_draw)`; `rows` lists latents that belong to the rows, by name and axis.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ptx import densities, program
from ptx.amortised import Probe
from ptx.sites import Observed, Predicted, simulate
from ptx.threefry import fused

ROW_STREAM = 2**32 - 1  # apart from the sites of the program, which count from 0


def predicted_values(
    model: Callable,
    observed: tuple[Observed, ...],
    found: Predicted,
    rows: tuple,
    kept: tuple[str, ...],
    simulated: bool,
    at_mean: bool,
    rng_key: jax.Array,
    draw: Any,
    batch: Any,
) -> tuple[dict, dict]:
    """The kept sites at one draw, by (kind, site); latents that carry their own posterior are drawn from it."""
    rng_key = _key(rng_key, draw, batch)
    row_key = None if at_mean else fused(jax.random.fold_in(rng_key, ROW_STREAM))
    position = _position(rows, draw, batch)
    num_rows = len(batch["row"])
    trace = simulate(model, observed, rng_key, position, batch["inputs"], num_rows, row_key=row_key)
    values = {("deterministic", name): trace[name]["value"] for name in kept if name in found.deterministic}
    for name in kept:
        if name in found.classes:
            values["probabilities", name] = densities.class_probabilities(trace[name])
    if simulated:
        values |= {("targets", name): trace[name]["value"] for name in kept if name in found.drawn}
    return _rows_first(found, values)


def reproducible_values(
    model: Callable,
    observed: tuple[Observed, ...],
    found: Predicted,
    rows: tuple,
    axes: tuple,
    rng_key: jax.Array,
    draw: Any,
    batch: Any,
) -> tuple[dict, dict]:
    """All that is not random about a prediction: deterministic sites, and log densities of the drawn ones.

    Latents of the rows that would be drawn are where their support alone says or at their posterior's mean; those in
    `axes` at values that differ from row to row.
    """
    position = _position(rows, draw, batch)
    fixed = found.drawn + (() if axes else found.fresh)
    probe = Probe(batch["row"], axes) if axes else None
    trace = simulate(model, observed, rng_key, position, batch["inputs"], len(batch["row"]), fixed, probe)
    values = {("deterministic", name): trace[name]["value"] for name in found.deterministic}
    values |= {("log_prob", name): densities.log_prob(trace[name]) for name in found.drawn}
    return _rows_first(found, values)


def _rows_first(found: Predicted, values: dict[tuple[str, str], jax.Array]) -> tuple[dict, dict]:
    row_axes = dict(found.row_axes)
    by_row = {
        key: jnp.moveaxis(value, row_axes[key[1]], 0) for key, value in values.items() if key[1] in row_axes
    }
    return by_row, {key: value for key, value in values.items() if key[1] not in row_axes}


def log_densities(
    model: Callable, terms: tuple, rows: tuple, per: str, how: Any, shared: None, draw: Any, batch: Any
) -> tuple[dict, dict]:
    """Log densities of the batch's rows at one draw, by site.

    Latents that carry their own posterior are drawn from it, with a key of the draw and the row (`how` is "draw"), at
    its mean ("mean"), or at values that differ from row to row (`how` has their row axes).
    """
    inputs, targets = batch["data"]
    assign = program.from_position(_position(rows, draw, batch))
    source: Any = None if how == "mean" else Probe(batch["row"], how)
    source = _key(jax.random.key(0), draw, batch) if how == "draw" else source
    trace, _ = program.run(model, inputs, targets, assign, row_key=source)
    by_row = {}
    for name, axis in terms:
        log_prob = jnp.moveaxis(densities.log_prob_by_entry(trace[name]), axis, 0)
        if per == "token" and log_prob.ndim < 2:
            raise ValueError(
                f"site '{name}': its log density has one term a row and no tokens; use per='row'"
            )
        over_rows = jax.vmap(densities.total)
        by_row[name] = over_rows(log_prob) if per == "row" else jax.vmap(over_rows)(log_prob)
    return by_row, {}


def _key(rng_key: jax.Array, draw: Any, batch: Any) -> jax.Array:
    """Of this draw and this row."""
    rng_key = jax.random.fold_in(jax.random.fold_in(rng_key, draw["chain"]), draw["draw"])
    return jax.random.fold_in(rng_key, batch["row"][0])


def _position(rows: tuple, draw: Any, batch: Any) -> dict[str, jax.Array]:
    """The draw's position; of latents that belong to the rows, the batch's part."""
    row_axes = dict(rows)
    return {
        name: jnp.take(value, batch["row"], axis=row_axes[name]) if name in row_axes else value
        for name, value in draw["position"].items()
    }
