"""NUTS against exact answers: closed forms and the posteriors of posteriordb."""

import jax
import numpy as np
import pytest
from gates import closed_form, posteriordb
from gates.z_scores import faults, r_hats

import ptx
from ptx.inference import NUTS

# z of every mean and sd; over the models below the maxima are near 3 when all is right.
LIMIT_FLOAT32, LIMIT_FLOAT64 = 5.0, 4.5
LEAST_ESS = 3500  # sees a bias of 0.08 sd in a mean and of 6 % in an sd

pytestmark = pytest.mark.filterwarnings("ignore:NUTS. .*divergent trajectory:RuntimeWarning")


def draw(problem, engine, seed=0):
    """Quantities of the reference, (chain, draw, K), and the posterior."""
    posterior = ptx.infer(seed, problem.model, problem.data, engine, progress=False)
    return problem.quantities(posterior.constrained()), posterior


def few_divergences(posterior):
    """At most one draw in 500: some of eight schools' many draws diverge when all is well."""
    return posterior.statistics["diverging"].mean() < 0.002


QUICK = {
    "blr_known_sigma": (closed_form.PROBLEMS["blr_known_sigma"], NUTS(num_draws=1500)),
    "blr_nig": (closed_form.PROBLEMS["blr_nig"], NUTS(num_draws=1800)),
    "beta_bernoulli": (closed_form.PROBLEMS["beta_bernoulli"], NUTS(num_draws=3000)),
    "radon_pooled": (posteriordb.load("radon_pooled"), NUTS(num_draws=2000)),
    "eight_schools": (posteriordb.load("eight_schools_noncentered"), NUTS(num_draws=2500)),
    "kidscore_momhsiq": (posteriordb.load("kidscore_momhsiq"), NUTS(num_draws=1300, dense_mass=True)),
}


@pytest.mark.parametrize("name", QUICK)
def test_quick(name):
    problem, engine = QUICK[name]
    draws, posterior = draw(problem, engine)
    assert not faults(draws, problem.reference, LIMIT_FLOAT32, LEAST_ESS)
    assert few_divergences(posterior)


# Draws of each of four chains that bring the smallest effective size to about 4,000.
POSTERIORDB = {
    "arK": NUTS(num_draws=2200),
    "dogs": NUTS(num_draws=3400),
    "earn_height": NUTS(num_draws=1200, dense_mass=True),
    "eight_schools_noncentered": NUTS(num_draws=2200),
    "gp_regr": NUTS(num_draws=1600),
    "kidscore_momhsiq": NUTS(num_draws=3600),
    "kidscore_interaction": NUTS(num_draws=1200, dense_mass=True),
    "low_dim_gauss_mix": NUTS(num_draws=1600),
    "mesquite": NUTS(num_draws=1300, dense_mass=True),
    "nes": NUTS(num_draws=1000, dense_mass=True),
    "radon_pooled": NUTS(num_draws=2000),
    "blr": NUTS(num_draws=6500),
}


def test_every_posterior_has_a_gate():
    assert set(POSTERIORDB) == set(posteriordb.PROGRAMS) == set(posteriordb.FILES)
    assert len(POSTERIORDB) == 12


@pytest.mark.slow
@pytest.mark.parametrize("name", POSTERIORDB)
def test_posteriordb(name):
    problem = posteriordb.load(name)
    with jax.enable_x64(True):
        draws, posterior = draw(problem, POSTERIORDB[name])
    assert posterior.draws[posterior.target.sites[0].name].dtype == np.float64
    assert not faults(draws, problem.reference, LIMIT_FLOAT64, LEAST_ESS)
    assert few_divergences(posterior)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["earn_height", "mesquite", "nes"])
def test_data_far_from_unit_scale_in_float32(name):
    """Means from 1e3 to 6e4 and log densities near -1e4: the hardest of the twelve for single precision."""
    problem = posteriordb.load(name)
    draws, _ = draw(problem, POSTERIORDB[name], seed=1)
    assert not faults(draws, problem.reference, LIMIT_FLOAT32, LEAST_ESS)


@pytest.mark.slow
def test_banana():
    """Its ridge is 200 times as long as it is wide: at an acceptance of 0.8 draws diverge and sds come out short."""
    problem = closed_form.PROBLEMS["banana"]
    engine = NUTS(num_draws=20_000, num_warmup=2000, target_acceptance_rate=0.99)
    with jax.enable_x64(True):
        draws, posterior = draw(problem, engine)
    assert not faults(draws, problem.reference, LIMIT_FLOAT64, LEAST_ESS)
    assert few_divergences(posterior)
    skewness = ((draws[..., 1] - draws[..., 1].mean()) ** 3).mean() / draws[..., 1].std() ** 3
    assert skewness == pytest.approx(closed_form.EXACT["banana"]["skew_x1"], rel=0.15)


@pytest.mark.slow
def test_far_modes_are_reported():
    """Chains start on both sides and none crosses: means may look right, R-hat must not."""
    problem = closed_form.PROBLEMS["mixture_2d_far"]
    sides = np.array([-6.0, 6.0, 5.0, -7.0])
    start = {"x": np.stack([sides, np.zeros(4)], 1)}
    engine = NUTS(num_draws=500, num_warmup=300)
    posterior = ptx.infer(0, problem.model, problem.data, engine, init=start, progress=False)
    draws = problem.quantities(posterior.constrained())
    assert (np.sign(draws[..., 0]) == np.sign(sides)[:, None]).all()
    assert r_hats(draws)[0] > 1.5
    assert any("R-hat" in fault for fault in faults(draws, problem.reference, LIMIT_FLOAT64))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_funnel_of_centred_eight_schools_is_reported():
    problem = posteriordb.load("eight_schools_noncentered")
    model = posteriordb.eight_schools_centred
    posterior = ptx.infer(0, model, problem.data, NUTS(num_draws=1000), progress=False)
    assert posterior.statistics["diverging"].sum() > 20
    assert any("divergent" in finding for finding in posterior.findings)
    assert np.max(r_hats(np.log(posterior.constrained()["tau"])[..., None])) > 1.01
