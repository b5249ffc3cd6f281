"""Predictions and pointwise log densities: against plain loops, whatever the chunks, and what is refused."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import ptx
from ptx import inference, models, sweep
from ptx.models import likelihoods, priors

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(30, 3)).astype(np.float32)
LABELS = (INPUTS[:, 0] > 0).astype(int) + (INPUTS[:, 1] > 0)
CLASSIFIER = models.bayesian(
    models.MLP(num_features=3, num_outputs=3, hidden=(4,)), priors.normal(), likelihoods.categorical
)


def prior_draws(model, data, num_draws=10, num_chains=2, seed=0):
    """A posterior that is quick to make: draws from the prior."""
    engine = inference.Prior(num_draws=num_draws, num_chains=num_chains)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Prior: factor 'soft'|the model has no latent site")
        return ptx.infer(seed, model, data, engine, progress=False)


def given_draws(model, data, draws):
    """A posterior that holds these unconstrained draws."""
    num_chains, num_draws = next(iter(draws.values())).shape[:2]
    return prior_draws(model, data, num_draws, num_chains).replace(draws=draws)


@pytest.fixture(scope="module")
def classified():
    return prior_draws(CLASSIFIER, (INPUTS, LABELS))


def heights(inputs, targets=None):
    """Two observed sites, a factor, a constrained latent, and deterministic sites with and without rows."""
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    numpyro.deterministic("variance", noise**2)
    numpyro.factor("soft", -(slope**2))
    mean = numpyro.deterministic("mean", slope * inputs["age"])
    with numpyro.plate("people", inputs["age"].shape[0]):
        numpyro.sample("height", dist.Normal(mean, noise), obs=None if targets is None else targets["height"])
        numpyro.sample("tall", dist.Bernoulli(logits=mean), obs=None if targets is None else targets["tall"])


PEOPLE = ptx.Data(
    {"age": RNG.normal(size=12)}, {"height": RNG.normal(size=12), "tall": RNG.integers(0, 2, size=12)}
)


def schools(inputs, targets=None):
    """A latent that belongs to the rows."""
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("school", inputs.shape[0]):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, inputs), obs=targets)


SCHOOLS = ptx.Data(np.array([15.0, 10, 16, 11, 9, 11, 10, 18]), np.array([28.0, 8, -3, 7, -1, 1, 18, 12]))


def gaussian_process(inputs, targets=None):
    """One multivariate normal over all rows."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    kernel = scale * jnp.exp(-0.5 * (inputs[:, None] - inputs[None, :]) ** 2) + 0.1 * jnp.eye(inputs.shape[0])
    numpyro.deterministic("kernel", kernel)
    numpyro.sample("y", dist.MultivariateNormal(0.0, kernel), obs=targets)


def centred(inputs, targets=None):
    """Rows that hang together through their mean."""
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    mean = numpyro.deterministic("mean", slope * (inputs - inputs.mean()))
    with numpyro.plate("rows", inputs.shape[0]):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=targets)


def each_draw(posterior):
    """Position of every draw, with its place."""
    for chain, draw in np.ndindex(posterior.num_chains, posterior.num_draws):
        yield (
            chain,
            draw,
            {name: jnp.asarray(values[chain, draw]) for name, values in posterior.draws.items()},
        )


def test_outputs_and_probabilities_equal_the_network_draw_by_draw(classified):
    predicted = ptx.predict(0, classified, INPUTS)
    assert predicted.outputs.shape == predicted.probabilities["targets"].shape == (2, 10, 30, 3)
    for chain, draw, weights in each_draw(classified):
        outputs = CLASSIFIER.network(weights, INPUTS)
        np.testing.assert_allclose(predicted.outputs[chain, draw], outputs, rtol=1e-4, atol=1e-5)
        expected = jax.nn.softmax(outputs, axis=-1)
        np.testing.assert_allclose(
            predicted.probabilities["targets"][chain, draw], expected, rtol=1e-4, atol=1e-6
        )


def test_probabilities_are_averaged_and_not_logits():
    linear = models.MLP(num_features=1, num_outputs=2, hidden=(), bias=False)
    model = models.bayesian(linear, priors.normal(), likelihoods.categorical)
    kernels = np.array([[[[4.0, 0.0]], [[-2.0, 0.0]]]], np.float32)
    posterior = given_draws(model, (np.ones((2, 1)), np.array([0, 1])), {"head.kernel": kernels})
    probs = ptx.predict(0, posterior, np.ones((1, 1))).mean_probabilities()
    np.testing.assert_allclose(probs, [[0.550608, 0.449392]], atol=1e-6)


