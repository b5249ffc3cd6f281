"""HMC against exact answers: closed forms and a subset of posteriordb."""

import jax
import numpy as np
import pytest
from gates import closed_form, posteriordb
from gates.z_scores import faults, r_hats

import ptx
from ptx.inference import HMC

LIMIT_FLOAT32, LIMIT_FLOAT64 = 5.0, 4.5
LEAST_ESS = 3500

pytestmark = pytest.mark.filterwarnings("ignore:HMC. .*divergent trajectory:RuntimeWarning")


def draw(problem, engine, seed=0):
    posterior = ptx.infer(seed, problem.model, problem.data, engine, progress=False)
    return problem.quantities(posterior.constrained()), posterior


@pytest.mark.parametrize("name", ["blr_known_sigma", "blr_nig"])
def test_quick(name):
    problem = closed_form.PROBLEMS[name]
    draws, _ = draw(problem, HMC(num_draws=2000))
    assert not faults(draws, problem.reference, LIMIT_FLOAT32, LEAST_ESS)


# Draws of each of four chains; a longer trajectory where the posterior is correlated.
SUBSET = {
    "eight_schools_noncentered": HMC(num_draws=2500),
    "gp_regr": HMC(num_draws=2000),
    "kidscore_momhsiq": HMC(num_draws=2500, dense_mass=True),
    "low_dim_gauss_mix": HMC(num_draws=2000),
    "radon_pooled": HMC(num_draws=2500),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBSET)
def test_posteriordb(name):
    problem = posteriordb.load(name)
    with jax.enable_x64(True):
        draws, posterior = draw(problem, SUBSET[name])
    assert not faults(draws, problem.reference, LIMIT_FLOAT64, LEAST_ESS)
    assert posterior.statistics["diverging"].mean() < 0.002


@pytest.mark.slow
@pytest.mark.parametrize("name", ["beta_bernoulli", "banana"])
def test_closed_form(name):
    problem = closed_form.PROBLEMS[name]
    long = HMC(
        num_draws=4000, num_warmup=2000, target_acceptance_rate=0.95, trajectory_length=6, max_leapfrog=500
    )
    with jax.enable_x64(True):
        draws, _ = draw(problem, long if name == "banana" else HMC(num_draws=2500))
    assert not faults(draws, problem.reference, LIMIT_FLOAT64, LEAST_ESS)


@pytest.mark.slow
def test_far_modes_are_reported():
    problem = closed_form.PROBLEMS["mixture_2d_far"]
    start = {"x": np.array([[-6.0, 0], [6, 0], [5, 0], [-7, 0]])}
    engine = HMC(num_draws=500, num_warmup=300)
    posterior = ptx.infer(0, problem.model, problem.data, engine, init=start, progress=False)
    assert r_hats(problem.quantities(posterior.constrained()))[0] > 1.5
