"""R-hat of progress against ArviZ's, and where there is none."""

import math

import numpy as np
import pytest
from arviz_stats.base.array import array_stats

from ptx.rhat import split_rhat


def series(kind, num_chains, num_draws):
    """Values (chain, draw) of one kind."""
    rng = np.random.default_rng(7)
    values = rng.normal(size=(num_chains, num_draws))
    return {
        "independent": values,
        "another place": values + np.arange(num_chains)[:, None],
        "another scale": values * (1 + 4 * np.arange(num_chains)[:, None]),
        "drifting": values + np.linspace(0, 3, num_draws),
        "tied": np.round(values),
        "heavy tails": rng.standard_cauchy(size=(num_chains, num_draws)),
        "float32": values.astype(np.float32),
    }[kind]


@pytest.mark.parametrize("shape", [(2, 4), (2, 5), (4, 101), (3, 250)])
@pytest.mark.parametrize(
    "kind",
    ["independent", "another place", "another scale", "drifting", "tied", "heavy tails", "float32"],
)
def test_agrees_with_arviz(kind, shape):
    values = series(kind, *shape)
    exact = values.astype(np.float64)  # ArviZ computes in the precision of its input, here and there
    expected = float(array_stats.rhat(exact, chain_axis=0, draw_axis=1))
    assert split_rhat(values) == pytest.approx(expected, rel=1e-12)


def test_tells_chains_that_disagree_from_chains_that_agree():
    assert split_rhat(series("independent", 4, 250)) < 1.02
    for kind in ("another place", "another scale", "drifting"):
        assert split_rhat(series(kind, 4, 250)) > 1.1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_have_no_r_hat(bad):
    values = series("independent", 2, 50)
    values[1, 3] = bad
    assert math.isnan(split_rhat(values))


def test_too_little_to_tell_is_nan():
    assert math.isnan(split_rhat(series("independent", 1, 50)))
    assert math.isnan(split_rhat(series("independent", 4, 3)))
    assert math.isnan(split_rhat(np.ones((2, 50))))
    assert math.isnan(split_rhat(np.empty((2, 0))))


def test_chains_that_stand_still_at_different_places_never_pass():
    assert split_rhat(np.repeat([[0.0], [1.0], [3.0]], 20, axis=1)) == math.inf
    assert split_rhat(np.repeat([[0.0], [1.0]], 20, axis=1)) == math.inf
