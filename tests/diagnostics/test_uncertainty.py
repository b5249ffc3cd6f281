import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import entropy

from ptx.diagnostics import entropy_decomposition


def random_draws(shape=(2, 5, 7, 4)):
    return softmax(2 * np.random.default_rng(0).normal(size=shape), axis=-1)


def test_two_draws_in_closed_form():
    split = entropy_decomposition([[[[0.5, 0.5]], [[1.0, 0.0]]]])  # p = (1/2, 1/2) and (1, 0), in nats
    np.testing.assert_allclose(split.predictive, [0.562335144619], rtol=1e-10)
    np.testing.assert_allclose(split.expected, [0.34657359028], rtol=1e-10)
    np.testing.assert_allclose(split.mutual_information, [0.215761554339], rtol=1e-10)


def test_equal_to_scipy_row_by_row():
    draws = random_draws()
    split = entropy_decomposition(draws)
    mean = draws.mean(axis=(0, 1))
    np.testing.assert_allclose(split.predictive, entropy(mean, axis=-1), rtol=1e-12)
    np.testing.assert_allclose(split.expected, entropy(draws, axis=-1).mean(axis=(0, 1)), rtol=1e-12)
    # mutual information as the mean divergence of a draw from the mean
    divergence = entropy(draws, np.broadcast_to(mean, draws.shape), axis=-1).mean(axis=(0, 1))
    np.testing.assert_allclose(split.mutual_information, divergence, rtol=1e-10)
    assert split.mutual_information.min() > 0.01


def test_draws_that_agree_share_no_information():
    same = np.broadcast_to(random_draws((1, 1, 7, 4)), (3, 4, 7, 4))
    for draws in (same, same[:1, :1], same.astype(np.float32)):
        split = entropy_decomposition(draws)
        assert (split.mutual_information >= 0).all()
        np.testing.assert_allclose(split.mutual_information, 0, atol=1e-6)


def test_certain_draws_that_disagree_give_log_of_their_number():
    split = entropy_decomposition(np.eye(3)[None, :, None])  # three draws, each sure of another class
    np.testing.assert_allclose(split.predictive, [np.log(3)], rtol=1e-12)
    np.testing.assert_array_equal(split.expected, [0])
    np.testing.assert_allclose(split.mutual_information, [np.log(3)], rtol=1e-12)


def test_all_draws_count_in_any_order():
    draws = random_draws()
    split, shuffled = entropy_decomposition(draws), entropy_decomposition(draws[::-1, [3, 0, 4, 1, 2]])
    np.testing.assert_allclose(shuffled.mutual_information, split.mutual_information, rtol=1e-12)
    fewer = entropy_decomposition(draws[:, :-1])
    assert (np.abs(fewer.mutual_information - split.mutual_information) > 1e-4).all()


def test_tokens_keep_their_axes():
    draws = random_draws((2, 5, 6, 4))
    tokens = entropy_decomposition(draws.reshape(2, 5, 3, 2, 4))
    assert tokens.predictive.shape == (3, 2)
    np.testing.assert_array_equal(tokens.predictive.ravel(), entropy_decomposition(draws).predictive)


@pytest.mark.parametrize(
    ("probs", "message"),
    [
        (random_draws()[0], r"got shape \(5, 7, 4\); expected \(chain, draw, rows, classes\)"),
        (np.moveaxis(random_draws(), 2, -1), "which sums to"),
        (np.log(random_draws()), "not logits"),
        (np.where(random_draws() > 0.9, np.nan, random_draws()), "nan"),
        (np.zeros((2, 0, 7, 4)), "holds nothing"),
        (np.ones((2, 5, 7, 1)), "at least 2"),
    ],
)
def test_bad_probabilities_are_refused(probs, message):
    with pytest.raises(ValueError, match=message):
        entropy_decomposition(probs)
