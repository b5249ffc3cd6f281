"""Chains that can go no further are stopped, with step, site and last finite state; memory that runs out is halved."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from models_for_tests import broken_beyond, regression, regression_data

import ptx
from ptx import drive, inference
from ptx.inference import HMC, MAP, NUTS, SGHMC, SGLD, SVI, CyclicalSGLD
from ptx.watch import MOST_NONFINITE, Watch

START = {"a": 0.0, "w": np.zeros(3)}
STUCK = {
    "MAP": MAP(num_steps=2000, learning_rate=1.0),
    "SVI": SVI(num_steps=2000, num_draws=4, learning_rate=10.0),
    "SGLD": SGLD(num_warmup=500, num_draws=2000, step_size=0.1),
    "SGHMC": SGHMC(num_warmup=500, num_draws=2000, step_size=0.09),
    "CyclicalSGLD": CyclicalSGLD(num_draws=2000, num_cycles=4, step_size=0.1),
}


def walled(inputs, targets=None):
    """The gradient by `w` is NaN where the second weight is further than 0.001 from 0; that by `a` never is."""
    a = numpyro.sample("a", dist.Normal(0, 1))
    w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
    with numpyro.plate("rows", inputs.shape[0]):
        numpyro.sample("y", dist.Normal(inputs @ w + a, 1.0), obs=targets)
    wall = jnp.abs(w[1]) > 1e-3
    numpyro.factor("wall", jnp.where(wall, jnp.sqrt(jnp.where(wall, w[1] - w[1], 1.0)), 1.0))


def one_point(inputs, targets=None):
    """The density is finite where w is 0 and nowhere else."""
    w = numpyro.sample("w", dist.Normal(0, 1))
    numpyro.factor("hole", jnp.where(w == 0.0, 0.0, jnp.nan))
    with numpyro.plate("rows", inputs.shape[0]):
        numpyro.sample("y", dist.Normal(w, 1.0), obs=targets)


def fit(engine, model, data=None, **options):
    return ptx.infer(0, model, regression_data() if data is None else data, engine, progress=False, **options)


@pytest.mark.parametrize("name", STUCK)
@pytest.mark.filterwarnings("ignore:.*non-finite gradient and were skipped:RuntimeWarning")
def test_too_many_nonfinite_gradients_stop_the_run_and_name_step_and_site(name):
    engine = dataclasses.replace(STUCK[name], num_chains=2)
    match = rf"{name}: stopped at step \d+: chain [01] met 100 non-finite gradients in a row, at site 'w'"
    with pytest.warns(RuntimeWarning, match=match):
        posterior = fit(engine, walled, init=START, chunk_size=50)
    assert posterior.attributes["num_steps"] < engine.num_steps
    assert posterior.attributes["stopped"] == posterior.findings[0]
    for values in posterior.draws.values():
        assert len(values) == 2
        assert np.isfinite(values).all()
    if not engine.is_sampler:  # the last finite state
        assert np.abs(np.median(posterior.draws["w"][..., 1])) <= (1e-3 if name == "MAP" else 1.0)


@pytest.mark.filterwarnings("ignore:.*non-finite gradient and were skipped:RuntimeWarning")
def test_a_boundary_inside_the_bulk_does_not_stop_a_sampler():
    data = (np.zeros(4), np.ones(4))
    posterior = fit(SGLD(num_warmup=500, num_draws=1000, step_size=0.3), broken_beyond, data)
    assert posterior.history["nonfinite"].mean() > 0.05
    assert posterior.attributes["stopped"] is None
    assert posterior.num_draws == 1000


@pytest.mark.parametrize("engine", [NUTS(num_draws=300, num_warmup=300), HMC(num_draws=300, num_warmup=300)])
@pytest.mark.filterwarnings("ignore:.*divergent:RuntimeWarning", "ignore:.*never moved:RuntimeWarning")
def test_a_step_size_that_shrinks_for_ever_stops_the_run(engine):
    engine = dataclasses.replace(engine, num_chains=2)
    with pytest.warns(RuntimeWarning, match=r"stopped at step \d+: the step size of chain [01] shrank to"):
        posterior = fit(engine, one_point, init={"w": 0.0}, chunk_size=20)
    assert posterior.attributes["num_steps"] < engine.num_steps
    assert posterior.num_draws == 0


@pytest.mark.parametrize("name", STUCK)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_where_a_run_stops_does_not_depend_on_chunks_or_interruption(name, tmp_path):
    engine = dataclasses.replace(STUCK[name], num_chains=2)
    found = [fit(engine, walled, init=START, chunk_size=size) for size in (1, 64, None)]
    stored = fit(engine, walled, init=START, chunk_size=30, store=tmp_path / "run")
    again = ptx.resume(tmp_path / "run", walled, progress=False)
    for posterior in (*found, stored, again):
        assert posterior.attributes["stopped"] == found[0].attributes["stopped"]
        assert posterior.attributes["num_steps"] == found[0].attributes["num_steps"]
        for site, values in found[0].draws.items():
            assert np.array_equal(posterior.draws[site], values)


def look(pattern, parts=7):
    target = ptx.lower(regression, regression_data())
    history = {
        "nonfinite": np.array([pattern], bool),
        "nonfinite_index": np.where([pattern], 1, -1),
    }
    watch = Watch(SGLD(), target)
    for part in np.array_split(np.arange(len(pattern)), parts):  # a row may cross chunks
        reason = watch.look(part[0], {name: values[:, part] for name, values in history.items()})
        if reason:
            return reason.text
    return None


def test_a_row_of_nonfinite_gradients_is_counted_across_chunks():
    assert look([False] * 50 + [True] * (MOST_NONFINITE - 1) + [False] * 9) is None
    assert f"step {50 + MOST_NONFINITE - 1}" in look([False] * 50 + [True] * MOST_NONFINITE)
    assert "site 'w'" in look([True] * MOST_NONFINITE)


def test_one_finite_gradient_between_failures_is_no_progress():
    for parts in (1, 7, 2 * MOST_NONFINITE):
        assert f"step {2 * MOST_NONFINITE - 2}:" in look([True, False] * MOST_NONFINITE, parts)
        assert look([True, False, False] * MOST_NONFINITE, parts) is None


def test_memory_that_runs_out_halves_the_chunk_and_changes_no_draw(monkeypatch):
    engine = NUTS(num_draws=40, num_warmup=60, num_chains=2, max_tree_depth=3)
    expected = fit(engine, regression)
    compiled, sizes = drive._program, []

    def short_of_memory(run, i):
        sizes.append(run.buffer[0])
        program = compiled(run, i)

        def call(*args):
            if run.buffer[0][1] > 13:
                raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 99999 bytes.")
            return program(*args)

        call.memory_analysis = program.memory_analysis
        return call

    monkeypatch.setattr(drive, "_program", short_of_memory)
    posterior = fit(engine, regression)
    assert sizes[0] == (40, 100)
    assert sizes[-1] == (5, 12)
    for kind in ("draws", "history"):
        for name, values in getattr(expected, kind).items():
            assert np.array_equal(getattr(posterior, kind)[name], values)


def test_memory_that_never_suffices_is_an_error(monkeypatch):
    compiled = drive._program

    def always(run, i):
        program = compiled(run, i)

        def call(*args):
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 99999 bytes.")

        call.memory_analysis = program.memory_analysis
        return call

    monkeypatch.setattr(drive, "_program", always)
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        fit(inference.SGLD(num_draws=8, num_warmup=0, num_chains=1, step_size=1e-3), regression)
