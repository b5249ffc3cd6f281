"""Log-gamma variates: their distribution in every path, their derivative, and what the function promises."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from ptx import gamma
from ptx.gamma import log_gamma
from ptx.gamma_gradient import log_gamma_gradient

SHAPES = (1e-4, 1e-3, 0.03, 0.5, 0.999, 1.0, 1.7, 10.0, 1e3)
REFERENCE = Path(__file__).parent / "references" / "gamma_gradient.json"


def probability(alpha: float, z: np.ndarray) -> np.ndarray:
    """F(e^z): by its first term where e^z is below 1e-13, for there it may underflow."""
    small = np.minimum(z, -30)
    first = np.exp(alpha * small - special.gammaln(alpha + 1))
    return np.where(z < -30, first, special.gammainc(alpha, np.exp(np.maximum(z, -30))))


def draws(alpha: float, count: int = 300_000, seed: int = 0) -> np.ndarray:
    shape = jnp.full(count, alpha, jnp.float32)
    return np.asarray(jax.jit(log_gamma)(jax.random.key(seed), shape), np.float64)


def moments(alpha: float, z: np.ndarray) -> tuple[float, float]:
    """Standard scores of the mean and variance of log g against digamma and trigamma."""
    variance, fourth = special.polygamma(1, alpha), special.polygamma(3, alpha)
    mean_score = (z.mean() - special.digamma(alpha)) / np.sqrt(variance / z.size)
    variance_score = (z.var() - variance) / np.sqrt((fourth + 2 * variance**2) / z.size)
    return float(mean_score), float(variance_score)


@pytest.mark.parametrize("alpha", SHAPES)
def test_variates_have_the_distribution_and_moments_of_log_gamma(alpha):
    exact = float(np.float32(alpha))
    z = draws(alpha)
    assert stats.kstest(probability(exact, z), "uniform").pvalue > 1e-3
    assert np.abs(moments(exact, z)).max() < 4


def test_a_test_of_distribution_sees_a_shape_that_is_off_by_5_percent():
    assert stats.kstest(probability(0.03 * 1.05, draws(0.03)), "uniform").pvalue < 1e-4


def test_float64_variates_have_the_same_distribution():
    with jax.enable_x64(True):
        z = np.asarray(log_gamma(jax.random.key(1), jnp.full(50_000, 0.2, jnp.float64)))
    assert z.dtype == np.float64
    assert len(np.unique(z)) == z.size
    assert stats.kstest(probability(0.2, z), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("alpha", [0.03, 1.0, 10.0])
def test_entries_drawn_in_later_rounds_have_the_same_distribution(alpha, monkeypatch):
    """With a first proposal that keeps nothing every entry goes through the rounds, and through both of their loops."""
    propose = gamma._propose

    def reject_the_first(seed, rounds, shape):
        return jnp.where(rounds == 0, jnp.inf, propose(seed, rounds, shape))

    monkeypatch.setattr(gamma, "_propose", reject_the_first)
    shape = jnp.full(60_001, alpha, jnp.float32)
    z = np.asarray(
        jax.jit(gamma._fill.__wrapped__)(jax.random.bits(jax.random.key(3), (2,)), shape), np.float64
    )
    assert np.isfinite(z).all()
    assert stats.kstest(probability(float(np.float32(alpha)), z), "uniform").pvalue > 1e-3
    assert np.abs(moments(float(np.float32(alpha)), z)).max() < 4


def test_a_proposal_that_keeps_nothing_ends_at_the_bound(monkeypatch):
    monkeypatch.setattr(gamma, "_propose", lambda seed, rounds, shape: jnp.full(shape.shape, jnp.inf))
    assert np.isinf(gamma._fill.__wrapped__(jnp.zeros(2, jnp.uint32), jnp.ones(100))).all()


def test_entries_are_independent_of_each_other():
    """Also of entries that share a word of 32, and of those in the next call with another key."""
    z = np.stack([probability(0.5, draws(0.5, 64 * 4000, seed)).reshape(4000, 64) for seed in (0, 1)])
    scores = stats.norm.ppf(np.clip(z, 1e-7, 1 - 1e-7))
    columns = np.concatenate([scores[0], scores[1]], axis=1)
    correlations = np.corrcoef(columns.T)[np.triu_indices(128, 1)] * np.sqrt(4000)
    assert np.abs(correlations).max() < 5
    assert abs(correlations.std() - 1) < 0.05
    flat = scores[0].reshape(-1)
    neighbours = [np.corrcoef(flat[:-lag], flat[lag:])[0, 1] * np.sqrt(flat.size) for lag in (1, 2, 32, 8000)]
    assert np.abs(neighbours).max() < 4


def test_derivative_is_that_of_the_quantile_everywhere():
    """Shapes 1e-4 to 1e4, probabilities 1e-6 to 1 - 1e-6, against 50-digit series (tools/fit_gamma_gradient.py)."""
    rows = np.asarray(json.loads(REFERENCE.read_text())["rows"])
    assert (rows[:, 0].min(), rows[:, 0].max(), len(rows)) == (1e-4, 1e4, 363)
    ours = np.asarray(log_gamma_gradient(*jnp.asarray(rows[:, :2].T, jnp.float32)), np.float64)
    assert np.abs(ours / rows[:, 2] - 1).max() < 1e-4


def test_derivative_is_that_of_scipys_distribution_function():
    """A second reference: finite differences of SciPy's incomplete gamma functions, at random points."""
    rng = np.random.default_rng(0)
    alpha = np.exp(rng.uniform(np.log(0.01), np.log(1e3), 2000))
    level = rng.uniform(1e-5, 1 - 1e-5, 2000)
    x = special.gammaincinv(alpha, level)
    alpha, x = (values[x > 1e-200] for values in (alpha, x))
    step = 1e-4 * alpha

    def difference(function):
        near, far = (function(alpha + k * step, x) - function(alpha - k * step, x) for k in (1, 2))
        return (8 * near - far) / (12 * step)

    lower = special.gammainc(alpha, x) < 0.5
    slope = np.where(lower, difference(special.gammainc), -difference(special.gammaincc))
    expected = -slope / (x * stats.gamma.pdf(x, alpha))
    ours = np.asarray(
        log_gamma_gradient(jnp.asarray(alpha, jnp.float32), jnp.asarray(np.log(x), jnp.float32))
    )
    assert np.abs(ours / expected - 1).max() < 1e-3


