"""Priors against SciPy, and rules that do not fit the weights."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats as st

from ptx.models import MLP, Transformer, Weight, bayesian, likelihoods, priors

KERNEL, GAIN, BIAS = (
    Weight((9, 2), ("a", "b"), 9),
    Weight((3,), ("a",), center=1.0),
    Weight((3,), ("a",)),
)
NETWORK = MLP(num_features=3, num_outputs=2)
ATTENTION = Transformer(vocab_size=5, max_length=4, num_layers=2, num_heads=1, width=4, num_outputs=2)
VALUES = np.array([-2.0, -0.1, 0.7, 3.0])


@pytest.mark.parametrize(
    ("prior", "weight", "want"),
    [
        (priors.normal(), KERNEL, st.norm(0, 1)),
        (priors.normal(0.3), GAIN, st.norm(1, 0.3)),
        (priors.normal("fan_in"), KERNEL, st.norm(0, 1 / 3)),
        (priors.normal("fan_in", gain=2.0), KERNEL, st.norm(0, 2 / 3)),
        (priors.normal("fan_in", gain=2.0), BIAS, st.norm(0, 2)),
        (priors.laplace(0.5), KERNEL, st.laplace(0, 0.5)),
        (priors.laplace("fan_in"), KERNEL, st.laplace(0, 1 / 3)),
        (priors.laplace("fan_in"), GAIN, st.laplace(1, 1)),
        (priors.student_t(), BIAS, st.t(4, 0, 1)),
        (priors.student_t(df=3, scale="fan_in", gain=1.5), KERNEL, st.t(3, 0, 0.5)),
        (priors.half_normal(0.7), BIAS, st.halfnorm(0, 0.7)),
    ],
)
def test_densities_are_scipys(prior, weight, want):
    values = np.abs(VALUES) if isinstance(prior, priors.half_normal) else VALUES
    with jax.enable_x64(True):
        got = prior(weight).log_prob(jnp.asarray(values))
    np.testing.assert_allclose(got, want.logpdf(values), rtol=1e-10)


@pytest.mark.parametrize("kind", [priors.normal, priors.laplace, priors.student_t])
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"scale": 0.0}, ValueError, "scale must be positive and finite, got 0.0"),
        ({"scale": -1}, ValueError, "positive"),
        ({"scale": np.nan}, ValueError, "positive and finite"),
        ({"scale": np.inf}, ValueError, "positive and finite"),
        ({"scale": True}, TypeError, "scale must be a number, got True"),
        ({"scale": "fan-in"}, ValueError, "scale must be one of 'fan_in', got 'fan-in'"),
        ({"scale": "fan_in", "gain": 0}, ValueError, "gain must be positive"),
        ({"scale": 2.0, "gain": 3.0}, ValueError, "gain belongs to scale='fan_in'"),
    ],
)
def test_bad_scales_are_refused(kind, arguments, error, message):
    with pytest.raises(error, match=message):
        kind(**arguments)


def test_bad_degrees_of_freedom_are_refused():
    with pytest.raises(ValueError, match="df must be positive"):
        priors.student_t(df=0)


RULES = {
    "attention.*": priors.laplace("fan_in"),
    "*.bias": priors.student_t(df=3.0),
    "head.norm.gain": priors.normal(0.1),
    "*": priors.normal(),
}


@pytest.mark.parametrize(
    "prior",
    [
        priors.normal(2),
        priors.laplace("fan_in", 2),
        priors.student_t(5),
        priors.half_normal(2),
        priors.by_site(RULES),
    ],
)
def test_priors_hash_and_print_by_value(prior):
    again = eval(repr(prior), vars(priors).copy())
    assert again == prior
    assert hash(again) == hash(prior)


def test_numpy_scalars_become_floats():
    assert repr(priors.normal(np.float32(0.5))) == repr(priors.normal(0.5))


def test_the_first_match_wins():
    assigned = priors.assign(priors.by_site(RULES), ATTENTION.weights)
    assert set(assigned) == set(ATTENTION.weights)
    assert assigned["attention.query"] == assigned["attention.query.bias"] == RULES["attention.*"]
    assert assigned["mlp.in.bias"] == assigned["head.bias"] == RULES["*.bias"]
    assert assigned["head.norm.gain"] == RULES["head.norm.gain"]
    assert assigned["mlp.in"] == assigned["embedding.token"] == RULES["*"]
    reversed_rules = dict(reversed(RULES.items()))
    assert priors.by_site(reversed_rules) != priors.by_site(RULES)


@pytest.mark.parametrize(
    ("rules", "messages"),
    [
        ({"kernel": priors.normal()}, ["no rule matches: hidden.0.kernel", "rules that win no weight: 'kernel'"]),
        ({"head.*": priors.normal()}, ["weights that no rule matches: hidden.0.kernel, hidden.0.bias."]),
        ({"hidden.0.kernal": priors.normal(), "*": priors.normal()}, ["(did you mean 'hidden.0.kernel'?)"]),
        ({"*": priors.normal(), "head.*": priors.laplace()}, ["'head.*' (earlier rules take all it matches)"]),
        ({"Head.*": priors.normal(), "*": priors.normal()}, ["'Head.*'"]),
        ({"noise_scale": priors.half_normal(), "*": priors.normal()}, ["'noise_scale'"]),
    ],
)  # fmt: skip
def test_rules_that_do_not_fit_the_weights_are_refused_when_the_model_is_built(rules, messages):
    with pytest.raises(ValueError, match="by_site leaves") as caught:
        bayesian(NETWORK, priors.by_site(rules), likelihoods.categorical)
    for message in messages:
        assert message in str(caught.value)
    assert "The weights are hidden.0.kernel, hidden.0.bias, head.kernel, head.bias" in str(caught.value)


@pytest.mark.parametrize("rules", [{}, [("*", priors.normal())], None, {1: priors.normal()}, {"*": 3.0}])
def test_rules_that_are_no_mapping_of_patterns_to_priors_are_refused(rules):
    with pytest.raises(TypeError):
        priors.by_site(rules)


def test_rules_do_not_nest():
    with pytest.raises(TypeError, match="cannot hold another by_site"):
        priors.by_site({"*": priors.by_site({"*": priors.normal()})})


@pytest.mark.parametrize("prior", [{"*": priors.normal()}, 1.0, "normal", None])
def test_what_is_no_prior_is_refused(prior):
    with pytest.raises(TypeError, match="a prior is"):
        bayesian(NETWORK, prior, likelihoods.categorical)


def test_a_numpyro_distribution_is_refused_since_it_hashes_by_identity():
    with pytest.raises(TypeError, match="not hashed by value"):
        bayesian(NETWORK, dist.Normal(0.0, 1.0), likelihoods.categorical)


def test_a_class_stands_for_its_defaults():
    assert priors.by_site({"*": priors.normal}) == priors.by_site({"*": priors.normal()})


def test_a_prior_of_ones_own_may_be_any_callable():
    model = bayesian(
        NETWORK, lambda weight: dist.Cauchy(0.0, 1.0).expand(weight.shape), likelihoods.categorical
    )
    model.check(np.zeros((2, 3)), np.zeros(2, int))


@pytest.mark.parametrize(
    ("prior", "error", "message"),
    [
        (
            lambda weight: dist.Normal(0.0, 1.0).expand((7,)),
            ValueError,
            r"prior of 'hidden.0.kernel' has shape \(7,\)",
        ),
        (lambda weight: 1.0, TypeError, "must return a NumPyro distribution"),
    ],
)
def test_a_prior_that_does_not_fit_its_weight_is_refused(prior, error, message):
    with pytest.raises(error, match=message):
        bayesian(NETWORK, prior, likelihoods.categorical)
