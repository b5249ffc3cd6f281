"""Likelihoods against SciPy, and labels that do not fit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st
from numpyro import handlers
from scipy.special import log_expit, log_softmax

from ptx.models import likelihoods, priors

RNG = np.random.default_rng(2)
LOGITS = RNG.normal(size=(5, 4, 3)) * 2
LABELS = RNG.integers(0, 3, size=(5, 4))
MASK = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 1, 1]], bool)


def log_prob(likelihood, outputs, targets, valid=None, **latents):
    """Pointwise log density of site `targets`, in float64."""
    with jax.enable_x64(True):
        seeded = handlers.seed(handlers.substitute(likelihood, data=latents), 0)
        valid = None if valid is None else jnp.asarray(valid)
        site = handlers.trace(seeded).get_trace(jnp.asarray(outputs), targets, valid)["targets"]
        return np.asarray(site["fn"].log_prob(site["value"]))


def test_categorical_per_row():
    got = log_prob(likelihoods.categorical(), LOGITS[:, 0], LABELS[:, 0])
    np.testing.assert_allclose(
        got, log_softmax(LOGITS[:, 0], axis=-1)[np.arange(5), LABELS[:, 0]], rtol=1e-12
    )


def token_terms():
    return np.take_along_axis(log_softmax(LOGITS, axis=-1), LABELS[..., None], axis=-1)[..., 0]


def test_categorical_per_token_sums_over_a_row():
    np.testing.assert_allclose(
        log_prob(likelihoods.categorical(), LOGITS, LABELS), token_terms().sum(axis=1), rtol=1e-12
    )


@pytest.mark.parametrize("junk", [0, 2, -1, -100, 99])
def test_masked_tokens_count_exactly_zero_whatever_their_label(junk):
    labels = np.where(MASK, LABELS, junk)
    likelihoods.categorical().check(LOGITS.shape, labels, MASK)
    got = log_prob(likelihoods.categorical(), LOGITS, labels, MASK)
    np.testing.assert_allclose(got, np.where(MASK, token_terms(), 0.0).sum(axis=1), rtol=1e-12)
    assert got[3] == 0.0
    assert np.any(got != log_prob(likelihoods.categorical(), LOGITS, LABELS))  # the mask does something


def test_ignore_index_counts_zero_and_joins_the_mask():
    likelihood = likelihoods.categorical(ignore_index=-100)
    ignored = np.zeros_like(MASK)
    ignored[0, 1] = ignored[4, 0] = True
    labels = np.where(ignored, -100, LABELS)
    for mask in (None, MASK):
        likelihood.check(LOGITS.shape, labels, mask)
        kept = ~ignored if mask is None else MASK & ~ignored
        want = np.where(kept, token_terms(), 0.0).sum(axis=1)
        np.testing.assert_allclose(log_prob(likelihood, LOGITS, labels, mask), want, rtol=1e-12)
    with pytest.raises(ValueError, match=r"must be in \[0, 3\): row 0, position 1 holds -100"):
        likelihoods.categorical().check(LOGITS.shape, labels)


def test_ignore_index_for_labels_per_row():
    likelihood = likelihoods.categorical(ignore_index=-1)
    labels = np.array([0, -1, 2, 1, -1])
    likelihood.check((5, 3), labels)
    got = log_prob(likelihood, LOGITS[:, 0], labels)
    want = log_softmax(LOGITS[:, 0], axis=-1)[np.arange(5), labels]
    np.testing.assert_allclose(got, np.where(labels == -1, 0.0, want), rtol=1e-12)


def test_bernoulli():
    logits, labels = LOGITS[:, 0, :1], LABELS[:, 0] > 0
    got = log_prob(likelihoods.bernoulli(), logits, labels)
    np.testing.assert_allclose(got, log_expit(np.where(labels, 1, -1) * logits[:, 0]), rtol=1e-12)
    several = LABELS[:, :3] > 0
    got = log_prob(likelihoods.bernoulli(), LOGITS[:, 0], several)
    np.testing.assert_allclose(
        got, log_expit(np.where(several, 1, -1) * LOGITS[:, 0]).sum(axis=1), rtol=1e-12
    )


@pytest.mark.parametrize(
    ("likelihood", "latents", "density"),
    [
        (likelihoods.normal(2.0), {}, lambda y, f: st.norm.logpdf(y, f, 2.0)),
        (
            likelihoods.normal(priors.half_normal),
            {"noise_scale": 2.0},
            lambda y, f: st.norm.logpdf(y, f, 2.0),
        ),
        (likelihoods.student_t(3, 0.5), {}, lambda y, f: st.t.logpdf(y, 3, f, 0.5)),
        (
            likelihoods.student_t(3, priors.half_normal(5)),
            {"noise_scale": 0.5},
            lambda y, f: st.t.logpdf(y, 3, f, 0.5),
        ),
    ],
)
def test_regression(likelihood, latents, density):
    targets = RNG.normal(size=(5, 3)) * 3
    got = log_prob(likelihood, LOGITS[:, 0], targets, **latents)
    np.testing.assert_allclose(got, density(targets, LOGITS[:, 0]).sum(axis=1), rtol=1e-12)
    got = log_prob(likelihood, LOGITS[:, 0, :1], targets[:, 0], **latents)
    np.testing.assert_allclose(got, density(targets[:, 0], LOGITS[:, 0, 0]), rtol=1e-12)


def test_regression_per_token_leaves_masked_targets_out():
    targets = np.where(MASK[..., None], RNG.normal(size=LOGITS.shape), np.nan)
    likelihoods.normal().check(LOGITS.shape, targets, MASK)
    got = log_prob(likelihoods.normal(), LOGITS, targets, MASK)
    want = np.where(MASK[..., None], st.norm.logpdf(targets, LOGITS, 1.0), 0.0).sum(axis=(1, 2))
    np.testing.assert_allclose(got, want, rtol=1e-12)
    gradient = jax.grad(lambda f: log_prob_sum(f, targets))(jnp.asarray(LOGITS))
    assert np.all(np.isfinite(gradient))
    assert np.all(np.asarray(gradient)[~MASK] == 0.0)


def log_prob_sum(outputs, targets):
    site = handlers.trace(likelihoods.normal()).get_trace(outputs, targets, jnp.asarray(MASK))["targets"]
    return jnp.sum(site["fn"].log_prob(site["value"]))


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        (np.array([0, 1, 3]), ValueError, r"must be in \[0, 3\): row 2 holds 3 \(1 such"),
        (np.array([0, -1, -1]), ValueError, r"row 1 holds -1 \(2 such"),
        (np.array([0, 2**33 + 1, 0]), ValueError, "row 1 holds 8589934593"),
        (np.array([0, 1.5, 0]), ValueError, "must be whole numbers: row 1 holds 1.5"),
        (np.array([0, np.nan, 0]), ValueError, "row 1 holds nan"),
        (np.array([0, np.inf, 0]), ValueError, "row 1 holds inf"),
        (np.array([0, 3.0, 0]), ValueError, r"must be in \[0, 3\): row 1 holds 3.0"),
        (np.array([True, False, True]), TypeError, r"got dtype bool; cast booleans with .astype\(int\)"),
        (np.array(["a", "b", "c"]), TypeError, "must be integers"),
        (np.array([[0], [1], [2]]), ValueError, r"shape \(3,\).*got \(3, 1\); use targets\[..., 0\]"),
        (np.array([0, 1]), ValueError, r"shape \(3,\).*got \(2,\)"),
        (np.eye(3), ValueError, r"shape \(3,\).*got \(3, 3\)"),
    ],
)
def test_bad_class_labels_are_refused(labels, error, message):
    with pytest.raises(error, match=message):
        likelihoods.categorical().check((3, 3), labels)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, np.float32, np.float64])
def test_whole_labels_of_any_dtype_are_cast(dtype):
    labels = np.array([0, 2, 1, 2, 0]).astype(dtype)
    likelihoods.categorical().check((5, 3), labels)
    got = log_prob(likelihoods.categorical(), LOGITS[:, 0], labels)
    np.testing.assert_array_equal(got, log_prob(likelihoods.categorical(), LOGITS[:, 0], labels.astype(int)))


def test_labels_of_one_class_only_and_of_one_row_pass():
    likelihoods.categorical().check((1, 3), np.array([2]))
    likelihoods.categorical().check((4, 3), np.zeros(4, int))


def test_one_output_is_no_categorical():
    with pytest.raises(ValueError, match="num_outputs >= 2"):
        likelihoods.categorical().check((3, 1), np.zeros(3, int))
    with pytest.raises(ValueError, match="num_outputs >= 2"):
        log_prob(likelihoods.categorical(), LOGITS[:, 0, :1], np.zeros(5, int))


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        (np.array([0, 2, 1]), ValueError, r"must be in \[0, 2\): row 1 holds 2"),
        (np.array([0, -1, 1]), ValueError, "row 1 holds -1"),
        (np.array([0, 0.5, 1]), ValueError, "must be whole numbers"),
        (np.zeros((3, 1)), ValueError, r"binary targets must have shape \(3,\).*use targets\[..., 0\]"),
    ],
)
def test_bad_binary_labels_are_refused(labels, error, message):
    with pytest.raises(error, match=message):
        likelihoods.bernoulli().check((3, 1), labels)


@pytest.mark.parametrize("dtype", [bool, int, float])
def test_binary_labels_may_be_booleans(dtype):
    likelihoods.bernoulli().check((3, 1), np.array([0, 1, 1]).astype(dtype))


@pytest.mark.parametrize("likelihood", [likelihoods.normal(), likelihoods.student_t()])
@pytest.mark.parametrize(
    ("targets", "error", "message"),
    [
        (np.array([0, np.nan, 1]), ValueError, "must be finite.*row 1 holds nan"),
        (np.array([0, -np.inf, 1]), ValueError, "row 1 holds -inf"),
        (np.array([0, 1e300, 1]), ValueError, "row 1 holds 1e"),
        (np.zeros((3, 1)), ValueError, r"real targets must have shape \(3,\).*use targets\[..., 0\]"),
        (np.array([True, False, True]), TypeError, "must be real numbers, got dtype bool"),
    ],
)
def test_bad_real_targets_are_refused(likelihood, targets, error, message):
    with pytest.raises(error, match=message):
        likelihood.check((3, 1), targets)


@pytest.mark.parametrize("kind", [likelihoods.normal, likelihoods.student_t])
@pytest.mark.parametrize(
    ("scale", "error", "message"),
    [
        (0.0, ValueError, "scale must be positive"),
        (np.nan, ValueError, "positive and finite"),
        ("learned", TypeError, "scale must be a number, got 'learned'"),
        (priors.normal(), ValueError, "needs a prior on positive numbers"),
        (priors.by_site({"*": priors.half_normal()}), TypeError, "takes one prior"),
    ],
)
def test_bad_noise_scales_are_refused(kind, scale, error, message):
    with pytest.raises(error, match=message):
        kind(scale=scale)


def test_ignore_index_is_a_whole_number():
    with pytest.raises(TypeError, match="ignore_index must be a whole number"):
        likelihoods.categorical(ignore_index=1.0)


@pytest.mark.parametrize(
    "likelihood",
    [
        likelihoods.categorical(-1),
        likelihoods.bernoulli(),
        likelihoods.normal(priors.half_normal(2)),
        likelihoods.student_t(3, 2),
    ],
)
def test_likelihoods_hash_and_print_by_value(likelihood):
    again = eval(repr(likelihood), {**vars(priors), **vars(likelihoods)})
    assert again == likelihood
    assert hash(again) == hash(likelihood)
