"""Models as ordinary NumPyro programs: log density, handlers, Predictive, MCMC, equality by value."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
import scipy.stats as st
from models import reference
from numpyro import handlers
from numpyro.infer import HMC, MCMC, NUTS, Predictive
from numpyro.infer.util import log_density
from scipy.special import log_softmax

from ptx.models import MLP, Transformer, VisionTransformer, bayesian, likelihoods, priors

RNG = np.random.default_rng(7)
NETWORK = MLP(num_features=3, num_outputs=3, hidden=(4,))
INPUTS, LABELS = RNG.normal(size=(6, 3)), np.array([0, 1, 2, 2, 1, 0])
MODEL = bayesian(NETWORK, priors.normal("fan_in"), likelihoods.categorical)
TAGGER = Transformer(
    vocab_size=11, max_length=6, num_layers=1, num_heads=2, width=4, num_outputs=3, pooling=None
)
TOKENS, TAGS = RNG.integers(0, 11, size=(4, 5)), RNG.integers(0, 3, size=(4, 5))
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [1, 1, 1, 0, 0]], bool)


def abstract_sites(model, inputs, targets=None):
    """Shape and dtype of each site and of the pointwise log density, without computing anything."""

    def run(rng_key):
        trace = handlers.trace(handlers.seed(model, rng_key)).get_trace(inputs, targets)
        kinds = ("sample", "deterministic")
        values = {n: jnp.asarray(site["value"]) for n, site in trace.items() if site["type"] in kinds}
        return values, trace["targets"]["fn"].log_prob(trace["targets"]["value"])

    return jax.eval_shape(run, jax.random.key(0))


def total_log_density(model, inputs, targets, values):
    with jax.enable_x64(True), jax.numpy_rank_promotion("raise"):
        values = {name: jnp.asarray(value) for name, value in values.items()}
        inputs, targets = jax.tree.map(jnp.asarray, (inputs, targets))
        return float(jax.jit(lambda v: log_density(model, (inputs, targets), {}, v)[0])(values))


def test_log_density_of_a_regression_is_a_sum_of_scipy_terms():
    network = MLP(num_features=3, num_outputs=1, hidden=(4,))
    prior = priors.by_site(
        {
            "hidden.*.kernel": priors.laplace("fan_in", 2.0),
            "*.bias": priors.student_t(3, 0.5),
            "*": priors.normal(2),
        }
    )
    model = bayesian(network, prior, likelihoods.student_t(5.0, priors.half_normal(0.7)))
    values = {name: RNG.normal(size=w.shape) for name, w in network.weights.items()} | {"noise_scale": 0.3}
    targets = RNG.normal(size=6)
    model.check(INPUTS, targets)
    hidden = np.tanh(INPUTS @ values["hidden.0.kernel"] + values["hidden.0.bias"])
    outputs = (hidden @ values["head.kernel"] + values["head.bias"])[:, 0]
    want = (
        st.laplace.logpdf(values["hidden.0.kernel"], 0, 2 / np.sqrt(3)).sum()
        + st.t.logpdf(values["hidden.0.bias"], 3, 0, 0.5).sum()
        + st.t.logpdf(values["head.bias"], 3, 0, 0.5).sum()
        + st.norm.logpdf(values["head.kernel"], 0, 2).sum()
        + st.halfnorm.logpdf(0.3, 0, 0.7)
        + st.t.logpdf(targets, 5, outputs, 0.3).sum()
    )
    assert total_log_density(model, INPUTS, targets, values) == pytest.approx(want, rel=1e-12)


def test_log_density_of_a_tagger_is_a_sum_of_scipy_terms_over_real_tokens():
    model = bayesian(TAGGER, priors.normal("fan_in", 0.8), likelihoods.categorical)
    values, inputs = reference.draw_weights(TAGGER), {"tokens": TOKENS, "mask": MASK}
    model.check(inputs, TAGS)
    logits = log_softmax(reference.transformer(TAGGER, values, TOKENS, MASK), axis=-1)
    terms = np.take_along_axis(logits, TAGS[..., None], axis=-1)[..., 0]
    want = terms[MASK].sum() + sum(
        st.norm.logpdf(values[name], w.center, 0.8 / np.sqrt(w.fan_in or 1)).sum()
        for name, w in TAGGER.weights.items()
    )
    assert total_log_density(model, inputs, TAGS, values) == pytest.approx(want, rel=1e-12)
    junk = np.where(MASK, TAGS, -1)
    model.check(inputs, junk)
    assert total_log_density(model, inputs, junk, values) == pytest.approx(want, rel=1e-12)
    with pytest.raises(ValueError, match=r"must be in \[0, 3\)"):
        model.check(TOKENS, junk)


def test_padding_changes_no_rows_log_likelihood():
    network = replace(TAGGER, max_length=64, pooling="mean")
    model = bayesian(network, priors.normal(), likelihoods.categorical)
    weights = {name: jnp.asarray(w, jnp.float32) for name, w in reference.draw_weights(network).items()}

    @jax.jit
    def log_likelihood(inputs, labels):
        site = handlers.trace(handlers.substitute(model, data=weights)).get_trace(inputs, labels)["targets"]
        return site["fn"].log_prob(site["value"])

    padded = np.zeros((2, 64), int)
    padded[0, :5], padded[1] = TOKENS[0], RNG.integers(0, 11, size=64)
    mask = np.ones((2, 64), bool)
    mask[0, 5:] = False
    alone = log_likelihood(TOKENS[:1], LABELS[:1])
    both = log_likelihood({"tokens": padded, "mask": mask}, LABELS[:2])
    assert both.shape == (2,)
    np.testing.assert_allclose(both[:1], alone, rtol=1e-5)


def test_weights_start_at_the_prior_and_noise_does_not():
    model = bayesian(NETWORK, priors.normal, likelihoods.normal(priors.half_normal))
    trace = handlers.trace(handlers.seed(model, 0)).get_trace(INPUTS)
    for name in NETWORK.weights:
        assert trace[name]["infer"] == {"init": "prior"}
    assert "init" not in trace["noise_scale"]["infer"]
    assert trace["outputs"]["type"] == "deterministic"
    assert not trace["targets"]["is_observed"]
    plates = trace["targets"]["cond_indep_stack"]
    assert [(plate.name, plate.dim, plate.size) for plate in plates] == [("rows", -1, 6)]


def test_dims_name_every_site():
    assert MODEL.dims["hidden.0.kernel"] == ("feature", "hidden_0")
    cases = [
        (MODEL, INPUTS),
        (bayesian(TAGGER, priors.normal, likelihoods.categorical), {"tokens": TOKENS, "mask": MASK}),
        (bayesian(NETWORK, priors.normal, likelihoods.normal(priors.half_normal)), INPUTS),
        (bayesian(replace(NETWORK, num_outputs=1), priors.normal, likelihoods.bernoulli), INPUTS),
    ]
    for model, inputs in cases:
        sites, _ = abstract_sites(model, inputs)
        assert set(model.dims) == set(sites)
        for name, site in sites.items():
            assert len(model.dims[name]) == site.ndim, name


def test_equal_parts_make_equal_models_that_compile_once():
    def build():
        return bayesian(
            MLP(num_features=3, num_outputs=3, hidden=[4]),
            priors.by_site({"*.bias": priors.laplace(0.1), "*": priors.normal()}),
            likelihoods.categorical,
        )

    traces = []

    def run(model, values, inputs, labels):
        traces.append(model)
        return log_density(model, (inputs, labels), {}, values)[0]

    compiled = jax.jit(run, static_argnums=0)
    values = {name: jnp.zeros(w.shape) for name, w in NETWORK.weights.items()}
    assert build() == build()
    assert hash(build()) == hash(build())
    first, second = (compiled(build(), values, INPUTS, LABELS) for _ in range(2))
    assert first == second
    assert len(traces) == 1
    other = replace(build(), prior=priors.normal())
    assert other != build()
    compiled(other, values, INPUTS, LABELS)
    assert len(traces) == 2


def test_an_unhashable_part_is_refused():
    class Rules(list):
        def __call__(self, weight):
            return numpyro.distributions.Normal(0.0, 1.0)

    with pytest.raises(TypeError, match="must be hashable"):
        bayesian(NETWORK, Rules(), likelihoods.categorical)


@pytest.mark.parametrize("network", [None, MLP, lambda weights, x: x])
def test_what_is_no_network_is_refused(network):
    with pytest.raises(TypeError, match="a network is"):
        bayesian(network, priors.normal, likelihoods.categorical)


@pytest.mark.parametrize("likelihood", [3.0, "categorical", None, numpyro.distributions.Normal(0.0, 1.0)])
def test_what_is_no_likelihood_is_refused(likelihood):
    with pytest.raises(TypeError, match="a likelihood is"):
        bayesian(NETWORK, priors.normal, likelihood)


@pytest.mark.parametrize(
    ("model", "inputs", "shape"),
    [
        (MODEL, INPUTS, (6,)),
        (bayesian(replace(NETWORK, num_outputs=1), priors.normal, likelihoods.bernoulli), INPUTS, (6,)),
        (bayesian(NETWORK, priors.normal, likelihoods.normal(0.1)), INPUTS, (6, 3)),
        (bayesian(TAGGER, priors.normal, likelihoods.categorical), {"tokens": TOKENS, "mask": MASK}, (4, 5)),
    ],
)
def test_predictive_simulates_each_row_on_its_own(model, inputs, shape):
    draws = Predictive(model, num_samples=50)(jax.random.key(0), inputs)
    assert draws["targets"].shape == (50, *shape)
    assert draws["outputs"].shape == (50, shape[0], *draws["outputs"].shape[2:])
    model.check(inputs, draws["targets"][0])  # what it simulates, it takes


def test_simulated_rows_are_independent_given_the_weights():
    """With all weights zero, 40 rows of fair coins over 400 draws; one shared draw would have correlation one."""
    model = bayesian(replace(NETWORK, num_outputs=1), priors.normal, likelihoods.bernoulli)
    weights = {name: jnp.zeros((400, *w.shape)) for name, w in model.network.weights.items()}
    targets = Predictive(model, weights)(jax.random.key(1), jnp.zeros((40, 3)))["targets"]
    assert targets.shape == (400, 40)
    correlation = np.corrcoef(np.asarray(targets).T)[np.triu_indices(40, 1)]
    assert np.abs(correlation).max() * np.sqrt(400) < 4.5
    assert abs(np.mean(np.asarray(targets)) - 0.5) / (0.5 / np.sqrt(16000)) < 4.5


@pytest.mark.slow
def test_numpyros_nuts_runs_on_a_single_row():
    sampler = MCMC(NUTS(MODEL), num_warmup=5, num_samples=5, progress_bar=False)
    sampler.run(jax.random.key(0), INPUTS[:1], LABELS[:1])
    samples = sampler.get_samples()
    assert set(samples) == {*NETWORK.weights, "outputs"}
    assert samples["outputs"].shape == (5, 1, 3)
    assert all(np.all(np.isfinite(value)) for value in samples.values())


@pytest.mark.slow
def test_numpyros_hmc_runs_on_a_transformer():
    model = bayesian(TAGGER, priors.normal("fan_in"), likelihoods.categorical)
    kernel = HMC(model, step_size=0.01, num_steps=2, adapt_step_size=False, adapt_mass_matrix=False)
    sampler = MCMC(kernel, num_warmup=0, num_samples=3, progress_bar=False)
    sampler.run(jax.random.key(0), {"tokens": TOKENS, "mask": MASK}, TAGS)
    assert all(np.all(np.isfinite(value)) for value in sampler.get_samples().values())


def test_a_tagger_with_a_row_of_padding_has_finite_gradients():
    model = bayesian(TAGGER, priors.normal(), likelihoods.categorical)
    weights = {name: jnp.asarray(w, jnp.float32) for name, w in reference.draw_weights(TAGGER).items()}
    inputs = {"tokens": TOKENS, "mask": MASK}
    gradient = jax.jit(jax.grad(lambda w: log_density(model, (inputs, TAGS), {}, w)[0]))(weights)
    assert all(np.all(np.isfinite(g)) for g in gradient.values())


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (LABELS[:, None], r"class labels must have shape \(6,\)"),
        (LABELS[:5], r"class labels must have shape \(6,\)"),
        (LABELS - 1, "row 0 holds -1"),
    ],
)
def test_check_sees_targets(targets, message):
    with pytest.raises(ValueError, match=message):
        MODEL.check(INPUTS, targets)


def test_check_sees_inputs_and_takes_lists():
    MODEL.check(INPUTS.tolist(), LABELS.tolist())
    MODEL.check(INPUTS)
    with pytest.raises(ValueError, match="inputs must have shape"):
        MODEL.check(INPUTS[:, :2], LABELS)


def test_a_vision_model_takes_images():
    network = VisionTransformer(
        image_size=(4, 4), patch_size=2, num_layers=1, num_heads=1, width=4, num_outputs=3
    )
    model = bayesian(network, priors.normal, likelihoods.categorical)
    images = RNG.normal(size=(6, 4, 4))
    model.check(images, LABELS)
    sites, log_prob = abstract_sites(model, images, LABELS)
    assert sites["outputs"].shape == (6, 3)
    assert log_prob.shape == (6,)


def test_dtype_follows_the_weights_and_log_densities_have_float32_at_least():
    with jax.enable_x64(True):
        sites, log_prob = abstract_sites(MODEL, INPUTS.astype(np.float32), LABELS)
        assert sites["outputs"].dtype == log_prob.dtype == np.float64
    sites, log_prob = abstract_sites(MODEL, INPUTS.astype(np.float32), LABELS)
    assert sites["outputs"].dtype == log_prob.dtype == np.float32
    halves = {name: jnp.zeros(w.shape, jnp.bfloat16) for name, w in NETWORK.weights.items()}
    sites, log_prob = abstract_sites(handlers.substitute(MODEL, data=halves), INPUTS, LABELS)
    assert sites["outputs"].dtype == jnp.bfloat16
    assert log_prob.dtype == np.float32
