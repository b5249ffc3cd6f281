"""Programs whose rows hang together: predicted whole, scored whole, refused for minibatches."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import ptx
from ptx.inference import MAP, SGLD

GROUPS = np.repeat(np.arange(8), 5)
X = (np.random.default_rng(0).normal(size=40) + 3 * GROUPS).astype("f")


def grouped(inputs, targets=None):
    b = numpyro.sample("b", dist.Normal(0, 1))
    values, groups = inputs["x"], inputs["g"]
    count = jnp.maximum(jax.ops.segment_sum(jnp.ones_like(values), groups, 8), 1)
    mean = jax.ops.segment_sum(values, groups, 8) / count
    mu = numpyro.deterministic("outputs", b * (values - mean[groups]))
    with numpyro.plate("rows", values.shape[0]):
        numpyro.sample("targets", dist.Normal(mu, 0.1), obs=targets)


def centred(inputs, targets=None, level=0.0):
    b = numpyro.sample("b", dist.Normal(0, 1))
    mu = numpyro.deterministic("outputs", level + b * (inputs - inputs.mean()))
    with numpyro.plate("rows", inputs.shape[0]):
        numpyro.sample("targets", dist.Normal(mu, 0.1), obs=targets)


def high(inputs, targets=None):
    centred(inputs, targets, level=2000.0)


def point(model, inputs, targets, b):
    return ptx.infer(0, model, (inputs, targets), MAP(num_steps=1), init={"b": b}, progress=False)


def test_group_means_are_those_of_all_rows():
    centre = X.reshape(8, 5).mean(1).repeat(5)
    posterior = point(grouped, {"x": X, "g": GROUPS}, X - centre, 1.0)
    b = posterior.draws["b"][0, 0]
    outputs = ptx.predict(0, posterior, {"x": X, "g": GROUPS}).outputs[0, 0]
    np.testing.assert_allclose(outputs, b * (X - centre), rtol=1e-4, atol=1e-4)
    found = ptx.log_likelihood(posterior)["targets"].sum()
    np.testing.assert_allclose(found, posterior.target.log_likelihood({"b": b}).sum(), rtol=1e-4)


def test_a_small_slope_on_a_high_level_is_seen():
    x = np.linspace(0, 10, 40, dtype="f")
    posterior = point(high, x, 2000 + 0.15 * (x - 5), 0.15)
    outputs = ptx.predict(0, posterior, x).outputs[0, 0]
    assert np.ptp(outputs) == pytest.approx(1.5, rel=0.1)


def test_later_draws_are_looked_at():
    posterior = point(centred, X, X - X.mean(), 1.0)
    draws = {"b": np.array([[0.0, 1.0]], np.float32)}
    twice = posterior.replace(draws=draws)
    outputs = ptx.predict(0, twice, X).outputs[0, 1]
    np.testing.assert_allclose(outputs, X - X.mean(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("batch_size", [1, 8])
def test_minibatches_are_refused_by_site(batch_size):
    engine = SGLD(num_draws=2, num_warmup=0, batch_size=batch_size)
    with pytest.raises(ValueError, match="site 'targets': a row's log density depends on the rows beside it"):
        ptx.infer(0, centred, (X, X - X.mean()), engine, progress=False)
