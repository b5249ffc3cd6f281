"""log Gamma and derivatives against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from ptx.gamma_functions import digamma, lgamma, trigamma

X = np.exp(np.linspace(np.log(1e-4), np.log(1e4), 4001))
PAIRS = [
    (lgamma, scipy.special.gammaln),
    (digamma, scipy.special.digamma),
    (trigamma, lambda x: scipy.special.polygamma(1, x)),
]


@pytest.mark.parametrize("wide", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=["lgamma", "digamma", "trigamma"])
def test_values_are_those_of_scipy(ours, theirs, wide):
    with jax.enable_x64(wide):
        x = jnp.asarray(X, float)
        expected = theirs(np.asarray(x, np.float64))
        error = np.abs(np.asarray(ours(x), np.float64) - expected) / np.maximum(1, np.abs(expected))
    # In float32 the terms that cancel near x = 1 and 2 are about 8.
    assert error.max() < (5e-12 if wide else 3e-6), X[error.argmax()]


@pytest.mark.parametrize("order", [1, 2])
def test_derivatives_of_lgamma_are_digamma_and_trigamma(order):
    function, expected = (jax.grad(lgamma), digamma) if order == 1 else (jax.grad(jax.grad(lgamma)), trigamma)
    x = jnp.asarray([0.003, 0.7, 5.99, 6.0, 42.0])
    np.testing.assert_array_equal(jax.vmap(function)(x), expected(x))


def test_bfloat16_in_bfloat16_out():
    assert lgamma(jnp.asarray([0.5], jnp.bfloat16)).dtype == jnp.bfloat16
