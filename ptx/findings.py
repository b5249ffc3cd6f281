"""From raw draws to a Posterior: statistics at kept steps, cost, and what a reader must know."""

import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np

from ptx.inference.engine import Engine
from ptx.kept import Arrays, blocks
from ptx.posterior import Posterior
from ptx.target import Target
from ptx.version import versions


def finish(
    target: Target,
    engine: Engine,
    arrays: Arrays,
    attributes: dict[str, Any],
    findings: tuple[str, ...],
) -> Posterior:
    """The Posterior of a run; every finding, the engine's own included, is also a RuntimeWarning."""
    draws, statistics, history, parameters = arrays
    gradients = engine.gradients_per_step * engine.num_chains * attributes["num_steps"]
    attributes = {
        "engine": repr(engine),
        "gradient_evaluations": _total(history["n_steps"]) if "n_steps" in history else gradients,
        "num_rows": target.num_rows,
        "x64": jnp.result_type(float) == jnp.float64,
        **attributes,
        **versions(),
    }
    findings = (*findings, *_findings(engine, draws, history, statistics, attributes))
    for finding in findings:
        warnings.warn(finding, RuntimeWarning, stacklevel=4)
    return Posterior(target, engine, draws, statistics, history, attributes, findings, parameters)


def _total(values: Any) -> int:
    return sum(int(block.sum()) for block in blocks(values))


def _findings(engine: Engine, positions: dict, history: dict, statistics: dict, attributes: dict) -> Any:
    name = type(engine).__name__
    if attributes["stopped"]:
        yield attributes["stopped"]
    elif attributes["interrupted"]:
        done = attributes["num_steps"]
        yield f"{name}: interrupted after {done} of {engine.num_steps} steps; every chain is equally long"
    if "nonfinite" in history and (count := _total(history["nonfinite"])):
        size = history["nonfinite"].size
        yield f"{name}: {count} of {size} steps had a non-finite gradient and were skipped; take smaller steps"
    if "diverging" in statistics and (count := _total(statistics["diverging"])):
        size = statistics["diverging"].size
        yield f"{name}: {count} of {size} kept draws ended a divergent trajectory; raise target_acceptance_rate"
    if "damped" in history and (count := max(int(block.max()) for block in blocks(history["damped"]))):
        yield f"{name}: no maximum, or a flat one, along {count} directions: damping alone sets their spread"
    yield from _broken_draws(name, positions)


def _broken_draws(name: str, draws: dict) -> Any:
    moved = np.zeros(next((values.shape[0] for values in draws.values()), 0), bool)
    for site, values in draws.items():
        first, finite = None, True
        for block in blocks(values):
            flat = block.reshape(*block.shape[:2], -1)
            first = flat[:, :1] if first is None else first
            moved |= (flat != first).any(axis=(1, 2))
            finite &= bool(np.isfinite(flat).all())
        if not finite:
            yield f"{name}: site '{site}' has non-finite draws; do not use them"
    num_draws = next((values.shape[1] for values in draws.values()), 0)
    for chain in np.flatnonzero(~moved) if num_draws > 1 else ():
        yield f"{name}: chain {chain} never moved: all of its {num_draws} draws are equal"


def empty(target: Target, engine: Engine, chain_layout: str) -> Posterior:
    """A model without latent sites: nothing to infer, nothing to run."""
    attributes = {
        "engine": repr(engine),
        "chain_layout": chain_layout,
        "gradient_evaluations": 0,
        "seconds": 0.0,
    }
    attributes |= {"compile_seconds": 0.0, "interrupted": False, "num_rows": target.num_rows, **versions()}
    return Posterior(
        target, engine, {}, {}, {}, attributes, ("the model has no latent site: nothing was inferred",)
    )
