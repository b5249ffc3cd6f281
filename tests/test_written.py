"""The barrier changes no number, whatever passes it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ptx.written import written

X = jnp.linspace(0.1, 2.0, 12).reshape(3, 4)


def normalised(x, barrier):
    return jnp.sum((x / barrier(x.sum(-1, keepdims=True)) * jnp.arange(x.shape[-1])) ** 2)


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (5,), (2, 3, 7)], ids=str)
def test_values_pass_unchanged(shape):
    values = jax.random.normal(jax.random.key(0), shape)
    for barrier in (written, jax.jit(written)):
        np.testing.assert_array_equal(barrier(values), values)


@pytest.mark.parametrize("transform", [jax.grad, jax.hessian, lambda f: jax.jit(jax.grad(f))])
def test_derivatives_are_those_without_it(transform):
    with_it, without = (transform(lambda x, b=b: normalised(x, b)) for b in (written, lambda x: x))
    np.testing.assert_allclose(with_it(X), without(X), rtol=1e-4, atol=1e-6)


def test_it_may_be_vectorised():
    batch = jnp.stack([X, X + 1])
    with_it, without = (jax.vmap(jax.grad(lambda x, b=b: normalised(x, b))) for b in (written, lambda x: x))
    np.testing.assert_allclose(with_it(batch), without(batch), rtol=1e-5, atol=1e-7)


def test_compiled_code_keeps_the_barrier():
    """XLA drops `optimization_barrier` before it fuses; a loop that it cannot see through stays."""
    for barrier, kept in ((written, True), (jax.lax.optimization_barrier, False)):
        text = str(jax.jit(lambda x, b=barrier: normalised(x, b)).lower(X).compile().as_text())
        assert (" while(" in text) == kept