@pytest.mark.parametrize(
    "chunks", [{"draw_chunk": 7, "row_chunk": 9}, {"draw_chunk": 1, "row_chunk": 1}, {"max_bytes": 1}]
)
@pytest.mark.parametrize(
    ("model", "data"),
    [(CLASSIFIER, (INPUTS, LABELS)), (heights, PEOPLE), (schools, SCHOOLS)],
    ids=["ours", "two", "rows"],
)
def test_chunks_change_nothing(model, data, chunks):
    posterior = prior_draws(model, data)
    inputs = data[0] if isinstance(data, tuple) else data.inputs
    whole, chunked = ptx.predict(3, posterior, inputs), ptx.predict(3, posterior, inputs, **chunks)
    for kind in ("deterministic", "probabilities", "targets"):
        assert getattr(whole, kind).keys() == getattr(chunked, kind).keys()
        for name, values in getattr(whole, kind).items():
            np.testing.assert_allclose(getattr(chunked, kind)[name], values, rtol=1e-4, atol=1e-5)
    densities, chunked = ptx.log_likelihood(posterior), ptx.log_likelihood(posterior, **chunks)
    for name, values in densities.items():
        np.testing.assert_allclose(chunked[name], values, rtol=1e-4, atol=1e-4)


def test_a_simulated_row_depends_on_no_other_row(classified):
    everything = ptx.predict(5, classified, INPUTS).targets["targets"]
    first = ptx.predict(5, classified, INPUTS[:4]).targets["targets"]
    np.testing.assert_array_equal(first, everything[..., :4])
    other_seed = ptx.predict(6, classified, INPUTS).targets["targets"]
    assert (other_seed != everything).mean() > 0.2


def test_draws_chains_and_rows_are_simulated_independently():
    """At equal weights and inputs all simulated targets are independent fair coins."""
    linear = models.MLP(num_features=1, num_outputs=1, hidden=(), bias=False)
    model = models.bayesian(linear, priors.normal(), likelihoods.bernoulli)
    draws = {"head.kernel": np.zeros((4, 50, 1, 1), np.float32)}
    posterior = given_draws(model, (np.ones((2, 1)), np.array([0, 1])), draws)
    coins = ptx.predict(0, posterior, np.ones((40, 1))).targets["targets"]
    assert coins.shape == (4, 50, 40)
    signs = 2.0 * coins - 1
    assert abs(signs.sum()) / np.sqrt(signs.size) < 4
    for one, other in (
        (signs[:-1], signs[1:]),
        (signs[:, :-1], signs[:, 1:]),
        (signs[..., :-1], signs[..., 1:]),
    ):
        assert abs((one * other).sum()) / np.sqrt(one.size) < 4


def without_plate(inputs, targets=None):
    logits = numpyro.sample("logits", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=logits), obs=targets)


@pytest.mark.parametrize("inputs", [None, np.zeros((6, 1))], ids=["no inputs", "unused inputs"])
def test_a_site_without_plate_is_drawn_for_every_row(inputs):
    posterior = given_draws(
        without_plate, (inputs, np.ones((6, 2), int)), {"logits": np.zeros((1, 200, 2), np.float32)}
    )
    predicted = ptx.predict(0, posterior, inputs)
    assert predicted.targets["y"].shape == (1, 200, 6, 2)
    assert predicted.probabilities["y"].shape == (1, 200, 6, 2, 2)
    signs = 2.0 * predicted.targets["y"] - 1
    assert abs((signs[..., :-1, :] * signs[..., 1:, :]).sum()) / np.sqrt(signs[..., 1:, :].size) < 4


def test_every_observed_and_deterministic_site_comes_back():
    posterior = prior_draws(heights, PEOPLE)
    predicted = ptx.predict(0, posterior, {"age": np.arange(5.0)})
    assert {name: values.shape for name, values in predicted.targets.items()} == {
        "height": (2, 10, 5),
        "tall": (2, 10, 5),
    }
    assert predicted.deterministic["mean"].shape == (2, 10, 5)
    values = posterior.constrained()
    np.testing.assert_allclose(predicted.deterministic["variance"], values["noise"] ** 2, rtol=1e-5)
    assert predicted.probabilities["tall"].shape == (2, 10, 5, 2)
    assert predicted.row_sites == {"height", "tall", "mean"}
    with pytest.raises(ValueError, match=r"no deterministic site 'outputs'.*mean.*variance"):
        _ = predicted.outputs


