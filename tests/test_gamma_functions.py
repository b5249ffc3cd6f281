"""log Gamma and derivatives against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from ptx.gamma_functions import digamma, dirichlet_kl_term, lgamma, trigamma

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


def kl(a, b, term):
    return jnp.sum(term(a, b), -1) - term(a.sum(-1), b.sum(-1))


def plain_term(a, b):
    return (a - b) * digamma(a) - lgamma(a) + lgamma(b)


@pytest.mark.parametrize("sharpness", [0.1, 10.0, 1e3, 1e5, 1e7])
def test_terms_of_the_kl_of_dirichlets_are_right_in_float32_however_sharp(sharpness):
    """Values, and derivatives in log a and log b, against SciPy in float64."""
    means = np.random.default_rng(0).dirichlet(np.full(16, 0.7), 400)
    a = np.float32(sharpness * means + 0.01)
    b = np.float32(np.random.default_rng(1).uniform(0.1, 2, a.shape))
    args = jnp.asarray(a), jnp.asarray(b)
    grads = jax.grad(lambda a, b: jnp.sum(kl(a, b, dirichlet_kl_term)), (0, 1))(*args)
    a, b = a.astype(float), b.astype(float)
    psi = scipy.special.digamma

    def term(a, b):
        return (a - b) * psi(a) - scipy.special.gammaln(a) + scipy.special.gammaln(b)

    def slope(a, b):
        return (a - b) * scipy.special.polygamma(1, a)

    total, of_prior = a.sum(-1, keepdims=True), b.sum(-1, keepdims=True)
    expected = term(a, b).sum(-1) - term(total, of_prior)[:, 0]
    np.testing.assert_allclose(kl(*args, dirichlet_kl_term), expected, rtol=2e-6, atol=1e-4)
    in_a = a * (slope(a, b) - slope(total, of_prior))
    in_b = b * (psi(b) - psi(a) - psi(of_prior) + psi(total))
    for ours, scale, theirs in zip(grads, (a, b), (in_a, in_b), strict=True):
        np.testing.assert_allclose(ours * scale, theirs, rtol=1e-5, atol=2e-5 * np.abs(theirs).max())
    if sharpness >= 1e5:  # what the leading terms cost where they are left to cancel
        assert np.abs(kl(*args, plain_term) - expected).max() > 1e-2
