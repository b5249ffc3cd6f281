"""Draws per second of ptx's NUTS against numpyro.infer.MCMC and plain BlackJAX, at equal settings."""

from collections.abc import Callable

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.infer

import ptx
from benchmarks import targets
from benchmarks.timing import block, interleaved, row

STEP_SIZE, DEPTH, NUM_DRAWS = 2e-3, 5, 8


def nuts(repeats: int) -> list[dict]:
    """One chain, no adaptation, the same fixed step size, unit mass matrix, start and tree depth: trees are full.

    Whole calls are timed, after one that compiles: `ptx.infer`, `MCMC.run` and a jitted scan.
    """
    model, data = targets.model(), targets.digits()
    target = ptx.lower(model, data)
    start = target.initial_position(jax.random.key(0))
    runs = {
        "ptx": ptx_run(model, data, start),
        "numpyro": numpyro_run(model, data, start),
        "blackjax": blackjax_run(target, start),
    }
    seconds = interleaved(runs, repeats)
    rows = []
    for rival in ("numpyro", "blackjax"):
        ratios = seconds[rival] / seconds["ptx"]
        figures = {"draws_per_second": 1 / float(np.median(seconds["ptx"]))}
        rows.append(
            row("draws per second, ptx / rival", rival, ratios, ">= 1.0", np.median(ratios) >= 1.0, **figures)
        )
    return rows


def ptx_run(model: Callable, data: ptx.Data, start: dict) -> Callable[[], float]:
    """`ptx.infer` with NUTS."""
    engine = ptx.inference.NUTS(
        num_warmup=0, num_draws=NUM_DRAWS, num_chains=1, step_size=STEP_SIZE, max_tree_depth=DEPTH
    )

    def run() -> float:
        posterior = ptx.infer(0, model, data, engine, init=start, progress=False)
        return float(posterior.statistics["n_steps"].sum()) / (2**DEPTH - 1)  # in full trees

    return run


def numpyro_run(model: Callable, data: ptx.Data, start: dict) -> Callable[[], float]:
    """`numpyro.infer.MCMC` with NUTS."""
    kernel = numpyro.infer.NUTS(
        model, step_size=STEP_SIZE, adapt_step_size=False, adapt_mass_matrix=False, max_tree_depth=DEPTH
    )
    mcmc = numpyro.infer.MCMC(kernel, num_warmup=0, num_samples=NUM_DRAWS, progress_bar=False)

    def run() -> float:
        args = (jnp.asarray(data.inputs), jnp.asarray(data.targets))
        mcmc.run(jax.random.key(0), *args, init_params=start, extra_fields=("num_steps",))
        block(mcmc.get_samples())
        return float(mcmc.get_extra_fields()["num_steps"].sum()) / (2**DEPTH - 1)

    return run


def blackjax_run(target: ptx.Target, start: dict) -> Callable[[], float]:
    """`blackjax.nuts` in a jitted scan over the same log density."""
    size = targets.size(target)
    sampler = blackjax.nuts(target.log_density, STEP_SIZE, jnp.ones(size), max_num_doublings=DEPTH)

    @jax.jit
    def sample(rng_key, state):
        def step(state, key):
            state, info = sampler.step(key, state)
            return state, (state.position, info.num_integration_steps)

        return jax.lax.scan(step, state, jax.random.split(rng_key, NUM_DRAWS))

    state = jax.jit(sampler.init)(start)

    def run() -> float:
        out = sample(jax.random.key(0), state)
        block(out)
        return float(out[1][1].sum()) / (2**DEPTH - 1)

    return run