def test_only_what_is_asked_for_is_kept():
    posterior = prior_draws(heights, PEOPLE)
    predicted = ptx.predict(0, posterior, PEOPLE.inputs, sites=["tall", "variance"], simulated=False)
    assert (set(predicted.deterministic), set(predicted.probabilities), predicted.targets) == (
        {"variance"},
        {"tall"},
        {},
    )
    with pytest.raises(ValueError, match=r"sites: expected .*'height'.*got \['hight'\]"):
        ptx.predict(0, posterior, PEOPLE.inputs, sites=["hight"])


def test_small_probabilities_keep_their_digits():
    linear = models.MLP(num_features=1, num_outputs=1, hidden=(), bias=False)
    model = models.bayesian(linear, priors.normal(), likelihoods.bernoulli)
    posterior = given_draws(
        model, (np.ones((1, 1)), np.array([1])), {"head.kernel": np.full((1, 1, 1, 1), 30, np.float32)}
    )
    probs = ptx.predict(0, posterior, np.ones((1, 1))).probabilities["targets"]
    np.testing.assert_allclose(probs[0, 0, 0], [stats.logistic.cdf(-30), 1.0], rtol=1e-5)


def test_prior_predictive_moments():
    """y = w x + e with w ~ N(0, 1), e ~ N(0, 0.5^2): var(y) = x^2 + 0.25."""
    linear = models.MLP(num_features=1, num_outputs=1, hidden=(), bias=False)
    model = models.bayesian(linear, priors.normal(1.0), likelihoods.normal(0.5))
    inputs = np.array([[0.0], [1.0], [3.0]])
    posterior = prior_draws(model, (inputs, np.zeros(3)), num_draws=4000)
    simulated = ptx.predict(1, posterior, inputs).targets["targets"].reshape(-1, 3)
    variance = inputs[:, 0] ** 2 + 0.25
    z = (simulated.var(axis=0) / variance - 1) / np.sqrt(2 / len(simulated))
    assert np.all(np.abs(z) < 4), z


def test_a_likelihood_over_all_rows_is_simulated_whole():
    times = np.linspace(0, 1, 6)
    posterior = prior_draws(gaussian_process, (times, np.zeros(6)), num_draws=600)
    predicted = ptx.predict(0, posterior, times, draw_chunk=100)
    assert predicted.targets["y"].shape == (2, 600, 6)
    assert predicted.deterministic["kernel"].shape == (2, 600, 6, 6)
    neighbours = predicted.targets["y"].reshape(-1, 6)[:, :2]
    assert np.corrcoef(neighbours.T)[0, 1] > 0.5  # row by row it would be 0
    np.testing.assert_allclose(
        ptx.predict(0, posterior, times).targets["y"], predicted.targets["y"], rtol=1e-4, atol=1e-4
    )
    with pytest.raises(ValueError, match="site 'y': its log density does not factor over the rows"):
        ptx.log_likelihood(posterior)


def test_rows_that_hang_together_are_run_together():
    inputs = np.linspace(1.0, 2.0, 9)
    posterior = prior_draws(centred, (inputs, np.zeros(9)))
    mean = ptx.predict(0, posterior, inputs, row_chunk=2).deterministic["mean"]
    expected = posterior.draws["slope"][..., None] * (inputs - inputs.mean())
    np.testing.assert_allclose(mean, expected, rtol=1e-4, atol=1e-6)
    densities = ptx.log_likelihood(posterior, row_chunk=2)["y"]
    np.testing.assert_allclose(densities, stats.norm.logpdf(0.0, expected), rtol=1e-4)


def test_latents_of_the_rows_predict_the_training_rows_alone():
    posterior = prior_draws(schools, SCHOOLS)
    densities = ptx.log_likelihood(posterior, row_chunk=3)["y"]
    expected = stats.norm.logpdf(SCHOOLS.targets, posterior.draws["theta"], SCHOOLS.inputs)
    np.testing.assert_allclose(densities, expected, rtol=1e-4)
    with pytest.raises(
        ValueError, match=r"site 'theta': a latent that belongs to the rows.*8 training rows.*3 rows"
    ):
        ptx.predict(0, posterior, SCHOOLS.inputs[:3])
    with pytest.raises(ValueError, match="site 'theta': a latent that belongs to the rows"):
        ptx.log_likelihood(posterior, SCHOOLS.take(slice(3)))


