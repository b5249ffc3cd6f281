"""The Gaussian that a log density's curvature stands for."""

import jax.numpy as jnp
import numpy as np
import pytest

from ptx.inference.curvature import covariance_factor


def gaussian(precision):
    return lambda vector: -0.5 * vector @ jnp.asarray(precision, jnp.float32) @ vector


def correlated(size, correlation):
    """A covariance with distinct scales, all pairs correlated."""
    scale = 1.0 + np.arange(size)
    return (correlation + (1 - correlation) * np.eye(size)) * np.outer(scale, scale)


@pytest.mark.parametrize(("size", "correlation"), [(1, 0.0), (2, -0.7), (2, 0.9), (12, 0.95)])
def test_the_covariance_is_the_inverse_hessian(size, correlation):
    covariance = correlated(size, correlation)
    factor, damped = covariance_factor(gaussian(np.linalg.inv(covariance)), jnp.ones(size))
    assert damped == 0
    np.testing.assert_allclose(factor @ factor.T, covariance, rtol=2e-3)


def test_the_transposed_factor_would_be_wrong():
    covariance = correlated(3, 0.8)
    factor, _ = covariance_factor(gaussian(np.linalg.inv(covariance)), jnp.zeros(3))
    assert not np.allclose(factor.T @ factor, covariance, rtol=0.1)


@pytest.mark.parametrize(
    ("curvatures", "count"),
    [((1.0, 0.0), 1), ((1.0, -3.0), 1), ((-1.0, -3.0), 2), ((0.0, 0.0), 2), ((5.0, 1.0), 0)],
)
def test_directions_without_a_maximum_are_damped_and_counted(curvatures, count):
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    precision = turn @ np.diag(curvatures) @ turn.T
    factor, damped = covariance_factor(gaussian(precision), jnp.zeros(2))
    assert damped == count
    spread = np.linalg.norm(turn.T @ np.asarray(factor, float), axis=1)  # sd along the two axes
    assert np.isfinite(factor).all()
    assert (spread > 0.1).all()
    for sd, curvature in zip(spread, curvatures, strict=True):
        if curvature > 0:
            np.testing.assert_allclose(sd, curvature**-0.5, rtol=1e-2)
        else:
            assert sd > 10 / max(abs(c) + 1e-9 for c in curvatures) ** 0.5


def test_a_hessian_that_is_not_finite_stays_visible():
    factor, _ = covariance_factor(lambda vector: jnp.sum(jnp.sqrt(vector)), jnp.zeros(2))
    assert not np.isfinite(factor).all()
