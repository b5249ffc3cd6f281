"""MAP: the mode of the unconstrained density."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import halfnorm, norm

import ptx
from ptx.inference import MAP, Cosine

REFERENCES = json.loads((Path(__file__).parents[1] / "references" / "closed_form.json").read_text())
BLR = REFERENCES["blr_known_sigma"]


def weighted_regression(inputs, targets=None):
    """w ~ N(0, 2^2 I), y_n ~ N(x_n w, 0.7^2) to the power of the row's weight."""
    w = numpyro.sample("w", dist.Normal(0, BLR["tau"]).expand([3]).to_event(1))
    with numpyro.plate("rows", inputs["x"].shape[0]), numpyro.handlers.scale(scale=inputs["weight"]):
        numpyro.sample("y", dist.Normal(inputs["x"] @ w, BLR["sigma"]), obs=targets)


def blr_data(repeats=1, weight=1.0):
    x, y = np.tile(np.array(BLR["X"]), (repeats, 1)), np.tile(np.array(BLR["y"]), repeats)
    return {"x": x, "weight": np.full(len(y), weight)}, y


def scale_only(inputs, targets=None):
    """A scale with a half-normal prior: its two modes differ."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("rows", inputs.shape[0]):
        numpyro.sample("y", dist.Normal(0, scale), obs=targets)


def fit(model, data, engine, seed=0, **options):
    return ptx.infer(seed, model, data, engine, progress=False, **options)


def test_the_mode_of_a_conjugate_regression():
    engine = MAP(num_steps=600, learning_rate=Cosine(0.1, 600), num_chains=2)
    posterior = fit(weighted_regression, blr_data(), engine)
    assert posterior.draws["w"].shape == (2, 1, 3)
    for member in posterior.draws["w"][:, 0]:
        np.testing.assert_allclose(member, BLR["post_mean"], atol=2e-4)
    last = posterior.target.log_density({"w": posterior.draws["w"][1, 0]})
    np.testing.assert_allclose(posterior.history["log_density"][1, -1], last, rtol=1e-5)
    assert posterior.attributes["gradient_evaluations"] == 1200
    assert posterior.findings == ()
    wrong = fit(weighted_regression, blr_data(weight=0.8), engine)  # the test sees a likelihood x 0.8
    assert np.abs(wrong.draws["w"][0, 0] - BLR["post_mean"]).max() > 2e-3


def test_a_scale_goes_to_the_mode_of_the_unconstrained_density():
    y = np.array([0.3, -1.4, 0.8])

    def negative(log_scale, jacobian=1.0):
        scale = np.exp(log_scale)
        return -(norm(0, scale).logpdf(y).sum() + halfnorm.logpdf(scale) + jacobian * log_scale)

    mode = np.exp(minimize_scalar(negative, bracket=(-2, 1)).x)
    other = np.exp(minimize_scalar(lambda u: negative(u, 0.0), bracket=(-2, 1)).x)
    posterior = fit(scale_only, (np.zeros(3), y), MAP(num_steps=600, learning_rate=Cosine(0.1, 600)))
    found = posterior.constrained()["scale"].item()
    np.testing.assert_allclose(found, mode, rtol=1e-4)
    assert abs(found / other - 1) > 0.1


@pytest.mark.parametrize("batch_size", [1, pytest.param(7, marks=pytest.mark.slow)])
def test_minibatches_reach_the_mode(batch_size):
    engine = MAP(num_steps=3000, learning_rate=Cosine(0.05, 3000), batch_size=batch_size)
    found = fit(weighted_regression, blr_data(), engine).draws["w"][0, 0]
    sd = np.sqrt(np.diag(BLR["post_cov"]))
    assert (np.abs(found - BLR["post_mean"]) < 0.05 * sd).all()


def test_minibatches_are_scaled():
    """Prior and likelihood balance as on the whole data: a likelihood without N/B would end elsewhere."""

    def strong_prior(inputs, targets=None):
        w = numpyro.sample("w", dist.Normal(0, 0.1).expand([3]).to_event(1))
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("y", dist.Normal(inputs @ w, 0.7), obs=targets)

    x, y = np.array(BLR["X"]), np.array(BLR["y"])

    def mode(scale):
        return np.linalg.solve(100 * np.eye(3) + scale * x.T @ x / 0.49, scale * x.T @ y / 0.49)

    engine = MAP(num_steps=3000, learning_rate=Cosine(0.02, 3000), batch_size=5)
    found = fit(strong_prior, (x, y), engine).draws["w"][0, 0]
    np.testing.assert_allclose(found, mode(1.0), atol=0.01)
    assert np.abs(mode(0.25) - mode(1.0)).max() > 0.2


def test_members_differ_and_start_apart():
    posterior = fit(weighted_regression, blr_data(), MAP(num_steps=5, num_chains=4))
    members = posterior.draws["w"][:, 0]
    for i in range(4):
        for j in range(i):
            assert np.abs(members[i] - members[j]).max() > 1e-3


def test_one_step_evaluates_and_stays():
    start = {"w": np.array([1.0, 2.0, 3.0])}
    posterior = fit(weighted_regression, blr_data(), MAP(num_steps=1), init=start)
    np.testing.assert_array_equal(posterior.draws["w"][0, 0], start["w"])


def test_a_row_with_a_broken_gradient_is_skipped_and_counted():
    def rooted(inputs, targets=None):
        w = numpyro.sample("w", dist.Normal(0, 1))
        # The root's slope at zero is infinite, times zero: a finite density whose gradient is NaN.
        root = jax.lax.cond(jnp.any(inputs == 3), lambda w: jnp.sqrt(0 * w), lambda w: 0 * w, w)
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("y", dist.Normal(w + root, 1.0), obs=targets)

    inputs = np.zeros(20)
    inputs[4] = 3
    engine = MAP(num_steps=400, learning_rate=Cosine(0.05, 400), batch_size=5)
    with pytest.warns(RuntimeWarning, match="100 of 400 steps had a non-finite gradient"):
        posterior = fit(rooted, (inputs, np.ones(20)), engine)
    assert posterior.history["nonfinite"].sum() == 100  # each row comes once in four batches
    np.testing.assert_allclose(posterior.draws["w"][0, 0], 20 / 21, atol=0.02)


def test_huge_learning_rates_leave_a_finite_point():
    engine = MAP(num_steps=50, learning_rate=1e30, optimiser="sgd")
    with pytest.warns(RuntimeWarning, match="non-finite gradient"):
        posterior = fit(weighted_regression, blr_data(), engine)
    assert np.isfinite(posterior.draws["w"]).all()
    assert np.isfinite(posterior.target.log_density({"w": posterior.draws["w"][0, 0]}))


def test_minibatches_need_a_likelihood_by_row():
    def joint(inputs, targets=None):
        w = numpyro.sample("w", dist.Normal(0, 1))
        mean = jnp.full(inputs.shape[0], w)
        numpyro.sample("y", dist.MultivariateNormal(mean, jnp.eye(inputs.shape[0])), obs=targets)

    data = (np.zeros(6), np.ones(6))
    with pytest.raises(ValueError, match=r"site 'y'.*batch_size"):
        fit(joint, data, MAP(batch_size=3))
    found = fit(joint, data, MAP(num_steps=500, learning_rate=Cosine(0.1, 500))).draws["w"].item()
    np.testing.assert_allclose(found, 6 / 7, atol=1e-3)


def test_it_round_trips_and_keeps_nothing():
    engine = MAP(learning_rate=Cosine(0.1, 100), optimiser="lion", batch_size=3, max_gradient_norm=2.0)
    assert eval(repr(engine)) == engine
    assert hash(dataclasses.replace(engine)) == hash(engine)
    assert not np.any(engine.keeps(np.arange(10)))
    assert engine.num_draws == 1
