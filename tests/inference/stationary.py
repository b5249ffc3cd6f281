"""A Gaussian target for stochastic-gradient samplers, the exact laws of their full-batch chains, and the gate.

On a Gaussian density of precision P a chain is linear, `s <- A s + noise` of covariance Q, and its stationary
covariance solves `S = A S A' + Q`: no approximation, so the gates hold at any step size.
"""

import json
from pathlib import Path

import numpy as np
from gates.z_scores import Reference, z_scores
from models_for_tests import regression
from scipy.linalg import solve_discrete_lyapunov

import ptx

CLOSED_FORM = json.loads((Path(__file__).parents[1] / "references" / "closed_form.json").read_text())
EXACT = CLOSED_FORM["blr_known_sigma"]  # regression with w ~ N(0, 2^2 I) and noise 0.7
DATA = np.array(EXACT["X"]), np.array(EXACT["y"])
MEAN = np.array(EXACT["post_mean"])
PRECISION = np.linalg.inv(EXACT["post_cov"])
PASS, FAIL = 5.0, 8.0  # |z| of a right sampler stays below the first, of a broken one above the second


def sgld_law(step_size, temperature=1.0, precision=PRECISION):
    """Covariance of `u <- u - eps P u + N(0, 2 eps T)`."""
    identity = np.eye(len(precision))
    return solve_discrete_lyapunov(identity - step_size * precision, 2 * step_size * temperature * identity)


def sghmc_law(step_size, friction, temperature=1.0, precision=PRECISION):
    """Covariance of u in `u' = u + h r; r' = (1 - h c) r - h P u' + N(0, 2 c h T)`."""
    identity, zero = np.eye(len(precision)), np.zeros_like(precision)
    drift = np.block([[identity, zero], [-step_size * precision, (1 - step_size * friction) * identity]])
    move = np.block([[identity, step_size * identity], [zero, identity]])
    noise = np.block([[zero, zero], [zero, 2 * friction * step_size * temperature * identity]])
    # r' needs the new u: [u', r'] = drift' [u', r], so the chain's matrix is the product below.
    return solve_discrete_lyapunov(drift @ move, noise)[: len(precision), : len(precision)]


def sample(engine, model=regression, data=DATA, seed=0):
    """Draws of w from 64 vectorised chains: cheap steps, and an effective sample size that needs few of them."""
    posterior = ptx.infer(seed, model, data, engine, progress=False, chain_layout="vectorised")
    return posterior.draws["w"].astype(float)


def largest_z(draws, mean, covariance):
    """Largest |z| over means, sds and covariances; those as sds of sums of two coordinates."""
    size = len(mean)
    pairs = [np.eye(size)[i] + np.eye(size)[j] for i in range(size) for j in range(i)]
    quantities = np.stack([*np.eye(size), *pairs])
    sds = np.sqrt(np.einsum("qi,ij,qj->q", quantities, covariance, quantities))
    return z_scores(draws @ quantities.T, Reference(quantities @ mean, sds)).largest
