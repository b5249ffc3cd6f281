"""The map onto the simplex: NumPyro's where floats allow, and right where NumPyro's is clipped."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import biject_to, constraints

from ptx.simplex import LogStickBreaking, bijection

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(("x64", "tolerance"), [(False, 2e-6), (True, 2e-15)])
def test_it_is_numpyros_map(x64, tolerance):
    with jax.enable_x64(x64):
        ours, theirs = LogStickBreaking(), biject_to(constraints.simplex)
        x = jnp.asarray(RNG.normal(size=(20, 5)))
        y = ours(x)
        np.testing.assert_allclose(y, theirs(x), rtol=10 * tolerance)
        np.testing.assert_allclose(y.sum(-1), 1, rtol=tolerance)
        np.testing.assert_allclose(ours.inv(y), x, atol=10 * tolerance)
        jacobians = [t.log_abs_det_jacobian(x, y) for t in (ours, theirs)]
        np.testing.assert_allclose(*jacobians, rtol=10 * tolerance)
        np.testing.assert_allclose(ours(jnp.zeros(4)), 0.2, rtol=tolerance)


def test_small_entries_keep_their_digits_in_float32():
    """A stick that is used up at once leaves entries near 1e-30 to the others, at any place."""
    for place in range(4):
        small = np.logspace(-30, -8, 3)
        y = np.insert(small, place, 1.0)
        x = LogStickBreaking().inv(jnp.asarray(y, jnp.float32))
        np.testing.assert_allclose(LogStickBreaking()(x), y, rtol=1e-4)
    clipped = biject_to(constraints.simplex)(jnp.array([40.0, 0.0, 0.0]))
    assert clipped[1:].min() > 1e-8  # NumPyro's rest of the stick
    assert LogStickBreaking()(jnp.array([40.0, 0.0, 0.0]))[1:].max() < 1e-17


def test_the_density_of_a_dirichlet_falls_off_at_every_end():
    """log p + log |det| is linear in x far out, with a slope of its own concentration, and never flat or NaN."""
    with jax.enable_x64(True):
        alpha = jnp.array([0.1, 0.3, 0.7])
        bijection_ = LogStickBreaking()

        def density(x):
            y = bijection_(x)
            return dist.Dirichlet(alpha).log_prob(y) + bijection_.log_abs_det_jacobian(x, y)

        for x, slope in (
            ([-60.0, 0.0], [0.1, None]),
            ([60.0, 0.0], [-1.0, None]),  # the rest is shared by 0.3 and 0.7
            ([0.0, -60.0], [None, 0.3]),
            ([0.0, 60.0], [None, -0.7]),
        ):
            found = jax.grad(density)(jnp.array(x))
            for axis in range(2):
                if slope[axis] is not None:
                    assert float(found[axis]) == pytest.approx(slope[axis], rel=1e-6)
    for far in (-1e3, -100.0, 100.0, 1e3):  # beyond the smallest float32
        x = jnp.array([far, -far])
        y = bijection_(x)
        value = dist.Dirichlet(jnp.array([0.1, 0.3, 0.7])).log_prob(y) + bijection_.log_abs_det_jacobian(x, y)
        assert np.isfinite(value)
        assert value < -5
        assert np.isfinite(jax.grad(lambda v: jnp.sum(jnp.log(bijection_(v))))(x)).all()


def test_other_supports_are_numpyros():
    several = dist.Dirichlet(jnp.ones(3)).expand([2]).to_event(1).support
    assert isinstance(bijection(several).base_transform, LogStickBreaking)
    assert bijection(several).inverse_shape((2, 3)) == (2, 2)
    for support in (constraints.positive, constraints.real_vector, constraints.ordered_vector):
        assert type(bijection(support)) is type(biject_to(support))
