"""Log-gamma coordinates of a Dirichlet: inverse, density, float32 at small concentrations, and NUTS in them."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats as st
from gates.z_scores import effective_sizes, r_hats

import ptx
from ptx.inference import NUTS
from ptx.log_gamma_simplex import LogGammaSimplex
from ptx.simplex import LogStickBreaking

ALPHAS = [0.01, 0.3, 1.0, 5.0]
NOTHING = None, np.zeros(1)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_inverse_is_a_right_inverse(alpha):
    p = np.random.default_rng(0).dirichlet(np.full(6, alpha), size=40)
    p = np.maximum(p, 1e-35) / np.maximum(p, 1e-35).sum(-1, keepdims=True)
    for x64, tolerance in ((False, 3e-5), (True, 1e-12)):
        with jax.enable_x64(x64):
            concentration = alpha * jnp.asarray([1.0, 2.0, 1.0, 0.5, 1.0, 3.0])
            coordinates = LogGammaSimplex(concentration)
            value = jnp.asarray(p, jnp.result_type(float))
            found = jax.jit(lambda p, c=coordinates: c(c.inv(p)))(value)
            np.testing.assert_allclose(found, value, rtol=tolerance, atol=1e-37)
    assert coordinates.inverse_shape((40, 6)) == (40, 6)


def test_excluded_entries_are_zero_and_come_back():
    where = jnp.asarray([[True, False, True], [False, True, False], [False] * 3])
    coordinates = LogGammaSimplex(jnp.asarray([0.02, jnp.nan, 3.0]), where)
    p = coordinates(jnp.asarray([[-1.0, 7.0, 0.5]] * 3))
    np.testing.assert_allclose(p.sum(-1), [1, 1, 0], rtol=1e-6)
    assert (p[~where] == 0).all()
    np.testing.assert_allclose(coordinates(coordinates.inv(p))[0], p[0], rtol=1e-5)
    assert np.isfinite(coordinates.inv(p)[0]).all()


def trapezoid(alpha, low=-80.0, high=8.0, count=200_001):
    """The density of one coordinate and its grid."""
    u = np.linspace(low, high, count)
    coordinates = LogGammaSimplex(jnp.full(1, alpha))
    return u, np.exp(coordinates.log_density(jnp.asarray(u)[:, None]))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_density_of_a_coordinate_is_that_of_a_gamma_variate(alpha):
    """Normalised; its distribution function is SciPy's; and of a scale of about one, however small alpha is."""
    with jax.enable_x64(True):
        u, density = trapezoid(alpha)
        log_g = np.asarray(LogGammaSimplex(jnp.asarray(alpha))._log_gamma(jnp.asarray(u)))
    below = np.cumsum(density) * (u[1] - u[0])
    assert below[-1] == pytest.approx(1, abs=1e-9)
    inside = log_g > -300  # where g is a number in float64
    np.testing.assert_allclose(below[inside], st.gamma(alpha).cdf(np.exp(log_g[inside])), atol=1e-3)
    mean = np.sum(u * density) * (u[1] - u[0])
    sd = np.sqrt(np.sum((u - mean) ** 2 * density) * (u[1] - u[0]))
    assert 0.4 < sd < 2.0


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_density_is_the_dirichlets_times_that_of_the_sum(alpha):
    """log p(u) = log Dirichlet(p) + log Gamma(s; sum alpha) + log |d(p, s) / du|, by automatic differentiation."""
    concentration = alpha * np.array([1.0, 0.4, 2.0])
    with jax.enable_x64(True):
        coordinates = LogGammaSimplex(jnp.asarray(concentration))

        def free(u):
            total = jnp.sum(jnp.exp(coordinates._log_gamma(u)))
            return jnp.append(coordinates(u)[:-1], total)

        for seed in range(3):
            u = 0.7 * np.random.default_rng(seed).normal(size=3) + (0.5 if alpha < 1 else 0)
            p, s = np.asarray(coordinates(u)), float(free(u)[-1])
            want = st.dirichlet(concentration).logpdf(p / p.sum()) + st.gamma(concentration.sum()).logpdf(s)
            want += np.linalg.slogdet(jax.jacfwd(free)(u))[1]
            assert float(coordinates.log_density(u)) == pytest.approx(want, rel=1e-8)


def test_float32_serves_at_the_smallest_concentration():
    """Value and gradient finite wherever a sampler may go, and near their float64 counterparts."""
    u = np.array([-300.0, -40.0, -1.0, 0.0, 1.0, 3.0])
    with jax.enable_x64(True):
        exact = LogGammaSimplex(jnp.full(6, 1e-3))
        want = exact.log_density(jnp.asarray(u)), jax.grad(exact.log_density)(jnp.asarray(u))
    coordinates = LogGammaSimplex(jnp.full(6, 1e-3, jnp.float32))
    value, gradient = jax.value_and_grad(coordinates.log_density)(jnp.float32(u))
    np.testing.assert_allclose(value, want[0], rtol=1e-5)
    np.testing.assert_allclose(gradient, want[1], rtol=1e-4, atol=1e-5)
    p = coordinates(jnp.float32(u))
    assert float(p.sum()) == pytest.approx(1, abs=1e-6)
    by_u = jax.grad(lambda u: jnp.sum(coordinates(u) ** 2))(jnp.float32(u))
    assert np.isfinite(by_u).all()


