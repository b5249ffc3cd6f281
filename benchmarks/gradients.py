"""Time per gradient: inside each engine over the bare jitted gradient, and lowered over written by hand."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ptx
from benchmarks import targets
from benchmarks.timing import block, interleaved, row
from ptx import chunk, inference
from ptx.start import as_key

ENGINES: dict[str, Any] = {
    "NUTS": inference.NUTS(num_warmup=0, step_size=1e-5, max_tree_depth=6, num_draws=10**6),
    "HMC": inference.HMC(num_warmup=0, step_size=1e-2, max_leapfrog=32, num_draws=10**6),
    "SGLD": inference.SGLD(step_size=1e-7, num_draws=10**6),
    "SGLD, batch 64": inference.SGLD(step_size=1e-7, num_draws=10**6, batch_size=64),
    "SGHMC": inference.SGHMC(step_size=1e-5, num_draws=10**6),
    "CyclicalSGLD": inference.CyclicalSGLD(step_size=1e-7),
    "CyclicalSGHMC": inference.CyclicalSGHMC(step_size=1e-5),
    "MAP": inference.MAP(learning_rate=1e-5, num_steps=10**6),
    "SVI": inference.SVI(learning_rate=1e-5, num_steps=10**6),
}


def engines(repeats: int) -> list[dict]:
    """Each engine's time per gradient over a bare `value_and_grad` of the same log density on the same rows."""
    target = ptx.lower(targets.model(), targets.digits())
    size = targets.size(target)
    rows = []
    for name, engine in ENGINES.items():
        batch_size = getattr(engine, "batch_size", None)
        seconds = interleaved(
            {"engine": engine_run(engine, target), "bare": bare_run(target, batch_size)}, repeats
        )
        ratios = seconds["engine"] / seconds["bare"]
        figures = {"ms": 1e3 * float(np.median(seconds["engine"])), "parameters": size}
        met = np.median(ratios) <= 1.05
        rows.append(row("time per gradient / bare gradient", name, ratios, "<= 1.05", met, **figures))
    return rows


def engine_run(engine: Any, target: ptx.Target, steps: int = 0) -> Callable[[], float]:
    """Runs chunks of one chain of the engine; returns the gradients it took."""
    engine = dataclasses.replace(engine, num_chains=1)
    key = as_key(0)
    state = jax.jit(lambda target: chunk.start_at(engine, target, key, target.initial_position(key)))(target)
    program = jax.jit(lambda *args: chunk.steps(engine, (2, 64), *args))
    count = steps or (1 if type(engine).__name__ in ("NUTS", "HMC") else 40)
    carry = {"state": state, "first": 0}

    def run() -> float:
        out = program(target, key, carry["state"], np.int32(carry["first"]), np.int32(count))
        block(out)
        carry.update(state=out.state, first=carry["first"] + count)
        if "n_steps" in out.history:
            return float(out.history["n_steps"][:count].sum())
        return float(count * engine.gradients_per_step)

    return run


def bare_run(target: ptx.Target, batch_size: int | None, count: int = 40) -> Callable[[], float]:
    """Runs `count` gradients of the log density in one compiled loop."""
    batch = None if batch_size is None else target.data.take(slice(0, batch_size))
    position = target.initial_position(jax.random.key(0))
    gradient = jax.value_and_grad(lambda u, target: target.log_density(u, batch))
    return loop_run(lambda u: gradient(u, target), position, count)


def loop_run(gradient: Callable, position: Any, count: int = 40) -> Callable[[], float]:
    """Runs a gradient `count` times in one compiled loop, each from where the last one led."""

    def body(_: Any, carry: Any) -> Any:
        position, total = carry
        value, slope = gradient(position)
        return jax.tree.map(lambda u, g: u + 1e-9 * g, position, slope), total + value

    loop = jax.jit(lambda position: jax.lax.fori_loop(0, count, body, (position, jnp.zeros(()))))

    def run() -> float:
        block(loop(position))
        return float(count)

    return run


def lowered(repeats: int) -> list[dict]:
    """The lowered transformer's gradient over the same one in plain JAX, after checking that they are equal."""
    data = targets.digits()
    target = ptx.lower(targets.model(), data)
    position = target.initial_position(jax.random.key(0))
    density = targets.by_hand()
    images, labels = jnp.asarray(data.inputs), jnp.asarray(data.targets)
    ours = jax.grad(target.log_density)(position)
    theirs = jax.grad(density)(position, images, labels)
    for name, slope in ours.items():
        np.testing.assert_allclose(slope, theirs[name], rtol=2e-3, atol=2e-2, err_msg=name)
    by_hand = jax.value_and_grad(lambda u: density(u, images, labels))
    runs = {"lowered": bare_run(target, None), "by hand": loop_run(by_hand, position)}
    seconds = interleaved(runs, repeats)
    ratios = seconds["lowered"] / seconds["by hand"]
    figures = {"ms": 1e3 * float(np.median(seconds["lowered"])), "parameters": targets.size(target)}
    met = np.median(ratios) <= 1.05
    return [row("lowered gradient / hand-written gradient", "transformer", ratios, "<= 1.05", met, **figures)]