def data_inside(inputs, targets=None):
    """Data closed over, beside the targets."""
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    numpyro.sample("known", dist.Normal(mean, 1.0), obs=jnp.array([1.0, 2.0]))
    with numpyro.plate("rows", inputs.shape[0]):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=targets)


def test_data_inside_a_model_are_simulated_too():
    posterior = prior_draws(data_inside, (np.zeros(4), np.zeros(4)))
    targets = ptx.predict(0, posterior, np.zeros(4)).targets
    assert targets["known"].shape == (2, 10, 2)
    assert len(np.unique(targets["known"])) == 40
    assert targets["y"].shape == (2, 10, 4)


def test_log_likelihood_equals_scipy_on_new_data(classified):
    rows, labels = INPUTS[::-1][:7] + 1.0, LABELS[:7]
    found = ptx.log_likelihood(classified, (rows, labels))["targets"]
    probs = ptx.predict(0, classified, rows).probabilities["targets"]
    np.testing.assert_allclose(found, np.log(probs[..., np.arange(7), labels]), rtol=1e-4, atol=1e-5)
    pair = ptx.log_likelihood(prior_draws(heights, PEOPLE))
    assert pair.keys() == {"height", "tall"}


def test_log_likelihood_equals_numpyros():
    posterior = prior_draws(schools, SCHOOLS)
    values = {name: jnp.asarray(array) for name, array in posterior.constrained().items()}
    inputs, targets = jnp.asarray(SCHOOLS.inputs), jnp.asarray(SCHOOLS.targets)
    expected = numpyro.infer.log_likelihood(schools, values, inputs, targets, batch_ndims=2)["y"]
    np.testing.assert_allclose(ptx.log_likelihood(posterior)["y"], expected, rtol=1e-5)


DISTRIBUTIONS = {
    "positive": (lambda m: dist.LogNormal(m, 1.0), np.ones(6)),
    "mixture": (
        lambda m: dist.MixtureSameFamily(
            dist.Categorical(jnp.full((m.shape[0], 2), 0.5)), dist.Normal(jnp.stack([m, -m], -1), 1.0)
        ),
        np.zeros(6),
    ),
    "multivariate": (lambda m: dist.MultivariateNormal(jnp.stack([m, m], -1), jnp.eye(2)), np.zeros((6, 2))),
    "masked": (lambda m: dist.Normal(m, 1.0).mask(m > 0), np.zeros(6)),
    "classes": (lambda m: dist.Categorical(probs=jax.nn.softmax(jnp.stack([m, -m], -1))), np.ones(6, int)),
}


@pytest.mark.parametrize(("likelihood", "targets"), DISTRIBUTIONS.values(), ids=DISTRIBUTIONS)
def test_distributions_of_every_kind_go_row_by_row(likelihood, targets):
    def model(inputs, targets=None):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        numpyro.deterministic("positive", inputs > 0)
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("y", likelihood(slope * inputs), obs=targets)

    inputs = np.linspace(-1, 1, 6)
    posterior = prior_draws(model, (inputs, targets), num_draws=3)
    everything, first = ptx.predict(0, posterior, inputs), ptx.predict(0, posterior, inputs[:2])
    assert everything.targets["y"].shape == (2, 3, *targets.shape)
    np.testing.assert_allclose(first.targets["y"], everything.targets["y"][:, :, :2], rtol=1e-4, atol=1e-5)
    assert ptx.log_likelihood(posterior)["y"].shape == (2, 3, 6)


def test_a_model_without_latents_predicts():
    def known(inputs, targets=None):
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("y", dist.Normal(inputs, 1.0), obs=targets)

    posterior = prior_draws(known, (np.arange(3.0), np.zeros(3)), num_draws=4)
    assert ptx.predict(0, posterior, np.arange(3.0)).targets["y"].shape == (2, 4, 3)
    expected = np.broadcast_to(stats.norm.logpdf(0, np.arange(3.0)), (2, 4, 3))
    np.testing.assert_allclose(ptx.log_likelihood(posterior)["y"], expected, rtol=1e-5)


TOKENS = RNG.integers(0, 11, size=(5, 6))
MASK = np.arange(6) < np.array([6, 4, 1, 3, 6])[:, None]
TAGGER = models.bayesian(
    models.Transformer(
        vocab_size=11, max_length=6, num_layers=1, num_heads=2, width=4, num_outputs=3, pooling=None
    ),
    priors.normal(),
    likelihoods.categorical,
)


