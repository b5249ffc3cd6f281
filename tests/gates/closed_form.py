"""Targets with exact answers, from `tests/references/closed_form.json`, and wrong versions of them.

Each has the same shape as a posteriordb problem: a program, its data and the moments of quantities of its sites.
"""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from gates.posteriordb import Problem, flat
from gates.z_scores import Reference
from numpyro import handlers

EXACT = json.loads((Path(__file__).parents[1] / "references" / "closed_form.json").read_text())
LINEAR = np.array(EXACT["blr_known_sigma"]["X"]), np.array(EXACT["blr_known_sigma"]["y"])
ONES = None, np.repeat([1, 0], [7, 4])
NOTHING = None, np.zeros(1)  # for densities without data: an observed site that says nothing of them


def known_noise(inputs, targets=None):
    """w ~ N(0, 2^2 I), y ~ N(X w, 0.7^2 I)."""
    w = numpyro.sample("w", dist.Normal(0, 2.0).expand([3]).to_event(1))
    with numpyro.plate("rows", inputs.shape[0]):
        numpyro.sample("y", dist.Normal(inputs @ w, 0.7), obs=targets)


def likelihood_too_weak(inputs, targets=None):
    """`known_noise` with its log-likelihood times 0.8."""
    w = numpyro.sample("w", dist.Normal(0, 2.0).expand([3]).to_event(1))
    with handlers.scale(scale=0.8):
        numpyro.sample("y", dist.Normal(inputs @ w, 0.7), obs=targets)


def learned_noise(inputs, targets=None):
    """s2 ~ InverseGamma(2, 1.5), w ~ N(0, 4 s2 I), y ~ N(X w, s2 I)."""
    s2 = numpyro.sample("s2", dist.InverseGamma(2.0, 1.5))
    w = numpyro.sample("w", dist.Normal(0, 2 * jnp.sqrt(s2)).expand([3]).to_event(1))
    with numpyro.plate("rows", inputs.shape[0]):
        numpyro.sample("y", dist.Normal(inputs @ w, jnp.sqrt(s2)), obs=targets)


def jacobian_dropped(inputs, targets=None):
    """`learned_noise` in log s2 without the Jacobian s2 of the exponential."""
    log_s2 = flat("log_s2")
    s2 = numpyro.deterministic("s2", jnp.exp(log_s2))
    numpyro.factor("s2_prior", dist.InverseGamma(2.0, 1.5).log_prob(s2))
    w = numpyro.sample("w", dist.Normal(0, 2 * jnp.sqrt(s2)).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(inputs @ w, jnp.sqrt(s2)), obs=targets)


def coin(inputs, targets=None):
    """p ~ Beta(2, 3), y ~ Bernoulli(p)."""
    p = numpyro.sample("p", dist.Beta(2.0, 3.0))
    with numpyro.plate("rows", targets.shape[0]):
        numpyro.sample("y", dist.Bernoulli(p), obs=targets)


def prior_dropped(inputs, targets=None):
    """`coin` with a flat prior on p."""
    p = numpyro.sample("p", dist.Uniform(0.0, 1.0))
    numpyro.sample("y", dist.Bernoulli(p).expand([targets.shape[0]]), obs=targets)


def banana(inputs, targets=None):
    """x0 ~ N(0, 10), x1 ~ N(0.03 (x0^2 - 100), 1)."""
    x0 = numpyro.sample("x0", dist.Normal(0, 10.0))
    numpyro.sample("x1", dist.Normal(0.03 * (x0**2 - 100), 1.0))
    numpyro.sample("nothing", dist.Normal(0, 1), obs=targets)


def far_modes(inputs, targets=None):
    """N((-6, 0), I) / 2 + N((6, 0), I) / 2."""
    centres = jnp.array([[-6.0, 0.0], [6.0, 0.0]])
    modes = dist.MultivariateNormal(centres, jnp.eye(2))
    numpyro.sample("x", dist.MixtureSameFamily(dist.Categorical(jnp.ones(2) / 2), modes))
    numpyro.sample("nothing", dist.Normal(0, 1), obs=targets)


def _moments(mean, sd):
    return Reference(np.atleast_1d(mean).astype(float), np.atleast_1d(sd).astype(float))


def _columns(*names):
    def quantities(values):
        parts = [values[name] if values[name].ndim == 3 else values[name][..., None] for name in names]
        return np.concatenate(parts, -1).astype(float)

    return quantities


def _noise_and_weights(values):
    s2 = values["s2"] if "s2" in values else np.exp(values["log_s2"])
    return _columns("w", "s2")({"w": values["w"], "s2": s2})


_KNOWN, _NIG = EXACT["blr_known_sigma"], EXACT["blr_nig"]
_KNOWN_MOMENTS = _moments(_KNOWN["post_mean"], np.sqrt(np.diag(_KNOWN["post_cov"])))
_NIG_MOMENTS = _moments([*_NIG["post_mean_w"], _NIG["mean_s2"]], [*_NIG["post_sd_w"], _NIG["sd_s2"]])
_COIN_MOMENTS = _moments(EXACT["beta_bernoulli"]["mean"], EXACT["beta_bernoulli"]["sd"])

PROBLEMS = {
    "blr_known_sigma": Problem(known_noise, LINEAR, _KNOWN_MOMENTS, _columns("w")),
    "blr_nig": Problem(learned_noise, LINEAR, _NIG_MOMENTS, _noise_and_weights),
    "beta_bernoulli": Problem(coin, ONES, _COIN_MOMENTS, _columns("p")),
    "banana": Problem(
        banana, NOTHING, _moments(EXACT["banana"]["mean"], EXACT["banana"]["sd"]), _columns("x0", "x1")
    ),
    "mixture_2d_far": Problem(
        far_modes,
        NOTHING,
        _moments(EXACT["mixture_2d_far"]["mean"], EXACT["mixture_2d_far"]["sd"]),
        _columns("x"),
    ),
}

# What must fail the gate of the problem of the same reference.
WRONG = {
    "likelihood x 0.8": Problem(likelihood_too_weak, LINEAR, _KNOWN_MOMENTS, _columns("w")),
    "prior dropped": Problem(prior_dropped, ONES, _COIN_MOMENTS, _columns("p")),
    "Jacobian dropped": Problem(jacobian_dropped, LINEAR, _NIG_MOMENTS, _noise_and_weights),
}
