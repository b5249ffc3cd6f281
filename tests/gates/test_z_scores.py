"""The gate itself: right draws pass, and each fault it is there for is seen."""

import numpy as np
import pytest
from gates.z_scores import Reference, copied_chains, faults, z_scores

SHAPE = (4, 1000, 3)
EXACT = Reference(np.array([0.0, 5.0, -1.0]), np.array([1.0, 0.1, 3.0]))


def right(seed=0, shape=SHAPE):
    return EXACT.mean + EXACT.sd * np.random.default_rng(seed).normal(size=shape)


def persistent(draws, share):
    """Chains of the same law whose draws are correlated in time."""
    out = draws - EXACT.mean
    for draw in range(1, out.shape[1]):
        out[:, draw] = share * out[:, draw - 1] + np.sqrt(1 - share**2) * out[:, draw]
    return EXACT.mean + out


def test_right_draws_pass():
    assert not faults(right(), EXACT, limit=4.5, least_ess=3500)
    assert not faults(persistent(right(shape=(4, 5000, 3)), 0.6), EXACT, limit=4.5, least_ess=3500)


@pytest.mark.parametrize("share", [0.0, 0.8])
def test_z_scores_are_standard_normal(share):
    """Over 300 runs of 4 x 500 draws, with and without correlation in time."""
    runs = [persistent(right(seed, (4, 500, 3)), share) for seed in range(300)]
    z = np.array([z_scores(run, EXACT) for run in runs])  # (run, moment, quantity)
    assert np.abs(z.std((0, 2)) - 1).max() < 0.12
    assert np.abs(z.mean((0, 2))).max() < 0.25


def test_errors_of_the_reference_count():
    shifted = EXACT._replace(mean=EXACT.mean + 0.2 * EXACT.sd)
    assert z_scores(right(), shifted).largest > 8
    assert z_scores(right(), shifted._replace(mean_error=0.2 * EXACT.sd)).largest < 4.5
    wide = EXACT._replace(sd=1.2 * EXACT.sd)
    assert z_scores(right(), wide).largest > 8
    assert z_scores(right(), wide._replace(sd_error=0.2 * EXACT.sd)).largest < 4.5


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (EXACT.mean + 1.2 * (right() - EXACT.mean), "of sds"),
        (right() + 0.15 * EXACT.sd, "z of means"),
        (right()[[0, 0, 1, 2]], "chains 1 and 0 are copies"),
        (np.repeat(right()[:1], 4, 0), "chains 3 and 2 are copies"),
        (right()[:, :400], "ESS"),
        (right() + np.array([0, 0, 0, 0.5])[:, None, None] * EXACT.sd, "R-hat"),
        (np.where(np.arange(1000)[:, None] == 3, np.nan, right()), "z of means"),
        (np.where(np.arange(4)[:, None, None] == 2, EXACT.mean, right()), "R-hat"),
    ],
    ids=[
        "sd x 1.2",
        "shift",
        "a chain copied",
        "all chains copied",
        "few draws",
        "a chain apart",
        "NaN",
        "stuck",
    ],
)
def test_wrong_draws_fail(wrong, says):
    assert any(says in fault for fault in faults(wrong, EXACT, limit=4.5, least_ess=3500))


def test_chains_copied_in_one_quantity_or_for_a_half_are_seen():
    draws = right()
    draws[2, :, 1] = draws[0, :, 1]
    assert copied_chains(draws) == [(2, 0)]
    half = right()
    half[3, :501] = half[1, :501]
    assert copied_chains(half) == [(3, 1)]
    assert copied_chains(right()) == []
