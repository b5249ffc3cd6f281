"""From raw draws to a Posterior: statistics at kept steps, cost, and what a reader must know."""

import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np

from ptx.inference.engine import Engine
from ptx.posterior import Posterior
from ptx.target import Target
from ptx.version import versions


def finish(
    target: Target,
    engine: Engine,
    positions: dict,
    history: dict,
    attributes: dict[str, Any],
    findings: tuple[str, ...],
) -> Posterior:
    """The Posterior of a run; every finding, the engine's own included, is also a RuntimeWarning."""
    num_done = attributes["num_steps"]
    gradients = engine.gradients_per_step * engine.num_chains * num_done
    attributes = {
        "engine": repr(engine),
        "gradient_evaluations": int(history["n_steps"].sum()) if "n_steps" in history else gradients,
        "interrupted": num_done < engine.num_steps,
        "num_rows": target.num_rows,
        "x64": jnp.result_type(float) == jnp.float64,
        **attributes,
        **versions(),
    }
    statistics = {}
    if engine.is_sampler and num_done:
        kept = np.broadcast_to(engine.keeps(np.arange(num_done)), num_done)
        statistics = {name: values[:, kept] for name, values in history.items()}
    findings = (*findings, *_findings(engine, positions, history, statistics, attributes))
    for finding in findings:
        warnings.warn(finding, RuntimeWarning, stacklevel=3)
    return Posterior(target, engine, positions, statistics, history, attributes, findings)


def _findings(engine: Engine, positions: dict, history: dict, statistics: dict, attributes: dict) -> Any:
    name = type(engine).__name__
    if attributes["interrupted"]:
        done = attributes["num_steps"]
        yield f"{name}: interrupted after {done} of {engine.num_steps} steps; every chain is equally long"
    if "nonfinite" in history and history["nonfinite"].any():
        count, size = int(history["nonfinite"].sum()), history["nonfinite"].size
        yield f"{name}: {count} of {size} steps had a non-finite gradient and were skipped; take smaller steps"
    if "diverging" in statistics and statistics["diverging"].any():
        count, size = int(statistics["diverging"].sum()), statistics["diverging"].size
        yield f"{name}: {count} of {size} kept draws ended a divergent trajectory; raise target_acceptance_rate"
    if "damped" in history and history["damped"].any():
        count = int(history["damped"].max())
        yield f"{name}: no maximum, or a flat one, along {count} directions: damping alone sets their spread"
    yield from _broken_draws(name, positions)


def _broken_draws(name: str, positions: dict) -> Any:
    for site, values in positions.items():
        if not np.isfinite(values).all():
            yield f"{name}: site '{site}' has non-finite draws; do not use them"
    if positions:
        first = next(iter(positions.values()))
        for chain in range(first.shape[0]):
            stuck = first.shape[1] > 1 and all((v[chain] == v[chain, :1]).all() for v in positions.values())
            if stuck:
                yield f"{name}: chain {chain} never moved: all of its {first.shape[1]} draws are equal"


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
