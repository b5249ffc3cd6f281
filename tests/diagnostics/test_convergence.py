"""What the convergence table says of chains that agree, disagree, stand still, or are too few."""

import warnings

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import ptx
from ptx import inference, models
from ptx.diagnostics import check_convergence, convergence_table
from ptx.models import likelihoods, priors

NOISE = np.random.default_rng(0).normal(size=(4, 500, 3))


def verdict(values, **settings):
    (row,) = check_convergence(values, **settings)
    return row


def test_independent_draws_pass():
    row = verdict(NOISE)
    assert row.passed
    assert 0.99 < row.r_hat < 1.01
    assert row.ess_bulk > 1500
    assert row.ess_tail > 1500


def test_numbers_are_the_worst_of_all_values():
    import arviz_stats

    values = np.cumsum(NOISE, axis=1) * np.array([0, 0, 1]) + NOISE
    row = verdict(values)
    worst = arviz_stats.base.array_stats.rhat(values[..., 2], chain_axis=0, draw_axis=1)
    np.testing.assert_allclose(row.r_hat, worst)
    assert row.r_hat > 1.1


def shifted():
    values = NOISE.copy()
    values[2] += 1
    return values


def stuck():
    values = NOISE.copy()
    values[1, :, 2] = 0.3
    return values


def stuck_everywhere():
    return np.broadcast_to(np.arange(4.0)[:, None], (4, 500))


def broken():
    values = NOISE.copy()
    values[3, 7, 1] = np.nan
    return values


BAD = {
    "shifted chain": (shifted, "R-hat above 1.01"),
    "stuck chain": (stuck, "stuck: 1 values never move in chain 1"),
    "all stuck apart": (stuck_everywhere, "stuck: 1 values never move in chain 0, 1, 2, 3"),
    "nan": (broken, "1 of 3 values have draws that are not finite"),
    "few": (lambda: NOISE[:, :60], "effective sample size below 400"),
}


@pytest.mark.parametrize(("values", "reason"), BAD.values(), ids=BAD)
def test_what_must_not_pass(values, reason):
    row = verdict(values())
    assert row.verdict == "not converged"
    assert not row.passed
    assert reason in row.reason


@pytest.mark.parametrize(
    ("values", "expected", "reason"),
    [
        (np.ones((4, 500)), "constant", "no value ever moves"),
        (NOISE[:1], "n/a", "one chain"),
        (NOISE[:, :1], "n/a", "1 draws a chain"),
        (NOISE[:, :3], "n/a", "3 draws a chain"),
    ],
    ids=["constant", "one chain", "one draw", "three draws"],
)
def test_what_cannot_be_told(values, expected, reason):
    row = verdict(values)
    assert (row.verdict, row.passed, row.r_hat) == (expected, False, None)
    assert reason in row.reason
    line = convergence_table((row,)).splitlines()[1]
    assert expected in line
    assert "nan" not in line


def test_constant_values_among_others_are_left_aside():
    values = NOISE.copy()
    values[..., 0] = 1.0
    assert verdict(values).passed


def test_a_count_may_stay_put_in_one_chain():
    counts = np.zeros((4, 500), int)
    counts[1, 5] = 1
    assert "stuck" not in verdict(counts).reason


def test_of_many_values_some_are_looked_at():
    values = np.random.default_rng(1).normal(size=(2, 400, 10, 50))
    row = verdict(values, max_values=7)
    assert (row.num_values, row.num_checked) == (500, 7)
    assert "7 of 500" in row.reason
    values[0, :, 0, 0] += 5  # the first and the last are among them
    assert not verdict(values, max_values=7).passed


def test_named_dimensions_are_taken_by_name():
    import xarray

    turned = xarray.DataArray(NOISE.transpose(2, 1, 0), dims=("unit", "draw", "chain"))
    np.testing.assert_allclose(verdict(turned).r_hat, verdict(NOISE).r_hat)
    assert check_convergence(xarray.Dataset({"a": turned}))[0].name == "a"
    with pytest.raises(ValueError, match="expected dimensions chain and draw"):
        check_convergence(xarray.DataArray(NOISE, dims=("a", "b", "c")))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (NOISE.swapaxes(0, 1), r"shape \(500, 4, 3\) has more chains than draws"),
        (np.zeros(5), r"expected an array of shape \(chain, draw"),
        (np.zeros((2, 0)), r"expected an array of shape \(chain, draw"),
        ({"a": NOISE, "b": NOISE[:2]}, r"different \(chain, draw\)"),
    ],
    ids=["transposed", "one axis", "empty", "mixed"],
)
def test_bad_shapes_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        check_convergence(values)


def test_a_predictive_is_judged_by_its_probabilities():
    inputs = np.random.default_rng(2).normal(size=(8, 2))
    model = models.bayesian(
        models.MLP(num_features=2, num_outputs=2, hidden=()), priors.normal(), likelihoods.categorical
    )
    engine = inference.Prior(num_draws=400, num_chains=2)
    posterior = ptx.infer(0, model, (inputs, (inputs[:, 0] > 0).astype(int)), engine, progress=False)
    (row,) = check_convergence(ptx.predict(0, posterior, inputs, simulated=False))
    assert row.name == "targets.probabilities"
    assert row.passed


def eight_schools(centred):
    """theta ~ N(mu, tau): the centred form has a funnel that NUTS cannot enter."""

    def schools(inputs, targets=None):
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        with numpyro.plate("school", inputs.shape[0]):
            if centred:
                theta = numpyro.sample("theta", dist.Normal(mu, tau))
            else:
                theta = mu + tau * numpyro.sample("z", dist.Normal(0, 1))
            numpyro.sample("y", dist.Normal(theta, inputs), obs=targets)

    return schools


@pytest.mark.parametrize("centred", [True, False], ids=["centred", "non-centred"])
def test_eight_schools(centred):
    data = (np.array([15.0, 10, 16, 11, 9, 11, 10, 18]), np.array([28.0, 8, -3, 7, -1, 1, 18, 12]))
    engine = inference.NUTS(
        num_draws=1000, num_warmup=1000, num_chains=4, target_acceptance_rate=0.8 if centred else 0.99
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        posterior = ptx.infer(1, eight_schools(centred), data, engine, progress=False)
    rows = check_convergence(posterior.constrained())
    divergent = [finding for finding in posterior.findings if "divergent" in finding]
    if centred:
        assert divergent
        assert not all(row.passed for row in rows)
    else:
        assert not divergent
        assert all(row.passed for row in rows), convergence_table(rows)
