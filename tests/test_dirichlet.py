"""The Dirichlet: moments, the bias of its gradient, masks, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from ptx.dirichlet import SMALLEST, Dirichlet, dirichlet, log_dirichlet
from ptx.gamma import log_gamma

GRADIENT_CASES = [(alpha, entries) for alpha in (0.03, 0.1, 1.0, 10.0) for entries in (4, 64)]
SMALL_CASES = [(SMALLEST, 4), (SMALLEST, 64), (0.01, 4), (0.01, 64)]


def gradient_score(alpha: float, entries: int, draw=dirichlet, rounds: int = 4, count: int = 50_000) -> float:
    """Standard score of the mean gradient of sum p^2 in a symmetric concentration against closed form.

    E sum p^2 = (alpha + 1) / (K alpha + 1), so d/dalpha = -(K - 1) / (K alpha + 1)^2.
    """

    @jax.jit
    def gradients(rng_key):
        concentration = jnp.full((count, entries), alpha, jnp.float32)
        by_entry = jax.grad(lambda a: jnp.sum(draw(rng_key, a) ** 2))(concentration)
        return jnp.sum(by_entry, -1)

    keys = jax.random.split(jax.random.key(11), rounds)
    values = np.concatenate([np.asarray(gradients(key), np.float64) for key in keys])
    exact = float(np.float32(alpha))
    expected = -(entries - 1) / (entries * exact + 1) ** 2
    return float((values.mean() - expected) / (values.std() / np.sqrt(values.size)))


@pytest.mark.parametrize(("alpha", "entries"), GRADIENT_CASES + SMALL_CASES)
def test_gradient_is_unbiased_down_to_the_smallest_concentration(alpha, entries):
    assert abs(gradient_score(alpha, entries)) < 4


def test_a_biased_gradient_is_seen():
    """Log-weights cut off at -20, as probabilities floored at 2e-9 have them."""

    def cut(rng_key, concentration):
        return jax.nn.softmax(jnp.maximum(log_gamma(rng_key, concentration), -20.0))

    assert max(abs(gradient_score(alpha, 4, cut)) for alpha in (0.03, 0.1)) > 8


@pytest.mark.parametrize("value", [0.01, 0.3, 5.0])
def test_moments_are_those_of_the_dirichlet(value):
    concentration = value * jnp.asarray([1.0, 2.0, 0.5, 1.0])
    count = 200_000
    p = np.asarray(dirichlet(jax.random.key(2), jnp.broadcast_to(concentration, (count, 4))), np.float64)
    np.testing.assert_allclose(p.sum(-1), 1, atol=1e-6)
    alpha = np.asarray(concentration, np.float64)
    mean, total = alpha / alpha.sum(), alpha.sum()
    variance = mean * (1 - mean) / (total + 1)
    assert np.abs((p.mean(0) - mean) / np.sqrt(variance / count)).max() < 4
    centred = (p - mean) ** 2
    assert np.abs((centred.mean(0) - variance) / (centred.std(0) / np.sqrt(count))).max() < 4
    product = (p[:, 0] - mean[0]) * (p[:, 1] - mean[1])
    assert abs((product.mean() + mean[0] * mean[1] / (total + 1)) / (product.std() / np.sqrt(count))) < 4


def test_one_entry_has_its_beta_distribution_in_the_logarithm():
    concentration = jnp.broadcast_to(jnp.asarray([0.02, 0.03, 0.05]), (50_000, 3))
    log_p = np.asarray(log_dirichlet(jax.random.key(4), concentration), np.float64)
    assert log_p.min() < -200  # where float32 probabilities are zero
    beta = stats.beta(0.02, 0.08)
    below = log_p[:, 0] < np.log(0.9)  # nearer to 1 float32 cannot tell it from 1
    share, expected = below.mean(), beta.cdf(0.9)
    assert abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) / len(below))
    exact = beta.cdf(np.exp(np.maximum(log_p[below, 0], -700))) / expected
    assert stats.kstest(exact, "uniform").pvalue > 1e-3


def test_logarithms_are_those_of_the_probabilities():
    concentration = jnp.full((100, 8), 0.7)
    p = dirichlet(jax.random.key(0), concentration)
    np.testing.assert_allclose(jnp.exp(log_dirichlet(jax.random.key(0), concentration)), p, rtol=1e-5)
    weights = jnp.arange(8.0)
    by_p = jax.grad(lambda a: jnp.sum(weights * dirichlet(jax.random.key(0), a)))(concentration)
    by_log = jax.grad(lambda a: jnp.sum(weights * jnp.exp(log_dirichlet(jax.random.key(0), a))))(
        concentration
    )
    np.testing.assert_allclose(by_p, by_log, rtol=1e-3, atol=1e-5)


def test_masked_entries_leave_the_simplex():
    where = jnp.asarray([[True, True, False, True], [False, True, False, False], [False] * 4])
    concentration = jnp.asarray([0.5, 2.0, jnp.nan, 1.0]) * jnp.ones((3, 1))
    p = np.asarray(dirichlet(jax.random.key(0), concentration, where))
    log_p = np.asarray(log_dirichlet(jax.random.key(0), concentration, where))
    np.testing.assert_allclose(p.sum(-1), [1, 1, 0], atol=1e-6)
    np.testing.assert_array_equal(p[1:], [[0, 1, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(p == 0, ~np.asarray(where))
    np.testing.assert_array_equal(np.isneginf(log_p), ~np.asarray(where))
    assert log_p[1, 1] == 0


def test_masked_entries_are_those_of_a_smaller_dirichlet():
    where = jnp.asarray([True, False, True, True, False])
    concentration = jnp.asarray([0.5, 9.0, 2.0, 1.0, 0.2])
    p = np.asarray(
        dirichlet(jax.random.key(3), jnp.broadcast_to(concentration, (100_000, 5)), where), np.float64
    )
    assert stats.kstest(p[:, 0], stats.beta(0.5, 3.0).cdf).pvalue > 1e-3
    assert stats.kstest(p[:, 2], stats.beta(2.0, 1.5).cdf).pvalue > 1e-3


def test_gradients_of_masked_rows_are_finite_and_zero_where_masked():
    where = jnp.asarray([[True, True, False, True], [False, True, False, False], [False] * 4])
    concentration = jnp.asarray([0.5, 2.0, 0.0, 1.0]) * jnp.ones((3, 1))
    by_p = jax.grad(lambda a: jnp.sum(dirichlet(jax.random.key(0), a, where)[..., 1] ** 2))(concentration)

    def finite_logs(a):
        return jnp.sum(jnp.where(where, log_dirichlet(jax.random.key(0), a, where), 0.0))

    for gradient in (np.asarray(by_p), np.asarray(jax.grad(finite_logs)(concentration))):
        assert np.isfinite(gradient).all()
        assert (gradient[~np.asarray(where)] == 0).all()
        assert (gradient[0, [0, 1, 3]] != 0).all()
        assert (gradient[1] == 0).all()


def test_gradients_at_the_smallest_concentration_are_finite():
    concentration = jnp.full((2000, 64), SMALLEST)
    gradient = jax.grad(lambda a: jnp.sum(dirichlet(jax.random.key(0), a) ** 2))(concentration)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("bad", [0.0, -1.0, 0.5 * SMALLEST, np.nan, np.inf])
@pytest.mark.parametrize("draw", [dirichlet, log_dirichlet])
def test_concentrations_out_of_range_are_refused(bad, draw):
    concentration = jnp.asarray([[1.0, 1.0], [1.0, bad]])
    with pytest.raises(ValueError, match=r"at least 0\.001.*floor"):
        draw(jax.random.key(0), concentration)
    traced = np.asarray(jax.jit(draw)(jax.random.key(0), concentration))
    assert np.isnan(traced[1]).all()
    assert np.isfinite(traced[0]).all()


def test_a_scalar_and_a_mask_of_numbers_are_refused():
    with pytest.raises(ValueError, match="axis of entries"):
        dirichlet(jax.random.key(0), jnp.asarray(1.0))
    with pytest.raises(TypeError, match="boolean where"):
        dirichlet(jax.random.key(0), jnp.ones(3), jnp.ones(3))


def test_vmap_over_keys_is_one_draw_per_key():
    keys, concentration = jax.random.split(jax.random.key(0), 3), jnp.asarray([0.1, 2.0, 30.0])
    together = jax.vmap(dirichlet, (0, None))(keys, concentration)
    for key, row in zip(keys, together, strict=True):
        np.testing.assert_allclose(dirichlet(key, concentration), row, rtol=1e-4)


def test_the_numpyro_distribution_draws_by_it_and_keeps_numpyros_kl():
    concentration = jnp.asarray([[0.5, 1.0, 2.0], [0.05, 3.0, 1.0]])
    ours, theirs = Dirichlet(concentration), dist.Dirichlet(concentration)
    draws = ours.sample(jax.random.key(0), (20_000,))
    assert draws.shape == (20_000, 2, 3)
    assert np.isfinite(ours.log_prob(draws)).all()
    mean = concentration / concentration.sum(-1, keepdims=True)
    np.testing.assert_allclose(draws.mean(0), mean, atol=0.015)
    kl = dist.kl_divergence(ours, dist.Dirichlet(jnp.ones(3)))
    np.testing.assert_allclose(kl, dist.kl_divergence(theirs, dist.Dirichlet(jnp.ones(3))))
    gradient = jax.grad(lambda a: jnp.sum(Dirichlet(a).sample(jax.random.key(1)) ** 2))(concentration)
    assert np.isfinite(gradient).all()
    assert (gradient != 0).all()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_the_smallest_concentration_is_taken_in_every_dtype(dtype):
    """0.001 rounds down in bfloat16."""
    concentration = jnp.full((3, 4), SMALLEST, dtype)
    for draw in (dirichlet, jax.jit(dirichlet)):
        assert jnp.isfinite(draw(jax.random.key(0), concentration)).all()
