"""Held-out comparison against numbers worked out by hand."""

import numpy as np
import pytest

from ptx.diagnostics import log_predictive_density, mean_nll, paired_difference

HALF, QUARTER, EIGHTH = np.log([0.5, 0.25, 0.125])


def as_draws(rows, shape=(1, 1)):
    """The same log density of each row at every draw."""
    return np.broadcast_to(np.asarray(rows), (*shape, len(rows)))


def test_density_is_averaged_not_its_logarithm():
    draws = np.log([[[0.1, 0.4], [0.3, 0.4]], [[0.5, 0.1], [0.7, 0.1]]])  # two chains, two draws, two rows
    assert log_predictive_density(draws) == pytest.approx(np.log([0.4, 0.25]))
    assert log_predictive_density(draws).mean() == pytest.approx(-mean_nll(draws))


def test_density_survives_where_the_exponential_does_not():
    assert log_predictive_density([[[-2000.0], [-2000.0 + np.log(3)]]]) == pytest.approx(
        [-2000.0 + np.log(2)]
    )


def test_difference_and_its_standard_error_by_hand():
    found = paired_difference(as_draws([HALF, HALF, QUARTER]), as_draws([QUARTER, HALF, QUARTER], (2, 3)))
    # differences (log 2, 0, 0): mean log 2 / 3, sample variance log(2)^2 / 3
    assert found.difference == pytest.approx(np.log(2) / 3)
    assert found.standard_error == pytest.approx(np.log(2) / 3)
    assert found.first == pytest.approx(np.log(0.5 * 0.5 * 0.25) / 3)
    assert found.second == pytest.approx(np.log(0.25 * 0.5 * 0.25) / 3)
    assert found.num_rows == 3
    assert str(found) == "+0.2310 nats a row, standard error 0.2310, over 3 rows"


def test_pairing_cancels_what_is_hard_for_both():
    rng = np.random.default_rng(0)
    difficulty = rng.normal(size=400, scale=5)
    noise = 0.01 * rng.normal(size=400)
    paired = paired_difference(as_draws(difficulty + 0.1 + noise), as_draws(difficulty))
    unpaired = paired_difference(as_draws(difficulty + 0.1 + noise), as_draws(rng.permutation(difficulty)))
    assert paired.difference == pytest.approx(0.1, abs=4 * paired.standard_error)
    assert paired.standard_error == pytest.approx(0.01 / 20, rel=0.2)
    assert unpaired.standard_error > 100 * paired.standard_error


def test_sides_swap_sign_and_repeated_rows_shrink_the_error():
    first, second = as_draws([HALF, QUARTER, EIGHTH]), as_draws([QUARTER, QUARTER, HALF])
    there, back = paired_difference(first, second), paired_difference(second, first)
    assert there.difference == pytest.approx(-back.difference)
    assert there.standard_error == pytest.approx(back.standard_error)
    many = paired_difference(np.tile(first, 100), np.tile(second, 100))
    assert many.difference == pytest.approx(there.difference)
    assert many.standard_error == pytest.approx(
        there.standard_error * np.sqrt(2 / 299)
    )  # (3 - 1) / (300 - 1)


def test_one_row_has_no_standard_error():
    found = paired_difference(as_draws([HALF]), as_draws([QUARTER]))
    assert found.standard_error is None
    assert "n/a (one row)" in str(found)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (as_draws([HALF, HALF]), as_draws([HALF]), "2 rows against 1"),
        (np.zeros((2, 3)), as_draws([HALF]), r"shape \(2, 3\)"),
        (np.zeros((1, 2, 3, 4)), as_draws([HALF]), "tokens"),
        (np.zeros((1, 0, 3)), as_draws([HALF]), r"shape \(1, 0, 3\)"),
        (as_draws([HALF, np.nan]), as_draws([HALF, HALF]), r"nan at index \(0, 0, 1\)"),
        (as_draws([HALF, np.inf]), as_draws([HALF, HALF]), "inf at index"),
        (as_draws([HALF, HALF]), as_draws([HALF, -np.inf]), "second: every draw gives row 1 density 0"),
    ],
)
def test_what_cannot_be_compared_is_refused(first, second, message):
    with pytest.raises(ValueError, match=message):
        paired_difference(first, second)


def test_density_zero_in_some_draws_counts():
    draws = np.log(np.array([[[0.5], [1e-300]]])) * [[[1.0], [np.inf]]]  # log 0.5 and -inf
    assert log_predictive_density(draws) == pytest.approx([np.log(0.25)])
