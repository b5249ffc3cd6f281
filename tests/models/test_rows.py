"""Distributions of attention rows: log densities and KLs against NumPyro, SciPy, quadrature and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats as st
from numpyro.distributions import kl_divergence

from ptx.models.rows import DirichletRows, EntryRows, GumbelRows

RNG = np.random.default_rng(3)
POSTERIOR, PRIOR = np.array([[0.3, 4.0, 1.5], [9.0, 0.05, 2.0]]), np.array([[1.0, 0.5, 2.0], [0.7, 0.7, 3.0]])
WHERE = np.array([[True, False, True, True, False], [False, True, False, False, False], [False] * 5])
COUNT = 200_000  # draws of a Monte-Carlo KL


def spread(concentration, excluded=np.nan):
    """The concentrations of three entries in the places that the first row of WHERE allows."""
    return np.where(WHERE[:1], np.insert(concentration, [1, 3], 1.0), excluded)


def test_log_density_is_numpyros():
    value = RNG.dirichlet([1, 2, 3], size=2)
    with jax.enable_x64(True):
        want = dist.Dirichlet(POSTERIOR).log_prob(value)
        np.testing.assert_allclose(DirichletRows(POSTERIOR, (2, 3)).log_prob(value), want, rtol=1e-11)
        one = DirichletRows(jnp.asarray(0.7), (2, 3))
        np.testing.assert_allclose(
            one.log_prob(value), dist.Dirichlet(0.7 * np.ones(3)).log_prob(value), rtol=1e-11
        )
    single = DirichletRows(jnp.float32(POSTERIOR), (2, 3)).log_prob(jnp.float32(value))
    np.testing.assert_allclose(single, want, rtol=1e-5)


def test_log_density_of_a_masked_row_is_that_of_its_allowed_entries_alone():
    few = RNG.dirichlet([1, 2, 3])
    value = np.zeros((3, 5))
    value[0, WHERE[0]], value[1, 1] = few, 1.0
    with jax.enable_x64(True):
        rows = DirichletRows(spread(POSTERIOR[0]), (3, 5), jnp.asarray(WHERE))
        want = [dist.Dirichlet(POSTERIOR[0]).log_prob(few), 0.0]
        concentration = jnp.nan_to_num(rows.concentration, nan=2.0)
        found = DirichletRows(concentration, (3, 5), rows.where).log_prob(value)
        np.testing.assert_allclose(found, [*want, 0.0], rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(rows.log_prob(value)[0], want[0], rtol=1e-11)


def test_draws_of_a_masked_row_leave_excluded_entries_at_zero():
    rows = DirichletRows(jnp.float32(spread(POSTERIOR[0], 2.0)), (3, 5), jnp.asarray(WHERE))
    draws = np.asarray(rows.sample(jax.random.key(0), (20_000,)), np.float64)
    assert draws.shape == (20_000, 3, 5)
    assert (draws[:, ~WHERE] == 0).all()
    np.testing.assert_array_equal(draws[:, 1, 1], 1.0)
    np.testing.assert_allclose(draws[:, 0].sum(-1), 1, atol=1e-6)
    error = (draws[:, 0].mean(0) - rows.mean[0])[WHERE[0]] / (draws[:, 0].std(0)[WHERE[0]] / np.sqrt(20_000))
    assert np.abs(error).max() < 4
    np.testing.assert_allclose(rows.mean[0, WHERE[0]], POSTERIOR[0] / POSTERIOR[0].sum(), rtol=1e-6)
    np.testing.assert_array_equal(rows.mean[1:], [[0, 1, 0, 0, 0], [0] * 5])


def test_kl_of_dirichlet_rows_is_numpyros():
    with jax.enable_x64(True):
        for prior in (PRIOR, PRIOR[:1], 0.7 * np.ones((2, 1)), np.float64(0.7)):
            q, p = DirichletRows(POSTERIOR, (2, 3)), DirichletRows(prior, (2, 3))
            full = np.broadcast_to(prior, (2, 3))
            want = kl_divergence(dist.Dirichlet(POSTERIOR), dist.Dirichlet(full))
            np.testing.assert_allclose(kl_divergence(q, p), want, rtol=1e-11)
        same = DirichletRows(jnp.float32(POSTERIOR), (2, 3))
    np.testing.assert_allclose(kl_divergence(same, same), 0, atol=2e-5)


def test_kl_of_a_masked_row_is_that_of_its_allowed_entries_alone():
    where = jnp.asarray(WHERE)
    with jax.enable_x64(True):
        q = DirichletRows(spread(POSTERIOR[0]), (3, 5), where)
        for prior in (spread(PRIOR[0], 0.3), np.float64(0.7)):
            allowed = np.broadcast_to(prior, (1, 5))[0][WHERE[0]]
            want = kl_divergence(dist.Dirichlet(POSTERIOR[0]), dist.Dirichlet(allowed))
            found = kl_divergence(q, DirichletRows(prior, (3, 5), where))
            np.testing.assert_allclose(found[0], want, rtol=1e-11)


@pytest.mark.parametrize("concentration", [0.011, 0.3, 7.0, 20.01, 1234.5])
def test_rows_of_one_entry_or_none_have_kl_zero_exactly(concentration):
    """In float32, where terms that cancel on paper need not."""
    for where, shape in ((jnp.asarray(WHERE[1:]), (2, 5)), (None, (2, 1))):
        q = DirichletRows(jnp.full(shape, concentration, jnp.float32), shape, where)
        p = DirichletRows(jnp.float32(0.7), shape, where)
        np.testing.assert_array_equal(kl_divergence(q, p), 0.0)


# Posterior and prior of three entries: as rows, and as SciPy's draws and log densities of one row.
KINDS = {
    "dirichlet": (
        DirichletRows(jnp.float32(POSTERIOR[0]), (3,)),
        DirichletRows(jnp.float32(PRIOR[0]), (3,)),
        st.dirichlet(POSTERIOR[0]),
        st.dirichlet(PRIOR[0]),
    ),
    "weibull": (
        EntryRows(dist.Weibull(jnp.array([0.5, 1.0, 2.0]), 1.7), (3,)),
        EntryRows(dist.Gamma(2.0, jnp.array([1.0, 3.0, 0.7])), (3,)),
        st.weibull_min(1.7, scale=[0.5, 1.0, 2.0]),
        st.gamma(2.0, scale=1 / np.array([1.0, 3.0, 0.7])),
    ),
    "lognormal": (
        EntryRows(dist.LogNormal(jnp.array([-1.0, 0.0, 0.4]), 0.3), (3,)),
        EntryRows(dist.LogNormal(0.1, jnp.array([1.0, 0.5, 2.0])), (3,)),
        st.lognorm(0.3, scale=np.exp([-1.0, 0.0, 0.4])),
        st.lognorm([1.0, 0.5, 2.0], scale=np.exp(0.1)),
    ),
    "normal": (
        EntryRows(dist.Normal(jnp.array([-1.0, 0.0, 0.4]), 0.3), (3,)),
        EntryRows(dist.Normal(0.1, jnp.array([1.0, 0.5, 2.0])), (3,)),
        st.norm([-1.0, 0.0, 0.4], 0.3),
        st.norm(0.1, [1.0, 0.5, 2.0]),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kl_is_that_of_scipys_draws(kind):
    """And one wrong by 5 % is refused."""
    q, p, draws_of, under = KINDS[kind]
    found = np.float64(kl_divergence(q, p))
    if kind == "dirichlet":
        draws = draws_of.rvs(COUNT, random_state=5).T
        draws = np.maximum(draws, 1e-300) / np.maximum(draws, 1e-300).sum(0)
        ratio = draws_of.logpdf(draws) - under.logpdf(draws)
    else:
        draws = draws_of.rvs((COUNT, 3), random_state=5)
        ratio = np.sum(draws_of.logpdf(draws) - under.logpdf(draws), -1)
    error = ratio.std() / np.sqrt(COUNT)
    assert abs(found - ratio.mean()) / error < 4
    assert abs(1.05 * found - ratio.mean()) / error > 8


@pytest.mark.parametrize("kind", ["weibull", "lognormal", "normal"])
def test_entries_that_do_not_count_are_drawn_but_not_in_the_kl(kind):
    q, p, *_ = KINDS[kind]
    counted = EntryRows(q.base, (2, 3), jnp.asarray([[True, False, True], [False] * 3]))
    by_entry = kl_divergence(
        EntryRows(q.base, (2, 3), jnp.asarray([[True, True, True], [False, True, False]])), p
    )
    found = np.asarray(kl_divergence(counted, p))
    np.testing.assert_allclose(found[0], by_entry[0] - by_entry[1], rtol=1e-5)
    assert found[1] == 0
    draws = counted.sample(jax.random.key(0), (4,))
    assert draws.shape == (4, 2, 3)
    assert np.isfinite(counted.log_prob(draws)).all()
    np.testing.assert_allclose(
        counted.log_prob(draws), q.base.expand((2, 3)).to_event(1).log_prob(draws), rtol=1e-5
    )


def difference(value_of, x, step=1e-6):
    """Central finite differences of a scalar function, entry by entry."""
    steps = step * np.eye(x.size).reshape(x.size, *x.shape)
    return np.array([(value_of(x + h) - value_of(x - h)) / (2 * step) for h in steps]).reshape(x.shape)


def kl_of(kind, where=None):
    """The KL as a function of all its parameters, a vector of 6 positive numbers."""

    def dirichlet(x):
        return kl_divergence(DirichletRows(x[:3], (3,), where), DirichletRows(x[3:], (3,), where))

    def weibull(x):
        q, p = dist.Weibull(x[:2], x[2]), dist.Gamma(x[3], x[4:])
        return kl_divergence(EntryRows(q, (2,), where), EntryRows(p, (2,), where))

    def lognormal(x):
        q, p = dist.LogNormal(x[:2], x[2]), dist.LogNormal(x[4:], x[3])
        return kl_divergence(EntryRows(q, (2,), where), EntryRows(p, (2,), where))

    return {"dirichlet": dirichlet, "weibull": weibull, "lognormal": lognormal}[kind]


@pytest.mark.parametrize("kind", ["dirichlet", "weibull", "lognormal"])
def test_gradients_of_the_kl_are_those_of_finite_differences(kind):
    point = np.array([0.6, 2.5, 1.3, 0.9, 0.4, 1.7])
    size = 3 if kind == "dirichlet" else 2
    with jax.enable_x64(True):
        for where in (None, jnp.arange(size) != 1):
            kl = jax.jit(kl_of(kind, where))
            gradient = np.asarray(jax.grad(kl)(jnp.asarray(point)))
            np.testing.assert_allclose(gradient, difference(kl, point), rtol=1e-6, atol=1e-8)
            assert (gradient[[1, -2 if size == 3 else -1]] == 0).all() == (where is not None)


def test_excluded_concentrations_leave_no_nan_in_the_gradient():
    where = jnp.asarray(WHERE)
    prior = DirichletRows(jnp.float32(0.7), (3, 5), where)

    def total(concentration):
        return jnp.sum(kl_divergence(DirichletRows(concentration, (3, 5), where), prior))

    gradient = np.asarray(
        jax.jit(jax.grad(total))(jnp.float32(np.where(WHERE, spread(POSTERIOR[0], 2.0), np.nan)))
    )
    assert (gradient[~WHERE] == 0).all()
    assert gradient[0, WHERE[0]].all()
    np.testing.assert_array_equal(gradient[1:], 0.0)


LOGITS, PRIOR_LOGITS = np.array([0.9, -1.2, 0.3]), np.array([0.2, 0.1, -0.9])


def relaxed_log_density(z, loc):
    """Of differences to the last logit, by quadrature over the shift that softmax cannot see; z is (draw, key)."""
    shift = np.linspace(-30, 30, 4001)
    centred = (z - z[:, -1:])[:, None, :] + shift[None, :, None]
    values = np.exp(st.gumbel_r.logpdf(centred, loc=loc).sum(-1))
    return np.log(values.sum(-1) * (shift[1] - shift[0]))


def test_gumbel_log_ratio_is_that_of_what_softmax_can_see():
    z = st.gumbel_r.rvs(loc=LOGITS, size=(8, 3), random_state=0)
    want = relaxed_log_density(z, LOGITS) - relaxed_log_density(z, PRIOR_LOGITS)
    with jax.enable_x64(True):
        found = [GumbelRows(jnp.asarray(loc), (8, 3)) for loc in (LOGITS, PRIOR_LOGITS)]
        np.testing.assert_allclose(found[0].kl_at(jnp.asarray(z), found[1]), want, rtol=1e-8)
        where = jnp.asarray([[True, False, True]] * 8)
        few = [GumbelRows(jnp.asarray(loc), (8, 3), where) for loc in (LOGITS, PRIOR_LOGITS)]
        pair = [0, 2]
        want = relaxed_log_density(z[:, pair], LOGITS[pair])
        want -= relaxed_log_density(z[:, pair], PRIOR_LOGITS[pair])
        np.testing.assert_allclose(few[0].kl_at(jnp.asarray(z), few[1]), want, rtol=1e-8)


def logistic_kl(a, b):
    """KL between the differences of two Gumbel logits, which are logistic, by quadrature."""
    x = np.linspace(a - 45, a + 45, 200_001)
    q, p = st.logistic(a), st.logistic(b)
    return np.sum(q.pdf(x) * (q.logpdf(x) - p.logpdf(x))) * (x[1] - x[0])


def test_mean_gumbel_log_ratio_of_two_keys_and_its_gradient_are_those_of_quadrature():
    """With a KL wrong by 5 %, and that of the logits themselves, as controls."""
    a, b = LOGITS[:2], PRIOR_LOGITS[:2]
    prior = GumbelRows(jnp.float32(b), (COUNT, 2))

    @jax.jit
    def estimates(loc):
        def one(tilt):  # the first logit's location, one for each draw, so that its gradients stay apart
            q = GumbelRows(jnp.stack([tilt, jnp.full_like(tilt, loc[1])], -1), (COUNT, 2))
            return q.kl_at(q.sample(jax.random.key(0)), prior)

        tilt = jnp.full(COUNT, loc[0])
        return one(tilt), jax.grad(lambda tilt: jnp.sum(one(tilt)))(tilt)

    values, gradients = (np.asarray(each, np.float64) for each in estimates(jnp.float32(a)))
    want, step = logistic_kl(a[0] - a[1], b[0] - b[1]), 1e-4
    by_tilt = [logistic_kl(a[0] - a[1] + h, b[0] - b[1]) for h in (step, -step)]
    error = values.std() / np.sqrt(COUNT)
    assert abs(values.mean() - want) / error < 4
    assert abs(1.05 * values.mean() - want) / error > 8
    gap = a - b
    of_logits = np.sum(gap + np.exp(-gap) - 1)
    assert abs(of_logits - want) / error > 8
    error = gradients.std() / np.sqrt(COUNT)
    assert abs(gradients.mean() - (by_tilt[0] - by_tilt[1]) / (2 * step)) / error < 4
    assert gradients.mean() / error > 8


def test_gumbel_rows_without_two_keys_have_ratio_zero_and_finite_gradients():
    where = jnp.zeros((2, 3), bool)

    def total(loc):
        q, p = (GumbelRows(each, (2, 3), where) for each in (loc, jnp.zeros(3)))
        return jnp.sum(q.kl_at(q.sample(jax.random.key(0)), p))

    value, gradient = jax.jit(jax.value_and_grad(total))(jnp.float32(LOGITS))
    assert value == 0
    np.testing.assert_array_equal(gradient, 0.0)