def sparse(inputs, targets=None):
    """A Dirichlet(0.01) of 16 entries in log-gamma coordinates, and a target that says nothing of it."""
    numpyro.sample("p", dist.Dirichlet(0.01 * jnp.ones(16)), infer={"coordinates": "log_gamma"})
    numpyro.sample("nothing", dist.Normal(0, 1), obs=targets)


def sparse_in_sticks(inputs, targets=None):
    """The same by stick-breaking, NumPyro's coordinates in logarithms."""
    numpyro.sample("p", dist.Dirichlet(0.01 * jnp.ones(16)))
    numpyro.sample("nothing", dist.Normal(0, 1), obs=targets)


def sparse_in_hidden_sticks(inputs, targets=None):
    """The same, written so that no engine can see that the site is a Dirichlet."""
    flat = dist.ImproperUniform(dist.constraints.real_vector, (), (15,))
    x, sticks = numpyro.sample("x", flat), LogStickBreaking()
    p = numpyro.deterministic("p", sticks(x))
    density = dist.Dirichlet(0.01 * jnp.ones(16)).log_prob(p) + sticks.log_abs_det_jacobian(x, p)
    numpyro.factor("prior", density)
    numpyro.sample("nothing", dist.Normal(0, 1), obs=targets)


def test_a_site_asks_for_its_coordinates_by_name():
    target = ptx.lower(sparse, NOTHING)
    (site,) = target.sites
    assert site.shape == site.unconstrained_shape == (16,)
    position = {"p": jnp.linspace(-3.0, 1.0, 16)}
    want = LogGammaSimplex(0.01 * jnp.ones(16))
    np.testing.assert_allclose(target.constrain(position)["p"], want(position["p"]), rtol=1e-4)
    np.testing.assert_allclose(target.log_prior(position), want.log_density(position["p"]), rtol=1e-6)
    assert ptx.lower(sparse_in_sticks, NOTHING).sites[0].unconstrained_shape == (15,)


@pytest.mark.parametrize(
    ("prior", "name"),
    [
        (dist.Normal(0, 1), "log_gamma"),
        (dist.Gamma(jnp.ones(3)).to_event(1), "log_gamma"),
        (dist.Dirichlet(jnp.ones(3)), "stick_breaking"),
    ],
)
def test_coordinates_that_do_not_fit_are_refused_by_the_sites_name(prior, name):
    def model(inputs, targets=None):
        numpyro.sample("share", prior, infer={"coordinates": name})
        numpyro.sample("nothing", dist.Normal(0, 1), obs=targets)

    with pytest.raises(ValueError, match=rf"site 'share'.*'{name}'.*'log_gamma', of a Dirichlet"):
        ptx.lower(model, NOTHING)


def test_nuts_refuses_small_concentrations_in_other_coordinates():
    with pytest.raises(ValueError, match=r"site 'p'.*concentration 0\.01.*at least 0\.1"):
        ptx.infer(0, sparse_in_sticks, NOTHING, NUTS(num_draws=10), progress=False)


def scores(draws, alpha=0.01, entries=16):
    """z of the means of draws (chain, draw, K) and of sum p^2, in truth 1 / K and (1 + alpha) / (1 + K alpha)."""
    quantities = np.concatenate([draws, np.sum(draws**2, -1, keepdims=True)], -1).astype(np.float64)
    want = np.append(np.full(entries, 1 / entries), (1 + alpha) / (1 + entries * alpha))
    error = quantities.std((0, 1)) / np.sqrt(effective_sizes(quantities))
    return (quantities.mean((0, 1)) - want) / error


def sampled(model, engine):
    posterior = ptx.infer(0, model, NOTHING, engine, progress=False)
    if "p" in posterior.draws:
        return posterior.constrained()["p"], posterior
    return np.asarray(LogStickBreaking()(jnp.asarray(posterior.draws["x"]))), posterior


def test_nuts_draws_a_sparse_dirichlet_in_float32():
    draws, posterior = sampled(sparse, NUTS(num_draws=2000, num_warmup=500))
    assert draws.dtype == np.float32
    assert np.abs(scores(draws)).max() < 4
    assert r_hats(draws).max() < 1.01
    assert not posterior.statistics["diverging"].any()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:NUTS. .*:RuntimeWarning")
def test_sticks_hidden_from_nuts_fail_the_same_gate():
    """The control."""
    draws, _ = sampled(sparse_in_hidden_sticks, NUTS(num_draws=2000, num_warmup=500))
    assert not np.abs(scores(draws)).max() < 8
