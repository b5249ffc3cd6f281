from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from inference.stationary import FAIL, PASS, largest_z, sample
from models_for_tests import regression, regression_data, regression_posterior

import ptx
from ptx.inference import SGHMC, SGLD, CyclicalSGHMC, CyclicalSGLD, minibatch
from ptx.target import Target


def batches(num_rows, batch_size, count, seeds=(0,)):
    """Row numbers of the first `count` batches for each seed, shape (seed, count, B)."""
    target = SimpleNamespace(num_rows=num_rows, data=SimpleNamespace(take=lambda rows: rows))
    step = lambda stream, _: minibatch.take(batch_size, target, stream)  # noqa: E731

    def stream(seed):
        begun = minibatch.start(batch_size, target, jax.random.key(seed))
        return jax.lax.scan(step, begun, None, count)[1]

    return np.asarray(jax.jit(jax.vmap(stream))(jnp.asarray(seeds)))


@pytest.mark.parametrize(("num_rows", "batch_size"), [(10, 1), (10, 3), (5, 4), (100, 40)])
def test_batches_have_exactly_b_rows_and_wrap_across_epochs(num_rows, batch_size):
    rows = batches(num_rows, batch_size, 3 * num_rows)[0]
    assert rows.shape == (3 * num_rows, batch_size)
    epochs = rows.reshape(-1, num_rows)  # the stream, cut into epochs
    assert (np.sort(epochs, axis=1) == np.arange(num_rows)).all()
    assert len({tuple(epoch) for epoch in epochs}) > batch_size  # permutations are fresh


def test_orders_differ_between_keys_and_look_uniform():
    one, other = batches(20, 4, 20, seeds=(0, 1))
    assert (one != other).any()
    first = batches(5, 2, 1, seeds=range(200))
    counts = np.bincount(first.ravel(), minlength=5)  # 400 rows: 80 of each, with a standard deviation of 7
    assert (np.abs(counts - 80) < 5 * 7).all()


@pytest.mark.parametrize(("num_rows", "batch_size"), [(7, None), (7, 10), (10, 10), (1, 1), (1, 5)])
def test_whole_data_are_not_permuted_and_b_beyond_n_is_n(num_rows, batch_size):
    target = ptx.lower(regression, regression_data(num_rows))
    stream = minibatch.start(batch_size, target, jax.random.key(0))
    assert minibatch.take(batch_size, target, stream) == (None, None)  # the batch None counts every row once


def logistic(inputs, targets=None):
    w = numpyro.sample("w", dist.StudentT(3.0, 0.0, 1.0).expand([3]).to_event(1))
    with numpyro.plate("rows", inputs.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=inputs @ w), obs=targets)


@pytest.mark.parametrize(("num_rows", "batch_size"), [(7, 3), (20, 8)])
def test_over_n_batches_the_mean_scaled_gradient_is_the_full_one(num_rows, batch_size):
    inputs, y = regression_data(num_rows)
    target = ptx.lower(logistic, (inputs, (y > 0).astype(int)))
    position = {"w": jnp.array([0.3, -1.0, 2.0])}
    gradient = jax.grad(target.log_density)

    def step(stream, _):
        stream, batch = minibatch.take(batch_size, target, stream)
        return stream, gradient(position, batch)["w"]

    begun = minibatch.start(batch_size, target, jax.random.key(0))
    estimates = jax.jit(lambda: jax.lax.scan(step, begun, None, num_rows)[1])()
    np.testing.assert_allclose(estimates.mean(0), gradient(position)["w"], rtol=2e-5, atol=2e-5)
    assert estimates.std(0).max() > 0.1


def test_forty_of_a_hundred_rows_count_two_and_a_half_times():
    target = ptx.lower(regression, regression_data(100))
    position = {"w": jnp.array([0.3, -1.0, 2.0])}
    rows = jnp.arange(5, 45)
    pointwise = target.log_likelihood(position)[rows].sum()
    expected = target.log_prior(position) + 2.5 * pointwise
    np.testing.assert_allclose(target.log_density(position, target.data.take(rows)), expected, rtol=1e-6)


def test_a_chain_meets_every_row_in_an_order_of_its_own():
    engine = SGLD(20, 0, num_chains=2, step_size=1e-7, batch_size=1, temperature=0)
    start = {"w": np.array([0.3, -1.0, 2.0])}
    posterior = ptx.infer(0, regression, regression_data(20), engine, init=start, progress=False)
    target = posterior.target
    each = target.log_prior(start) + 20 * np.asarray(target.log_likelihood(start))
    history = posterior.history["log_density"][:, :19]  # the first row of the order met the start itself
    rows = np.abs(history[..., None] - each).argmin(-1)
    np.testing.assert_allclose(history, each[rows], rtol=1e-2)
    assert all(len(set(order)) == 19 for order in rows.tolist())
    assert (rows[0] != rows[1]).any()


def chains(batch_size, step_size=2e-5, num_warmup=2500):
    return SGLD(300, num_warmup, num_chains=64, thin=30, step_size=step_size, batch_size=batch_size)


@pytest.mark.parametrize("batch_size", [10, 100])
def test_the_posterior_does_not_depend_on_the_batch_size(batch_size):
    # The gradient of 10 of 100 rows heats the chain by about 1 %, well below the gate's resolution.
    data = regression_data(100)
    assert largest_z(sample(chains(batch_size), data=data), *regression_posterior(*data)) < PASS


def test_a_dropped_scale_is_seen(monkeypatch):
    unscaled = lambda target, u, batch=None: target.log_prior(u) + target.log_likelihood(u, batch).sum()  # noqa: E731
    monkeypatch.setattr(Target, "log_density", unscaled)
    data = regression_data(100)
    draws = sample(chains(10, num_warmup=2501), data=data)  # settings of its own, so that it is compiled
    assert largest_z(draws, *regression_posterior(*data)) > FAIL


@pytest.mark.slow
def test_ten_times_the_data_shrink_the_sd_by_the_root_of_ten():
    once = regression_data(20)
    repeated = tuple(np.concatenate([values] * 10) for values in once)
    draws, again = sample(chains(10, 1e-4), data=once), sample(chains(100, 1e-5, 3000), data=repeated)
    assert largest_z(draws, *regression_posterior(*once)) < PASS
    assert largest_z(again, *regression_posterior(*repeated)) < PASS
    ratio = draws.reshape(-1, 3).std(0) / again.reshape(-1, 3).std(0)
    np.testing.assert_allclose(ratio, np.sqrt(10), rtol=0.1)


def correlated(inputs, targets=None):
    w = numpyro.sample("w", dist.Normal(0, 1))
    numpyro.sample("joint", dist.MultivariateNormal(w * inputs, jnp.eye(inputs.shape[0])), obs=targets)


def with_row_latents(inputs, targets=None):
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("rows", inputs.shape[0]):
        z = numpyro.sample("z", dist.Normal(w, 1))
        numpyro.sample("y", dist.Normal(z, 1), obs=targets)


@pytest.mark.parametrize(("model", "site"), [(correlated, "joint"), (with_row_latents, "z")])
def test_minibatches_of_what_does_not_factor_are_refused_by_site(model, site):
    target = ptx.lower(model, (np.linspace(0, 1, 6), np.linspace(1, 2, 6)))
    for kind in (SGLD, SGHMC, CyclicalSGLD, CyclicalSGHMC):
        with pytest.raises(
            ValueError, match=rf"site '{site}'.*{kind.__name__} with batch_size=3.*batch_size=None"
        ):
            kind(batch_size=3).check(target)
        assert kind().check(target) == ()
