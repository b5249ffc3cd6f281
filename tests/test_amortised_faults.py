"""Programs with amortised latents that once gave wrong numbers silently."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import ptx
from ptx import inference
from ptx.lowering import lower

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(6, 2)).astype(np.float32), RNG.normal(size=6).astype(np.float32)
MAP = inference.MAP(num_steps=3)


def infer(model, engine=MAP):
    return ptx.infer(0, model, (X, Y), engine, progress=False)


def hanging_by_draws(inputs, targets=None):
    """The rows' latents have one mean, and a row sees the average of their draws."""
    rows = inputs.shape[0]
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("rows", rows):
        z = numpyro.sample("z", dist.Normal(0, 1), infer={"amortised": dist.Normal(jnp.zeros(rows), 1.0)})
        numpyro.deterministic("outputs", w + z - z.mean())
        numpyro.sample("targets", dist.Normal(w + z - z.mean(), 1.0), obs=targets)


def hanging_by_inputs(inputs, targets=None):
    centred = inputs[:, 0] - jnp.mean(inputs[:, 0])
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("rows", inputs.shape[0]):
        z = numpyro.sample("z", dist.Normal(0, 1), infer={"amortised": dist.Normal(0 * centred, 1e-6)})
        numpyro.sample("targets", dist.Normal(w * centred + z, 1.0), obs=targets)


def shared(inputs, targets=None):
    """A latent of all rows with a posterior of its own."""
    w = numpyro.sample("w", dist.Normal(0, 1))
    z = numpyro.sample("z", dist.Normal(0, 1), infer={"amortised": dist.Normal(2.0, 0.5)})
    with numpyro.plate("rows", inputs.shape[0]):
        numpyro.sample("targets", dist.Normal(z + w, 1.0), obs=targets)


def test_rows_that_hang_together_by_their_draws_are_predicted_whole():
    outputs = ptx.predict(0, infer(hanging_by_draws), X, row_draws=4000).outputs
    np.testing.assert_allclose(outputs.std(1), np.sqrt(5 / 6), rtol=0.05)  # of z minus the mean of six


def test_and_so_are_rows_that_a_sampler_does_not_know():
    fit = infer(hanging_by_draws, inference.NUTS(num_warmup=50, num_draws=400, num_chains=1))
    with pytest.warns(RuntimeWarning, match="z are drawn from their prior"):
        outputs = ptx.predict(0, fit, X + 1).outputs
    spread = (outputs - outputs.mean(-1, keepdims=True)).std(1)  # w leaves with the mean
    np.testing.assert_allclose(spread, np.sqrt(5 / 6), rtol=0.15)


@pytest.mark.parametrize("model", [hanging_by_draws, hanging_by_inputs])
def test_minibatches_of_rows_that_hang_together_are_refused(model):
    with pytest.raises(ValueError, match="'targets': a row's log density depends on the rows beside it"):
        infer(model, inference.MAP(num_steps=3, batch_size=2))


def test_log_likelihoods_of_rows_that_hang_together_are_those_of_all_rows():
    fit = infer(hanging_by_inputs)
    centred, w = X[:, 0] - X[:, 0].mean(), fit.draws["w"].item()
    expected = -0.5 * (Y - w * centred) ** 2 - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(ptx.log_likelihood(fit)["targets"][0, 0], expected, atol=1e-4)


def test_masked_latents_have_no_kl_and_the_others_the_closed_form():
    def masked(inputs, targets=None):
        numpyro.sample("w", dist.Normal(0, 1))
        rows = inputs.shape[0]
        with numpyro.plate("rows", rows):
            with numpyro.handlers.mask(mask=inputs[:, 1] > 0):
                q = dist.Normal(2 * jnp.ones(rows), 0.5)
                z = numpyro.sample("z", dist.Normal(0, 1), infer={"amortised": q})
            numpyro.sample("targets", dist.Normal(z, 1.0), obs=targets)

    target = lower(masked, (X, Y), amortised=True)
    found = target.halves({"w": jnp.zeros(())}, None, jax.random.key(1)).by_row["z"]
    kl = np.log(2) + (0.25 + 4) / 2 - 0.5
    np.testing.assert_allclose(found, np.where(X[:, 1] > 0, -kl, 0), rtol=1e-5)


def test_a_latent_of_all_rows_counts_its_weighted_kl_once_in_any_batch():
    target, position = lower(shared, (X, Y), amortised=True), {"w": jnp.zeros(())}
    kl = np.log(2) + (0.25 + 4) / 2 - 0.5
    with_it, without = (float(target.log_density(position, kl_weight=weight)) for weight in (1.0, 0.0))
    assert without - with_it == pytest.approx(kl, rel=1e-5)
    batches = [target.data.take(slice(i, i + 2)) for i in (0, 2, 4)]
    assert np.mean([target.log_density(position, batch) for batch in batches]) == pytest.approx(
        with_it, rel=1e-5
    )
    assert ptx.log_likelihood(infer(shared))["targets"].shape == (1, 1, 6)


def test_a_posterior_whose_draws_do_not_follow_its_parameters_is_refused():
    def mixed(inputs, targets=None):
        w = numpyro.sample("w", dist.Normal(0, 1))
        rows = inputs.shape[0]
        logits = jnp.broadcast_to(jnp.stack([w, -w]), (rows, 2))
        parts = dist.Normal(jnp.array([-1.0, 1.0]) * jnp.ones((rows, 1)), 0.3)
        q = dist.MixtureSameFamily(dist.Categorical(logits=logits), parts)
        with numpyro.plate("rows", rows):
            z = numpyro.sample("z", dist.Normal(0, 1), infer={"amortised": q})
            numpyro.sample("targets", dist.Normal(z, 1.0), obs=targets)

    with pytest.raises(ValueError, match="site 'z': its amortised posterior, MixtureSameFamily"):
        infer(mixed)


def test_log_gamma_coordinates_under_a_scale_are_refused():
    def scaled(inputs, targets=None):
        with numpyro.handlers.scale(scale=3.0):
            prior = dist.Dirichlet(jnp.array([3.0, 3.0]))
            p = numpyro.sample("p", prior, infer={"coordinates": "log_gamma"})
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("targets", dist.Normal(p[0], 1.0), obs=targets)

    with pytest.raises(ValueError, match="site 'p': in log-gamma coordinates its density cannot be scaled"):
        infer(scaled)


def test_the_prior_stands_beside_a_fit_with_amortised_latents_in_one_tree():
    prior = infer(shared, inference.Prior(num_draws=5))
    assert {"prior", "posterior"} <= set(ptx.to_datatree(infer(shared), prior=prior).children)
