"""Attention rows against quadrature: the bound never above the evidence, and NUTS over rows.

A causal transformer of one layer, one head and two tokens that reads the last token has one degree of freedom a row of
data: what the second token thinks of the first. So with fixed weights its evidence and its posterior are integrals over
one number.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats as st
from gates.z_scores import Reference, faults, z_scores
from models import reference

import ptx
from ptx.inference import NUTS
from ptx.models import Transformer, attention

NOISE, LIMIT = 0.25, 4.5
NETWORK = Transformer(
    num_features=2,
    max_length=2,
    num_layers=1,
    num_heads=1,
    width=4,
    mlp_width=4,
    num_outputs=1,
    causal=True,
    pooling="last",
    positions=None,
)
WEIGHTS = {name: jnp.asarray(w, jnp.float32) for name, w in reference.draw_weights(NETWORK, 4, 1.0).items()}
RNG = np.random.default_rng(8)
TOKENS = RNG.normal(size=(5, 2, 2))


def outputs(first):
    """Of each row, where its second token gives the first the probability `first`; shape (row,)."""

    def attend(scores, mask, layer):
        row = jnp.stack([first, 1 - first], -1)[:, None]
        return jnp.stack([jnp.broadcast_to(jnp.eye(2)[:1], row.shape), row], 2)

    return NETWORK(WEIGHTS, jnp.asarray(TOKENS, jnp.float32), attend)[:, 0]


TARGETS = np.asarray(NETWORK(WEIGHTS, jnp.asarray(TOKENS, jnp.float32))[:, 0]) + NOISE * RNG.normal(size=5)


@dataclass(frozen=True)
class Fixed:
    """y_n ~ N(network(weights, tokens_n), noise^2) with the weights known and the rows not; `tempered` weakens it."""

    rows: attention.dirichlet
    tempered: float = 1.0

    def __call__(self, inputs, targets=None):
        """Run the program."""
        attend = self.rows.start(1, 1, 4)
        mean = replace(NETWORK, attention=self.rows)(WEIGHTS, inputs, attend)[:, 0]
        with numpyro.plate("rows", inputs.shape[0]), numpyro.handlers.scale(scale=self.tempered):
            numpyro.sample("y", dist.Normal(mean, NOISE), obs=targets)


def quadrature(concentration, count=4000):
    """Log evidence, posterior mean and sd of `first` for each row, by midpoints of equal prior mass."""
    prior = st.beta(concentration, concentration)
    first = prior.ppf((np.arange(count) + 0.5) / count)
    each = jax.jit(jax.vmap(lambda p: outputs(jnp.full(5, p))))(jnp.asarray(first, jnp.float32))
    log_likelihood = st.norm(np.asarray(each, np.float64), NOISE).logpdf(TARGETS)
    weight = np.exp(log_likelihood - log_likelihood.max(0))
    mean = (weight * first[:, None]).sum(0) / weight.sum(0)
    variance = (weight * (first[:, None] - mean) ** 2).sum(0) / weight.sum(0)
    return np.log(weight.mean(0)) + log_likelihood.max(0), mean, np.sqrt(variance)


@jax.jit
def bounds(target, keys):
    return jax.vmap(lambda key: target.log_likelihood({}, None, key))(keys)


CONCENTRATIONS = [0.3, pytest.param(2.0, marks=pytest.mark.slow)]
SHARPNESS = [1.0, 10.0, 100.0]


@pytest.mark.parametrize("concentration", CONCENTRATIONS)
def test_the_averaged_bound_is_never_above_the_evidence(concentration):
    """Row by row, whatever the spread of q; and one with half of its KL would be."""
    evidence, above = quadrature(concentration)[0], 0.0
    for sharpness in SHARPNESS:
        rows = attention.dirichlet(concentration=concentration, sharpness=sharpness, floor=concentration)
        target = ptx.lower(Fixed(rows), (TOKENS, TARGETS), amortised=True)
        found = np.asarray(bounds(target, jax.random.split(jax.random.key(0), 8000)), np.float64)
        mean, error = found.mean(0), found.std(0) / np.sqrt(len(found))
        assert (mean - evidence < 4 * error).all(), sharpness
        kl = -target.halves({}).by_row["attention.probs.0"]
        above = max(above, np.max((mean + kl / 2 - evidence) / error))
    assert above > 8


def draws_of(model):
    posterior = ptx.infer(0, model, (TOKENS, TARGETS), NUTS(num_draws=2500), progress=False)
    rows = posterior.constrained()["attention.probs.0"]
    assert (rows[..., 0, 0] == 1).all()
    return rows[..., 0, 1, 0].astype(np.float64)


@pytest.mark.parametrize("concentration", CONCENTRATIONS)
def test_nuts_over_rows_has_the_posterior_of_quadrature(concentration):
    """In log-gamma coordinates; and a posterior whose likelihood is too weak is refused by the same gate."""
    _, mean, sd = quadrature(concentration)
    rows, want = attention.dirichlet(concentration=concentration), Reference(mean, sd)
    assert not faults(draws_of(Fixed(rows)), want, LIMIT, 1500)
    weak = draws_of(Fixed(rows, tempered=0.6))
    assert z_scores(weak, want).largest > 8
    assert any(fault.startswith("z of") for fault in faults(weak, want, LIMIT))
