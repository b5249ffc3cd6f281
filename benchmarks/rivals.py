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

STEP_SIZE, DEPTH = 2e-3, 5
FEW, MANY = 8, 32  # draws of the two calls whose difference is timed


def nuts(repeats: int) -> list[dict]:
    """One chain, no adaptation, the same fixed step size, unit mass matrix, start and tree depth: trees are full.

    Whole calls are timed, after one that compiles: `ptx.infer`, `MCMC.run` and a jitted scan, of few and of many draws.
    Their difference is what draws cost; `MCMC.run` compiles anew in every call, which the second row against it counts.
    """
    model, data = targets.model(), targets.digits(64)
    target = ptx.lower(model, data)
    start = target.initial_position(jax.random.key(0))
    makers = {
        "ptx": lambda num_draws: ptx_run(model, data, start, num_draws),
        "numpyro": lambda num_draws: numpyro_run(model, data, start, num_draws),
        "blackjax": lambda num_draws: blackjax_run(target, start, num_draws),
    }
    runs = {(name, count): make(count) for name, make in makers.items() for count in (FEW, MANY)}
    seconds = interleaved(runs, repeats)
    a_draw = {name: (MANY * seconds[name, MANY] - FEW * seconds[name, FEW]) / (MANY - FEW) for name in makers}
    rows = []
    for rival in ("numpyro", "blackjax"):
        ratios = a_draw[rival] / a_draw["ptx"]
        figures = {"draws_per_second": 1 / float(np.median(a_draw["ptx"]))}
        met = np.median(ratios) >= 1.0
        rows.append(row("draws per second, ptx / rival", rival, ratios, ">= 1.0", met, **figures))
        whole = seconds[rival, MANY] / seconds["ptx", MANY]
        rows.append(row(f"a whole call of {MANY} draws, rival / ptx", rival, whole, "reported", True))
    return rows


def ptx_run(model: Callable, data: ptx.Data, start: dict, num_draws: int) -> Callable[[], float]:
    """`ptx.infer` with NUTS."""
    engine = ptx.inference.NUTS(
        num_warmup=0, num_draws=num_draws, num_chains=1, step_size=STEP_SIZE, max_tree_depth=DEPTH
    )

    def run() -> float:
        posterior = ptx.infer(0, model, data, engine, init=start, progress=False)
        return float(posterior.statistics["n_steps"].sum()) / (2**DEPTH - 1)  # in full trees

    return run


def numpyro_run(model: Callable, data: ptx.Data, start: dict, num_draws: int) -> Callable[[], float]:
    """`numpyro.infer.MCMC` with NUTS."""
    kernel = numpyro.infer.NUTS(
        model, step_size=STEP_SIZE, adapt_step_size=False, adapt_mass_matrix=False, max_tree_depth=DEPTH
    )
    mcmc = numpyro.infer.MCMC(kernel, num_warmup=0, num_samples=num_draws, progress_bar=False)

    def run() -> float:
        args = (jnp.asarray(data.inputs), jnp.asarray(data.targets))
        mcmc.run(jax.random.key(0), *args, init_params=start, extra_fields=("num_steps",))
        block(mcmc.get_samples())
        return float(mcmc.get_extra_fields()["num_steps"].sum()) / (2**DEPTH - 1)

    return run


def blackjax_run(target: ptx.Target, start: dict, num_draws: int) -> Callable[[], float]:
    """`blackjax.nuts` in a jitted scan over the same log density."""
    size = targets.size(target)
    sampler = blackjax.nuts(target.log_density, STEP_SIZE, jnp.ones(size), max_num_doublings=DEPTH)

    @jax.jit
    def sample(rng_key, state):
        def step(state, key):
            state, info = sampler.step(key, state)
            return state, (state.position, info.num_integration_steps)

        return jax.lax.scan(step, state, jax.random.split(rng_key, num_draws))

    state = jax.jit(sampler.init)(start)

    def run() -> float:
        out = sample(jax.random.key(0), state)
        block(out)
        return float(out[1][1].sum()) / (2**DEPTH - 1)

    return run