@pytest.fixture(scope="module")
def tagged():
    return prior_draws(TAGGER, ({"tokens": TOKENS, "mask": MASK}, TOKENS % 3), num_draws=3)


def test_log_likelihood_by_token(tagged):
    by_token, by_row = (
        ptx.log_likelihood(tagged, per="token")["targets"],
        ptx.log_likelihood(tagged)["targets"],
    )
    assert by_token.shape == (2, 3, 5, 6)
    assert by_row.shape == (2, 3, 5)
    assert np.all(by_token[..., ~MASK] == 0.0)
    assert np.all(by_token[..., MASK] < 0.0)
    np.testing.assert_allclose(by_token.sum(axis=-1), by_row, rtol=1e-5)
    probs = ptx.predict(0, tagged, tagged.target.data.inputs).probabilities["targets"]
    chosen = np.take_along_axis(probs, (TOKENS % 3)[None, None, ..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(by_token[..., MASK], np.log(chosen)[..., MASK], rtol=1e-4, atol=1e-5)


def test_one_term_a_row_has_no_tokens(classified):
    with pytest.raises(ValueError, match="site 'targets': its log density has one term a row"):
        ptx.log_likelihood(classified, per="token")
    with pytest.raises(ValueError, match="per: expected 'row' or 'token', got 'sequence'"):
        ptx.log_likelihood(classified, per="sequence")


def test_bfloat16_terms_are_summed_in_float32():
    """20,000 terms of -0.92 nats: a bfloat16 sum would be nats off."""

    def narrow(inputs, targets=None):
        weight = numpyro.sample("weight", dist.Normal(0, 1))
        mean = (0 * weight + 0 * inputs).astype(jnp.bfloat16)
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("y", dist.Normal(mean, jnp.bfloat16(1)).to_event(1), obs=targets)

    data = ptx.Data(np.zeros((2, 20_000), np.float32), np.zeros((2, 20_000), jnp.bfloat16))
    found = ptx.log_likelihood(prior_draws(narrow, data, num_draws=1))["y"]
    assert found.dtype == np.float32
    exact = 20_000 * float(jnp.bfloat16(stats.norm.logpdf(0)))
    np.testing.assert_allclose(found, exact, atol=0.1)


def test_a_second_call_traces_nothing():
    count = 0

    def counted(inputs, targets=None):
        nonlocal count
        count += 1
        heights(inputs, targets)

    posterior = prior_draws(counted, PEOPLE)
    ptx.predict(0, posterior, PEOPLE.inputs)
    ptx.log_likelihood(posterior)
    before = count
    ptx.predict(1, posterior, {"age": PEOPLE.inputs["age"] + 1})
    ptx.log_likelihood(posterior)
    assert count == before


def test_chunks_stay_below_the_bound():
    """1000 draws, 2000 rows: at once they would take a gigabyte, with the bound at 4 MiB no program takes more."""
    posterior = prior_draws(CLASSIFIER, (INPUTS, LABELS), num_draws=500)
    rows = RNG.normal(size=(2000, 3)).astype(np.float32)
    peaks, compiled = [], sweep.compiled

    def watched(fn, static, *args, **how):
        program = compiled(fn, static, *args, **how)
        sizes = program.memory_analysis()
        peaks.append(sizes.temp_size_in_bytes + sizes.output_size_in_bytes)
        return program

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "compiled", watched)
        probs = ptx.predict(0, posterior, rows, sites=["targets"], max_bytes=2**22).mean_probabilities()
    assert probs.shape == (2000, 3)
    assert len(peaks) > 10
    assert max(peaks) < 2**22


def test_one_row_and_one_draw():
    posterior = prior_draws(CLASSIFIER, (INPUTS[:1], LABELS[:1]), num_draws=1, num_chains=1)
    predicted = ptx.predict(0, posterior, INPUTS[:1])
    assert predicted.outputs.shape == (1, 1, 1, 3)
    assert ptx.log_likelihood(posterior)["targets"].shape == (1, 1, 1)


BAD_INPUTS = {
    "nan": (np.full((2, 3), np.nan), ValueError, "not finite"),
    "width": (np.zeros((2, 4)), ValueError, r"shape \(2, 4\).*trained on shape \(30, 3\)"),
    "no rows": (np.zeros((0, 3)), ValueError, "no rows"),
    "no row axis": (np.zeros(3), ValueError, r"shape \(3,\).*\(30, 3\)"),
    "structure": ({"x": np.zeros((2, 3))}, ValueError, "expected the structure of the training inputs"),
    "bool": (np.zeros((2, 3), bool), TypeError, "bool values"),
    "data": (ptx.Data(INPUTS, LABELS), TypeError, "such as data.inputs"),
    "nothing": (None, ValueError, "expected the structure"),
}


@pytest.mark.parametrize(("inputs", "error", "message"), BAD_INPUTS.values(), ids=BAD_INPUTS)
def test_bad_inputs_are_refused(classified, inputs, error, message):
    with pytest.raises(error, match=message):
        ptx.predict(0, classified, inputs)


def test_bad_tokens_are_refused(tagged):
    inputs = {"tokens": np.full((1, 6), 11), "mask": np.ones((1, 6), bool)}
    with pytest.raises(ValueError, match=r"tokens must be in \[0, 11\)"):
        ptx.predict(0, tagged, inputs)
    with pytest.raises(TypeError, match="cast them"):
        ptx.predict(0, tagged, {**inputs, "tokens": np.zeros((1, 6))})


def test_integers_stand_for_real_inputs(classified):
    ones = ptx.predict(0, classified, np.ones((1, 3), int)).outputs
    np.testing.assert_array_equal(ones, ptx.predict(0, classified, np.ones((1, 3))).outputs)


def test_draws_of_the_wrong_shape_are_refused():
    """Three chains, five draws and a site of shape (3, 5): only its place tells which axis is which."""

    def square(inputs, targets=None):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([3, 5]).to_event(2))
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("y", dist.Normal((w * inputs).sum((1, 2)), 1.0), obs=targets)

    posterior = prior_draws(square, (np.ones((4, 3, 5)), np.zeros(4)), num_draws=5, num_chains=3)
    assert ptx.predict(0, posterior, np.ones((4, 3, 5))).targets["y"].shape == (3, 5, 4)
    turned = posterior.replace(draws={"w": posterior.draws["w"].swapaxes(0, 1)})
    with pytest.raises(ValueError, match=r"site 'w' have shape \(5, 3, 3, 5\); expected \(3, 3, 3, 5\)"):
        ptx.predict(0, turned, np.ones((4, 3, 5)))


