"""Negative controls: what must fail the gates, each on a target where its expected z exceeds 8."""

import numpy as np
import pytest
from gates import closed_form
from gates.z_scores import faults, z_scores

import ptx
from ptx.inference import HMC, NUTS

LIMIT = 5.0


def draw(problem, engine):
    posterior = ptx.infer(0, problem.model, problem.data, engine, progress=False)
    return problem.quantities(posterior.constrained())


@pytest.mark.parametrize("engine", [NUTS(num_draws=2500), HMC(num_draws=2500)], ids=["NUTS", "HMC"])
@pytest.mark.parametrize("control", closed_form.WRONG)
def test_a_wrong_density_fails(control, engine):
    """Expected z with 4,000 draws: likelihood x 0.8 about 10, prior dropped about 25, Jacobian dropped about 17."""
    problem = closed_form.WRONG[control]
    draws = draw(problem, engine)
    assert z_scores(draws, problem.reference).largest > 8
    assert any(fault.startswith("z of") for fault in faults(draws, problem.reference, LIMIT))


def test_wrong_draws_of_a_right_density_fail():
    problem = closed_form.PROBLEMS["blr_known_sigma"]
    draws = draw(problem, NUTS(num_draws=1500))
    assert not faults(draws, problem.reference, LIMIT)
    wide = draws.mean((0, 1)) + 1.2 * (draws - draws.mean((0, 1)))
    assert z_scores(wide, problem.reference).largest > 8
    assert faults(wide, problem.reference, LIMIT)
    copied = np.repeat(draws[:1], 4, 0)
    assert any("copies" in fault for fault in faults(copied, problem.reference, LIMIT))