def test_derivative_is_finite_and_positive_beyond_the_fitted_range():
    alpha = jnp.asarray([1e-4, 1e-4, 1.0, 1.0, 1e4, 1e4, 1e7], jnp.float32)
    z = jnp.asarray([-2e5, 5.0, -60.0, 6.0, 8.0, 10.0, 16.118], jnp.float32)
    gradient = np.asarray(log_gamma_gradient(alpha, z))
    assert np.isfinite(gradient).all()
    assert (gradient > 0).all()


def test_grad_jit_and_vmap_agree():
    key, alpha = jax.random.key(5), jnp.asarray([[0.01, 0.5, 3.0], [40.0, 1.0, 0.2]])
    z = log_gamma(key, alpha)
    gradient = jax.grad(lambda a: jnp.sum(log_gamma(key, a)))(alpha)
    np.testing.assert_array_equal(gradient, log_gamma_gradient(alpha, z))
    np.testing.assert_allclose(jax.jit(log_gamma)(key, alpha), z, rtol=1e-4)
    keys = jax.random.split(key, 4)
    together = jax.vmap(log_gamma, (0, None))(keys, alpha)
    apart = jnp.stack([log_gamma(key, alpha) for key in keys])
    np.testing.assert_allclose(together, apart, rtol=1e-4)
    tangent = jax.jvp(lambda a: log_gamma(key, a), (alpha,), (2 * alpha,))[1]
    np.testing.assert_allclose(tangent, 2 * alpha * gradient, rtol=1e-6)


def test_shapes_below_the_least_one_taken_are_nan():
    shape = jnp.asarray([0.0, 1e-3, 0.0099, 0.01, 1.0, jnp.inf, jnp.nan])
    np.testing.assert_array_equal(
        jnp.isnan(log_gamma(jax.random.key(0), shape, least=0.01)), [1, 1, 1, 0, 0, 1, 1]
    )
    np.testing.assert_array_equal(jnp.isnan(log_gamma(jax.random.key(0), shape)), [1, 0, 0, 0, 0, 1, 1])


@pytest.mark.parametrize("shape", [(), (0,), (1,), (33,), (2, 0, 3), (5, 7)])
def test_any_shape_is_taken(shape):
    z = log_gamma(jax.random.key(0), jnp.ones(shape))
    assert z.shape == shape
    assert np.isfinite(z).all()


def test_shapes_that_are_no_shapes_give_nan_and_leave_the_others_alone():
    alpha = jnp.asarray([0.0, -1.0, jnp.nan, jnp.inf, 2.0, 1e-4])
    z = np.asarray(log_gamma(jax.random.key(0), alpha))
    assert np.isnan(z[:4]).all()
    assert np.isfinite(z[4:]).all()


def test_half_precision_is_computed_in_float32():
    for dtype in (jnp.bfloat16, jnp.float16):
        alpha = jnp.full(2000, 0.5, dtype)
        z = log_gamma(jax.random.key(0), alpha)
        assert z.dtype == dtype
        np.testing.assert_array_equal(
            z, log_gamma(jax.random.key(0), alpha.astype(jnp.float32)).astype(dtype)
        )


def test_integers_are_refused():
    with pytest.raises(TypeError, match="floating-point"):
        log_gamma(jax.random.key(0), jnp.ones(3, int))
