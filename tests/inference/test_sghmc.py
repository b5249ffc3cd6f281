import jax
import numpy as np
import pytest
from blackjax.sgmcmc import diffusions
from inference.stationary import (
    DATA,
    FAIL,
    MEAN,
    PASS,
    PRECISION,
    largest_z,
    sample,
    sghmc_law,
    sgld_law,
)
from models_for_tests import broken_beyond, regression

import ptx
from ptx.inference import SGHMC, Polynomial

STEP_SIZE, FRICTION = 0.1, 4.0  # large: the discretisation shows, and the gate must know it


def chains(num_warmup=400, **settings):
    return SGHMC(1000, num_warmup, num_chains=64, thin=2, step_size=STEP_SIZE, friction=FRICTION, **settings)


def published_law(step_size, friction, temperature=1.0):
    """The docstring's `T (P - k P^2)^-1` with `k = h^2 / (4 - 2 h c)`."""
    k = step_size**2 / (4 - 2 * step_size * friction)
    return temperature * np.linalg.inv(PRECISION - k * PRECISION @ PRECISION)


@pytest.mark.parametrize("friction", [0.5, 4.0, 9.0])
def test_the_docstring_states_the_law_of_the_recursion(friction):
    for step_size in (0.01, 0.1):
        law = sghmc_law(step_size, friction, temperature=3.0)
        np.testing.assert_allclose(law, published_law(step_size, friction, 3.0), rtol=1e-8)


def test_friction_of_one_over_the_step_size_is_sgld():
    np.testing.assert_allclose(sghmc_law(0.05, 20.0, 2.0), sgld_law(0.05**2, 2.0), rtol=1e-8)


@pytest.mark.parametrize("temperature", [0.25, 1.0, 4.0])
def test_full_batch_chains_have_the_exact_stationary_law_at_every_temperature(temperature):
    draws = sample(chains(temperature=temperature))
    assert largest_z(draws, MEAN, sghmc_law(STEP_SIZE, FRICTION, temperature)) < PASS
    wrong = 4.0 if temperature == 1.0 else 1.0
    assert largest_z(draws, MEAN, sghmc_law(STEP_SIZE, FRICTION, wrong)) > FAIL
    assert largest_z(draws, MEAN, temperature * np.linalg.inv(PRECISION)) > FAIL  # the bias is seen too


def test_a_momentum_drawn_anew_at_each_step_is_seen(monkeypatch):
    right = diffusions.sghmc

    def forgetful(alpha):
        def step(rng_key, position, momentum, *rest):
            return right(alpha)(rng_key, position, jax.random.normal(rng_key, momentum.shape), *rest)

        return step

    monkeypatch.setattr(diffusions, "sghmc", forgetful)
    draws = sample(chains(num_warmup=401, temperature=0.25))  # settings of its own, so that it is compiled
    assert largest_z(draws, MEAN, sghmc_law(STEP_SIZE, FRICTION, 0.25)) > FAIL


def test_temperature_zero_is_gradient_ascent_with_momentum():
    engine = SGHMC(20, 0, num_chains=1, step_size=0.05, friction=6.0, temperature=0)
    u, r, path = np.array([1.0, -1.0, 2.0]), np.zeros(3), []
    posterior = ptx.infer(0, regression, DATA, engine, init={"w": u}, progress=False)
    for _ in range(20):
        u = u + 0.05 * r
        r = (1 - 0.05 * 6.0) * r - 0.05 * PRECISION @ (u - MEAN)
        path.append(u)
    np.testing.assert_allclose(posterior.draws["w"][0], path, rtol=1e-4, atol=1e-5)


def test_steps_into_a_non_finite_gradient_are_skipped_and_the_chain_turns_round():
    data = np.zeros((40, 1)), np.full(40, 0.05)  # they pull w to the edge of the finite density, 0.5
    engine = SGHMC(200, 100, num_chains=2, step_size=2e-2)
    with pytest.warns(RuntimeWarning, match="non-finite gradient"):
        posterior = ptx.infer(0, broken_beyond, data, engine, progress=False)
    skipped, draws = posterior.statistics["nonfinite"], posterior.draws["w"]
    stayed = draws[:, 1:] == draws[:, :-1]
    assert skipped.any()
    assert stayed[skipped[:, 1:]].all()
    assert (draws <= 0.5).all()
    assert np.isfinite(posterior.statistics["log_density"]).all()
    after = skipped[:, :-2] & ~skipped[:, 1:-1] & ~skipped[:, 2:]
    assert (draws[:, 1:-1] - draws[:, :-2])[after].max() < 0  # away from the edge


def test_repr_round_trips_with_a_schedule():
    engine = SGHMC(step_size=Polynomial(1e-2, 10.0, 0.3), friction=3.5, batch_size=8, temperature=0)
    assert eval(repr(engine)) == engine


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"friction": 0.0}, "friction must be positive"),
        ({"step_size": 0.2, "friction": 10.0}, r"friction \* step_size must be at most 1"),
        ({"step_size": Polynomial(0.2), "friction": 10.0}, r"friction \* step_size must be at most 1"),
        ({"temperature": -0.5}, "temperature must be zero or positive"),
    ],
)
def test_settings_out_of_range_are_refused(settings, match):
    with pytest.raises(ValueError, match=f"SGHMC: {match}"):
        SGHMC(**settings)