def test_missing_draws_are_refused(classified):
    """They would otherwise be drawn from the prior, silently."""
    with pytest.raises(ValueError, match=r"draws a chain of no site.*head.kernel"):
        ptx.log_likelihood(classified.replace(draws={}))


def test_values_that_are_not_finite_are_reported(classified):
    broken = {name: values.copy() for name, values in classified.draws.items()}
    broken["head.bias"][1, 2] = np.nan
    with pytest.warns(
        RuntimeWarning, match=r"site 'targets' has 30 of 600 values.* not finite.*draw 12, row 0"
    ):
        ptx.log_likelihood(classified.replace(draws=broken))


def test_a_model_that_needs_targets_is_told_so():
    def needy(inputs, targets=None):
        w = numpyro.sample("w", dist.Normal(0, 1))
        with numpyro.plate("rows", targets["y"].shape[0]):
            numpyro.sample("y", dist.Normal(w, 1.0), obs=targets["y"])

    posterior = prior_draws(needy, (np.zeros(3), {"y": np.zeros(3)}))
    with pytest.raises(TypeError) as caught:
        ptx.predict(0, posterior, np.zeros(3))
    assert any("must run without targets" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("bad", [{"draw_chunk": 0}, {"row_chunk": 1.5}, {"max_bytes": None}])
def test_bad_chunks_are_refused(classified, bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        ptx.predict(0, classified, INPUTS, **bad)


def test_probabilities_in_bfloat16_are_widened_and_sum_to_one():
    def narrow(inputs, targets=None):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([3, 7]).to_event(2))
        probs = jax.nn.softmax(inputs @ w, -1).astype(jnp.bfloat16)
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("y", dist.Categorical(probs=probs, validate_args=False), obs=targets)

    rng = np.random.default_rng(0)
    data = rng.normal(size=(30, 3)), rng.integers(0, 7, 30)
    posterior = ptx.infer(0, narrow, data, ptx.inference.Prior(num_draws=5), progress=False)
    probabilities = ptx.predict(1, posterior, data[0]).probabilities["y"]
    assert probabilities.dtype == np.float32
    np.testing.assert_allclose(probabilities.sum(-1), 1, atol=1e-6)
