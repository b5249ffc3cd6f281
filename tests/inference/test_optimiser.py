"""Optimisers by name: which serve, and what one step does."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ptx.inference import MAP, Exponential, Polynomial, optimiser

NAMES = [name for name in dir(optax) if not optimiser._reason(name)]
START = {"a": jnp.array([3.0, -2.0]), "b": jnp.array([[1.0]])}


def quadratic(parameters):
    return -0.5 * sum(jnp.sum(jnp.square(leaf - 0.5)) for leaf in jax.tree.leaves(parameters))


def climb(engine, num_steps, objective=quadratic):
    """The state after some steps from START, and the info of the last."""

    def body(step, carry):
        value, gradient = jax.value_and_grad(objective)(carry[0].parameters)
        return optimiser.ascend(engine, carry[0], value, gradient, step)

    state = optimiser.start(engine, START, objective(START))
    state = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.asarray(leaf).dtype), state)
    return jax.jit(lambda state: jax.lax.fori_loop(0, num_steps, body, body(0, (state,))))(state)


def test_the_usual_optimisers_serve():
    assert {"adam", "adamw", "sgd", "rmsprop", "lion", "adagrad", "lamb", "nadam", "yogi"} <= set(NAMES)
    assert not {"lbfgs", "noisy_sgd", "scale_by_adam", "apply_updates", "chain", "adam_"} & set(NAMES)


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", NAMES)
def test_a_step_keeps_shapes_and_dtypes(name):
    engine = MAP(optimiser=name)
    state = jax.tree.map(jnp.asarray, optimiser.start(engine, START, quadratic(START)))
    step = jax.eval_shape(lambda s: optimiser.ascend(engine, s, 0.0, START, jnp.int32(0))[0], state)
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), step) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), state
    )


@pytest.mark.parametrize(
    ("name", "rate"), [("adam", 0.05), ("sgd", 0.05), ("rmsprop", 0.02), ("lion", 0.02), ("rprop", 0.01)]
)
def test_it_climbs_to_the_maximum(name, rate):
    state, info = climb(MAP(optimiser=name, learning_rate=rate), 500)
    for leaf in jax.tree.leaves(state.finite):
        np.testing.assert_allclose(leaf, 0.5, atol=0.05)
    assert info["gradient_norm"] < 0.1
    assert not info["nonfinite"]


def test_the_learning_rate_follows_its_schedule():
    def slope(parameters):
        return jnp.sum(parameters["b"])

    for rate in (Exponential(0.1, 0.5, 3), Polynomial(0.2), 0.03):
        engine = MAP(optimiser="sgd", learning_rate=rate)
        state, _ = climb(engine, 5, slope)
        steps = [0, *range(5)]  # `climb` takes step 0 twice
        expected = 1.0 + sum(rate if isinstance(rate, float) else float(rate(t)) for t in steps)
        np.testing.assert_allclose(state.parameters["b"], expected, rtol=1e-6)


@pytest.mark.parametrize(("limit", "length"), [(None, 10.0), (1.5, 1.5), (50.0, 10.0)])
def test_long_gradients_are_scaled_down(limit, length):
    engine = MAP(optimiser="sgd", learning_rate=1.0, max_gradient_norm=limit)
    gradient = {"a": jnp.array([6.0, 0.0]), "b": jnp.array([[-8.0]])}
    state, info = optimiser.ascend(
        engine, optimiser.start(engine, START, jnp.zeros(())), jnp.zeros(()), gradient, 0
    )
    moved = jax.tree.map(lambda new, old: new - old, state.parameters, START)
    np.testing.assert_allclose(optax.tree.norm(moved), length, rtol=1e-6)
    np.testing.assert_allclose(moved["b"] / moved["a"][0], -8 / 6, rtol=1e-6)
    np.testing.assert_allclose(info["gradient_norm"], 10.0, rtol=1e-6)


@pytest.mark.parametrize("objective", [jnp.nan, -jnp.inf, 1.0])
def test_what_is_not_finite_is_skipped_and_counted(objective):
    engine = MAP(optimiser="adam")
    before, _ = climb(engine, 3)
    entry = 1.0 if objective != 1.0 else jnp.inf
    gradient = {"a": jnp.array([1.0, 1.0]), "b": jnp.array([[entry]])}
    after, info = optimiser.ascend(engine, before, jnp.asarray(objective), gradient, 4)
    assert info["nonfinite"]
    for new, old in zip(*map(jax.tree.leaves, (after[1:], before[1:])), strict=True):
        np.testing.assert_array_equal(new, old)
    for name, leaf in after.parameters.items():
        np.testing.assert_array_equal(leaf, before.finite[name])
        assert not np.array_equal(leaf, before.parameters[name])


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("adma", ValueError, "'adam'"),
        ("Adam", ValueError, "'adam'"),
        ("", ValueError, "no optax optimiser"),
        ("scale_by_adam", ValueError, "no optax optimiser"),
        ("__doc__", ValueError, "no optax optimiser"),
        ("lbfgs", ValueError, "more than a gradient"),
        ("polyak_sgd", ValueError, "use for example"),
        ("noisy_sgd", ValueError, "random numbers"),
        (optax.adam, TypeError, "name of an optax optimiser"),
        (None, TypeError, "name of an optax optimiser"),
    ],
)
def test_other_names_are_refused(name, error, message):
    with pytest.raises(error, match=message):
        MAP(optimiser=name)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_steps", 0),
        ("num_steps", 2.0),
        ("num_chains", 0),
        ("batch_size", 0),
        ("batch_size", 2.5),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("learning_rate", "fast"),
        ("max_gradient_norm", 0.0),
        ("max_gradient_norm", float("inf")),
        ("max_gradient_norm", "1"),
    ],
)
def test_settings_out_of_range_are_refused(field, value):
    with pytest.raises((ValueError, TypeError), match=f"MAP: {field}"):
        dataclasses.replace(MAP(), **{field: value})
