"""What tells models apart: the density, not the address of an object."""

import functools
import re

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import ptx
from ptx.store import fingerprint

RNG = np.random.default_rng(0)
DATA = (RNG.normal(size=(50, 2)), RNG.normal(size=50))


def regression(inputs, targets=None, scale=1.0, shift=0.0, bound=100.0):
    w = numpyro.sample("w", dist.Normal(0, scale).expand([2]).to_event(1))
    with numpyro.plate("rows", inputs.shape[0]):
        numpyro.sample("y", dist.Normal(jnp.clip(inputs @ w + shift, -bound, bound), 1.0), obs=targets)


class Model:
    def __init__(self, scale=1.0):
        self.scale = scale

    def __call__(self, inputs, targets=None):
        regression(inputs, targets, self.scale)


def my_prior(weight):
    return dist.Normal(0, 1).expand(weight.shape).to_event(len(weight.shape))


def network_model():
    network = ptx.models.MLP(num_features=2, num_outputs=1)
    return ptx.models.bayesian(network, prior=my_prior, likelihood=ptx.models.likelihoods.normal)


def of(model):
    return fingerprint.of_model(ptx.lower(model, DATA))


@pytest.mark.parametrize("make", [Model, lambda: functools.partial(regression, scale=2.0), network_model])
def test_no_address_is_part_of_a_name(make):
    found = of(make())
    assert not re.search("0x[0-9a-f]{4}", found["name"])
    assert fingerprint.differences(found, of(make())) == []


@pytest.mark.parametrize(
    "changes", [{"scale": 1.001}, {"shift": 0.003}, {"bound": 3.0}, {"scale": 0.5, "shift": 1.0}]
)
def test_small_changes_of_the_density_are_seen(changes):
    before, after = (of(functools.partial(regression, **options)) for options in ({}, changes))
    before["name"] = after["name"]
    assert fingerprint.differences(before, after)


def test_a_mean_that_is_at_its_best_is_told_from_one_beside_it():
    w = DATA[1].mean()

    def at(mean):
        def model(inputs, targets=None):
            numpyro.sample("v", dist.Normal(0, 1))
            with numpyro.plate("rows", inputs.shape[0]):
                numpyro.sample("y", dist.Normal(mean, 1.0), obs=targets)

        return of(model)

    assert fingerprint.differences(at(w), at(w + 0.003))


def test_long_texts_are_shown_where_they_part():
    (text,) = fingerprint.differences("a" * 500 + "b", "a" * 500 + "c", "model.name")
    assert "ab'" in text
    assert "ac'" in text
    assert fingerprint.listed([str(i) for i in range(20)]).endswith("7; and 12 more")
