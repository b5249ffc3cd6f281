import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from blackjax.sgmcmc import diffusions
from inference.stationary import (
    DATA,
    EXACT,
    FAIL,
    MEAN,
    PASS,
    PRECISION,
    largest_z,
    sample,
    sgld_law,
)
from models_for_tests import broken_beyond, regression

import ptx
from ptx.inference import SGLD, Cosine, Polynomial

ROWS = EXACT["sgld_full_batch_stationary"]["rows"]


def chains(step_size, num_warmup=None, **settings):
    """64 chains that relax over six times and more, thinned to 1,000 draws each."""
    num_warmup = int(0.3 / step_size) if num_warmup is None else num_warmup
    thin = max(1, int(3e-3 / step_size))
    return SGLD(1000, num_warmup, num_chains=64, thin=thin, step_size=step_size, **settings)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"step {row['step']}")
def test_full_batch_chains_have_the_exact_stationary_law(row):
    covariance = np.array(row["stationary_cov_exact"])
    np.testing.assert_allclose(sgld_law(row["step"]), covariance, rtol=1e-6)
    assert largest_z(sample(chains(row["step"])), MEAN, covariance) < PASS


def test_the_law_is_the_density_to_the_power_one_over_temperature():
    np.testing.assert_allclose(sgld_law(5e-3, 0.25), 0.25 * sgld_law(5e-3), rtol=1e-9)
    draws = sample(chains(5e-3, temperature=0.25))
    assert largest_z(draws, MEAN, sgld_law(5e-3, 0.25)) < PASS
    assert largest_z(draws, MEAN, sgld_law(5e-3)) > FAIL


def test_noise_of_the_wrong_scale_is_seen(monkeypatch):
    def noise_step(rng_key, position, gradient, step_size, temperature):
        noise = jax.random.normal(rng_key, position.shape)
        return position + step_size * gradient + step_size * noise

    monkeypatch.setattr(diffusions, "overdamped_langevin", lambda: noise_step)
    draws = sample(chains(5e-3, num_warmup=61))  # settings of its own: compiled programs are kept by settings
    assert largest_z(draws, MEAN, sgld_law(5e-3)) > FAIL


def weakened(inputs, targets=None):
    """`regression` with its likelihood to the power 0.8."""
    w = numpyro.sample("w", dist.Normal(0, 2.0).expand([3]).to_event(1))
    with numpyro.plate("rows", inputs.shape[0]), numpyro.handlers.scale(scale=0.8):
        numpyro.sample("y", dist.Normal(inputs @ w, 0.7), obs=targets)


def test_a_weakened_likelihood_is_seen():
    assert largest_z(sample(chains(5e-3), weakened), MEAN, sgld_law(5e-3)) > FAIL


def test_temperature_zero_is_gradient_ascent_on_the_schedule():
    step_size = Polynomial(0.02, 2.0, 0.6)
    engine = SGLD(30, 0, num_chains=1, step_size=step_size, temperature=0)
    start = np.array([1.0, -1.0, 2.0])
    posterior = ptx.infer(0, regression, DATA, engine, init={"w": start}, progress=False)
    u, path, sizes = start, [], 0.02 * (2.0 + np.arange(30)) ** -0.6
    for size in sizes:
        u = u - size * PRECISION @ (u - MEAN)
        path.append(u)
    np.testing.assert_allclose(posterior.draws["w"][0], path, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(posterior.history["step_size"][0], sizes, rtol=1e-5)
    density = jax.vmap(posterior.target.log_density)({"w": jnp.asarray(posterior.draws["w"][0])})
    np.testing.assert_allclose(posterior.statistics["log_density"][0], density, rtol=1e-5)


def test_steps_into_a_non_finite_gradient_are_skipped_counted_and_reported():
    data = np.zeros((40, 1)), np.full(40, 0.05)  # they pull w to the edge of the finite density, 0.5
    engine = SGLD(200, 100, num_chains=2, step_size=1e-3)
    with pytest.warns(RuntimeWarning, match="non-finite gradient"):
        posterior = ptx.infer(0, broken_beyond, data, engine, progress=False)
    skipped, draws = posterior.statistics["nonfinite"], posterior.draws["w"]
    assert skipped.any()
    assert not skipped.all()
    stayed = draws[:, 1:] == draws[:, :-1]
    assert stayed[skipped[:, 1:]].all()
    assert not stayed[~skipped[:, 1:]].any()
    assert (draws <= 0.5).all()
    assert np.isfinite(posterior.statistics["log_density"]).all()
    assert "non-finite gradient" in posterior.findings[0]
    assert str(int(posterior.history["nonfinite"].sum())) in posterior.findings[0]


def test_draws_are_kept_after_warm_up_every_thin_steps():
    engine = SGLD(num_draws=4, num_warmup=5, thin=3)
    expected = [7, 10, 13, 16]
    steps = np.arange(engine.num_steps)
    assert list(steps[engine.keeps(steps)]) == expected
    assert [step for step in range(engine.num_steps) if engine.keeps(step)] == expected
    assert list(steps[np.asarray(jax.jit(jax.vmap(engine.keeps))(steps))]) == expected


def test_repr_round_trips_with_a_schedule():
    engine = SGLD(step_size=Cosine(1e-3, 4000, final_fraction=0.1), batch_size=32, temperature=0)
    assert eval(repr(engine)) == engine


@pytest.mark.parametrize(
    ("settings", "error", "match"),
    [
        ({"num_draws": 0}, ValueError, "num_draws must be an integer >= 1"),
        ({"num_warmup": -1}, ValueError, "num_warmup must be an integer >= 0"),
        ({"thin": 2.0}, TypeError, "thin must be an integer"),
        ({"batch_size": 0}, ValueError, "batch_size must be an integer >= 1"),
        ({"batch_size": "all"}, TypeError, "batch_size must be an integer"),
        ({"temperature": -1.0}, ValueError, "temperature must be zero or positive"),
        ({"temperature": float("inf")}, ValueError, "temperature must be zero or positive, finite"),
        ({"step_size": 0.0}, ValueError, "step_size must be positive"),
        ({"step_size": Cosine(1e-3, 1000)}, ValueError, "the chain would stand still"),
    ],
)
def test_settings_out_of_range_are_refused(settings, error, match):
    with pytest.raises(error, match=f"SGLD: {match}|SGLD: step_size=.*{match}"):
        SGLD(**settings)
