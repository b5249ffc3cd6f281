"""An attention layer whose rows are drawn from a Dirichlet, over the same layer with softmax rows."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import targets
from benchmarks.gradients import engine_run
from benchmarks.timing import block, interleaved, row
from ptx import lower
from ptx.dirichlet import dirichlet
from ptx.inference import MAP

BATCH, HEADS, LENGTH, WIDTH = 32, 4, 64, 16
SHARPNESS, FLOOR = 10.0, 0.05


def attention(repeats: int) -> list[dict]:
    """Time of the layer, forward and forward with backward, over the softmax layer's (batch 32, 4 heads, 64 x 64).

    The layer is queries @ keys, rows, rows @ values at width 16 a head. A Dirichlet row has concentration
    10 softmax(scores) + 0.05. `jax.random.dirichlet` is compared apart, lest its second-long steps slow what follows.
    """
    rows = []
    for what, program in {"forward": _forward, "forward, backward": _backward}.items():
        label, goal = "attention, Dirichlet / softmax", "<= 5" if "backward" in what else "reported"
        rows.append(_compare(label, what, program, _dirichlet_rows, repeats, 20, goal))
        label = "the same, jax.random.dirichlet"
        rows.append(_compare(label, what, program, _jax_rows, min(repeats, 3), 1, "reported"))
    return rows


def training_step(repeats: int) -> list[dict]:
    """Time of a step of MAP on the digits vision transformer (300 images) with rows of each kind, over softmax rows.

    A step of a random kind draws every row of every layer and takes its KL; 20 steps a run, as in a chunk.
    """
    goals = {
        "dirichlet": 2.0,
        "weibull": 1.5,
        "lognormal": 1.5,
        "gaussian_logits": None,
        "gumbel_softmax": None,
    }
    model, data, engine = targets.model(), targets.digits(), MAP(learning_rate=1e-4, num_steps=10**6)
    network: Any = model.network
    runs = {}
    for kind in ("softmax", *goals):
        of_kind = replace(model, network=replace(network, attention=kind))
        runs[kind] = engine_run(engine, lower(of_kind, data, amortised=True), 20)
    seconds = interleaved(runs, repeats)
    rows = []
    for kind, most in goals.items():
        ratios, ms = seconds[kind] / seconds["softmax"], _milliseconds(seconds[kind])
        goal = "reported" if most is None else f"<= {most:g}"
        met = most is None or bool(np.median(ratios) <= most)
        rows.append(row("training step, latent rows / softmax", kind, ratios, goal, met, ms=ms))
    return rows


def _compare(
    label: str, what: str, program: Callable, rows_of: Callable, repeats: int, steps: int, goal: str
) -> dict:
    runs = {"rows": _run(program(rows_of), steps), "softmax": _run(program(_softmax_rows), steps)}
    seconds = interleaved(runs, repeats)
    ratios = seconds["rows"] / seconds["softmax"]
    figures = {"ms": _milliseconds(seconds["rows"]), "softmax_ms": _milliseconds(seconds["softmax"])}
    met = goal == "reported" or bool(np.median(ratios) <= 5)
    return row(label, what, ratios, goal, met, **figures)


def _milliseconds(seconds: np.ndarray) -> float:
    return 1e3 * float(np.median(seconds))


def _softmax_rows(rng_key: jax.Array, scores: jax.Array) -> jax.Array:
    return jax.nn.softmax(scores)


def _dirichlet_rows(rng_key: jax.Array, scores: jax.Array) -> jax.Array:
    return dirichlet(rng_key, SHARPNESS * jax.nn.softmax(scores) + FLOOR)


def _jax_rows(rng_key: jax.Array, scores: jax.Array) -> jax.Array:
    return jax.random.dirichlet(rng_key, SHARPNESS * jax.nn.softmax(scores) + FLOOR)


def _forward(rows_of: Callable) -> Callable:
    def layer(rng_key: jax.Array, queries: jax.Array, keys: jax.Array, values: jax.Array) -> jax.Array:
        scores = jnp.einsum("bhqw,bhkw->bhqk", queries, keys) / np.sqrt(WIDTH)
        return jnp.einsum("bhqk,bhkw->bhqw", rows_of(rng_key, scores), values)

    return layer


def _backward(rows_of: Callable) -> Callable:
    def loss(inputs: Any, rng_key: jax.Array) -> jax.Array:
        return jnp.sum(_forward(rows_of)(rng_key, *inputs) ** 2)

    return lambda rng_key, *inputs: jax.value_and_grad(loss)(inputs, rng_key)


def _run(program: Callable, steps: int) -> Callable[[], float]:
    compiled = jax.jit(program)
    shape = (3, BATCH, HEADS, LENGTH, WIDTH)
    queries, keys, values = jax.random.normal(jax.random.key(0), shape)

    rng_keys = list(jax.random.split(jax.random.key(1), steps))

    def once() -> float:
        for rng_key in rng_keys:
            block(compiled(rng_key, queries, keys, values))
        return float(steps)

    return once
