"""Compiled code sees what a program reads from outside."""

from functools import partial

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import ptx
from ptx.current import current
from ptx.inference import Prior

SCALE = 1.0
DATA = (np.zeros(6), np.full(6, 5.0))


def reads_a_global(inputs, targets=None):
    w = numpyro.sample("w", dist.Normal(0, scale()))
    with numpyro.plate("rows", inputs.shape[0]):
        numpyro.sample("y", dist.Normal(w, 1.0), obs=targets)


def scale():
    return SCALE


class Holder:
    def __init__(self):
        self.scale = 1.0

    def __call__(self, inputs, targets=None, factor=1.0):
        w = numpyro.sample("w", dist.Normal(0, factor * self.scale))
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("y", dist.Normal(w, 1.0), obs=targets)


def sd(model):
    return ptx.infer(0, model, DATA, Prior(num_draws=400), progress=False).draws["w"].std()


def test_a_changed_global_is_seen(monkeypatch):
    assert sd(reads_a_global) == pytest.approx(1.0, rel=0.2)
    monkeypatch.setattr(__import__("sys").modules[__name__], "SCALE", 0.01)
    assert sd(reads_a_global) == pytest.approx(0.01, rel=0.2)


def test_a_changed_attribute_is_seen():
    holder = Holder()
    assert sd(holder) == pytest.approx(1.0, rel=0.2)
    holder.scale = 0.01
    assert sd(holder) == pytest.approx(0.01, rel=0.2)


class Settings:
    scale = 1.0
    many = [1.0]  # noqa: RUF012


PLAIN = Settings()


def reads_a_class(inputs, targets=None):
    w = numpyro.sample("w", dist.Normal(0, Settings.scale * PLAIN.many[0]))
    with numpyro.plate("rows", inputs.shape[0]):
        numpyro.sample("y", dist.Normal(w, 1.0), obs=targets)


def test_a_changed_class_object_or_list_is_seen(monkeypatch):
    assert sd(reads_a_class) == pytest.approx(1.0, rel=0.2)
    monkeypatch.setattr(Settings, "scale", 0.01)
    assert sd(reads_a_class) == pytest.approx(0.01, rel=0.2)
    monkeypatch.setattr(PLAIN, "many", [100.0], raising=False)
    assert sd(reads_a_class) == pytest.approx(1.0, rel=0.2)
    PLAIN.many[0] = 1000.0
    assert sd(reads_a_class) == pytest.approx(10.0, rel=0.2)


def test_closures_partials_and_arrays_count_by_value():
    def closed(value):
        def inner(inputs, targets=None):
            return value

        return inner

    for before, after in ((1.0, 2.0), ("a", "b"), ((1, 2), (1, 3)), ({"k": 1}, {"k": 2})):
        inner = closed(before)
        first = current(inner)
        assert first == current(inner)
        inner.__closure__[0].cell_contents = after
        assert first != current(inner)
    array = np.zeros(3)
    first = current(closed(array))
    array[0] = 1
    assert first.reads != current(closed(array)).reads
    model = partial(Holder(), factor=2.0)
    assert current(model) == current(model)


def test_models_that_are_equal_by_value_stay_as_they_are():
    network = ptx.models.MLP(num_features=2, num_outputs=1)
    model = ptx.models.bayesian(
        network, prior=ptx.models.priors.normal, likelihood=ptx.models.likelihoods.normal
    )
    assert current(model) is model
