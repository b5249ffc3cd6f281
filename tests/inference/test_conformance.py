"""One table over all engines: a new engine adds a row to ENGINES and passes everything below."""

import collections
import dataclasses

import jax
import numpy as np
import pytest
from models_for_tests import (
    broken_beyond,
    constrained,
    nan_everywhere,
    regression,
    regression_data,
    regression_posterior,
)

import ptx
from ptx import inference
from ptx.inference import *  # noqa: F403  (eval(repr(engine)) needs the names)

# Short runs of each engine; `chains` is set by the tests. One row an engine.
ENGINES = {
    "Prior": inference.Prior(num_draws=12),
    "HMC": inference.HMC(num_draws=12, num_warmup=100, max_leapfrog=8),
    "MAP": inference.MAP(num_steps=30, learning_rate=0.1, batch_size=7),
    "NUTS": inference.NUTS(num_draws=12, num_warmup=25, max_tree_depth=4),
    "NUTS dense": inference.NUTS(num_draws=12, num_warmup=25, max_tree_depth=4, dense_mass=True, thin=2),
    "SGLD": inference.SGLD(num_draws=12, num_warmup=200, step_size=1e-3, batch_size=7),
    "SGHMC": inference.SGHMC(num_draws=12, num_warmup=10, step_size=2e-2, batch_size=7, thin=2),
    "CyclicalSGLD": inference.CyclicalSGLD(num_draws=12, num_cycles=3, step_size=2e-3, batch_size=7),
    "CyclicalSGHMC": inference.CyclicalSGHMC(num_draws=12, num_cycles=3, step_size=3e-2, thin=2),
    "SVI": inference.SVI(num_steps=30, num_draws=12, learning_rate=0.1, batch_size=7),
}
# Longer runs that reach the conjugate posterior at temperature T, and the relative error of an sd that is allowed.
ACCURATE = {
    "HMC": (inference.HMC(num_draws=2000, num_warmup=500), 0.08),
    "NUTS": (inference.NUTS(num_draws=2000, num_warmup=500), 0.08),
    "SGLD": (inference.SGLD(num_draws=8000, num_warmup=500, step_size=2e-3), 0.08),
    "SGHMC": (inference.SGHMC(num_draws=8000, num_warmup=500, step_size=5e-2, friction=5.0), 0.08),
    "CyclicalSGLD": (inference.CyclicalSGLD(num_draws=4000, num_cycles=20, step_size=1e-2, thin=20), 0.08),
    "CyclicalSGHMC": (
        inference.CyclicalSGHMC(num_draws=4000, num_cycles=20, step_size=0.1, friction=5.0, thin=10),
        0.08,
    ),
}
IGNORES_DATA = {"Prior"}
pytestmark = pytest.mark.filterwarnings("ignore:.*divergent trajectory:RuntimeWarning")  # warm-ups are short
each_engine = pytest.mark.parametrize("name", ENGINES)


def run(name, *, model=regression, seed=0, num_chains=2, data=None, **options):
    engine = dataclasses.replace(ENGINES[name], num_chains=num_chains)
    data = regression_data() if data is None else data
    return ptx.infer(seed, model, data, engine, progress=False, **options)


def same(a, b):
    assert a.keys() == b.keys()
    return all(np.array_equal(a[name], b[name]) for name in a)


def test_every_exported_engine_has_a_row():
    exported = {name for name in inference.__all__ if hasattr(getattr(inference, name), "is_sampler")}
    assert exported == {type(engine).__name__ for engine in ENGINES.values()}


@each_engine
def test_repr_round_trips_and_hashes(name):
    engine = ENGINES[name]
    assert eval(repr(engine)) == engine
    assert hash(dataclasses.replace(engine)) == hash(engine)


@each_engine
def test_shapes_names_and_cost(name):
    posterior = run(name, num_chains=3)
    engine = posterior.engine
    assert posterior.draws["w"].shape == (3, engine.num_draws, 3)
    assert posterior.draws["w"].dtype == np.float32
    assert np.isfinite(posterior.draws["w"]).all()
    for values in posterior.statistics.values():
        assert values.shape == (3, engine.num_draws)
    for values in posterior.history.values():
        assert values.shape == (3, engine.num_steps)
    assert type(engine).__name__ in posterior.attributes["engine"]
    expected = 0 if name in IGNORES_DATA else engine.num_steps
    assert posterior.attributes["gradient_evaluations"] >= expected
    assert not posterior.attributes["interrupted"]


@each_engine
def test_a_seed_fixes_the_draws(name):
    first = run(name, seed=3).draws
    assert same(first, run(name, seed=3).draws)
    assert same(first, run(name, seed=jax.random.key(3)).draws)
    assert not same(first, run(name, seed=4).draws)


@each_engine
def test_chains_and_seeds_are_pairwise_different(name):
    posteriors = [run(name, seed=seed, num_chains=4).draws["w"] for seed in (0, 1)]
    chains = np.concatenate(posteriors)
    for i in range(len(chains)):
        for j in range(i):
            assert not np.array_equal(chains[i], chains[j])


@each_engine
def test_chunks_change_nothing(name):
    whole = run(name)
    for size in (1, 7, 100):
        chunked = run(name, chunk_size=size)
        assert same(whole.draws, chunked.draws)
        assert same(whole.history, chunked.history)


@each_engine
def test_layouts_change_nothing(name):
    threads = run(name, num_chains=3)
    for chain_layout in ("loop", "devices"):
        other = run(name, num_chains=3, chain_layout=chain_layout)
        assert same(threads.draws, other.draws), chain_layout
    alone = run(name, num_chains=1)
    assert np.array_equal(alone.draws["w"][0], threads.draws["w"][0])


@each_engine
def test_vectorised_chains_run_and_are_recorded(name):
    posterior = run(name, num_chains=3, chain_layout="vectorised")
    assert posterior.attributes["chain_layout"] == "vectorised"
    assert posterior.draws["w"].shape == (3, posterior.engine.num_draws, 3)
    assert not np.array_equal(posterior.draws["w"][0], posterior.draws["w"][1])
    again = run(name, num_chains=3, chain_layout="vectorised", chunk_size=5)
    assert same(posterior.draws, again.draws)


@each_engine
def test_a_second_call_neither_retraces_nor_compiles(name):
    calls = collections.deque()  # a list would count by value, as a setting that the model reads

    def counted(inputs, targets=None):
        calls.append(1)
        return regression(inputs, targets)

    run(name, model=counted)
    before = len(calls)
    compiles = ptx.compiled._compile.cache_info().misses
    run(name, model=counted, seed=1, data=regression_data(seed=5))
    assert len(calls) == before
    assert ptx.compiled._compile.cache_info().misses == compiles


@each_engine
@pytest.mark.filterwarnings("ignore:Prior. factor 'closer':RuntimeWarning")
def test_draws_satisfy_their_supports(name):
    values = run(name, model=constrained).constrained()
    assert (values["scale"] > 0).all()
    np.testing.assert_allclose(values["weights"].sum(-1), 1, rtol=1e-5)
    assert (values["weights"] >= 0).all()
    assert (np.diff(values["cuts"], axis=-1) > 0).all()
    assert ((values["share"] > 0) & (values["share"] < 1)).all()
    assert values["weights"].shape[2:] == (3,)


@each_engine
def test_a_start_without_finite_density_is_an_error(name):
    if name in IGNORES_DATA:
        assert np.isfinite(run(name, model=nan_everywhere).draws["w"]).all()
        return
    with pytest.raises(FloatingPointError, match="site 'y'"):
        run(name, model=nan_everywhere)


@each_engine
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_non_finite_gradients_are_counted_not_silent(name):
    if name in IGNORES_DATA:
        pytest.skip("takes no gradient")
    data = (np.zeros((40, 1)), np.full(40, 0.05))  # the data pull w towards the edge at 0.5
    posterior = run(name, model=broken_beyond, data=data)
    for values in posterior.draws.values():
        assert np.isfinite(values).all()
    seen = [posterior.history[key].sum() for key in ("diverging", "nonfinite") if key in posterior.history]
    assert sum(seen) > 0
    assert posterior.findings or not posterior.statistics.get("diverging", np.zeros(1)).any()


@each_engine
def test_full_batch_equals_whole_data(name):
    engine = ENGINES[name]
    if not hasattr(engine, "batch_size"):
        pytest.skip("takes no minibatches")
    whole = dataclasses.replace(engine, batch_size=None)
    full = dataclasses.replace(engine, batch_size=20)
    data = regression_data()
    a = ptx.infer(0, regression, data, whole, progress=False).draws["w"]
    b = ptx.infer(0, regression, data, full, progress=False).draws["w"]
    np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("temperature", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("name", [name for name, row in ACCURATE.items() if hasattr(row[0], "temperature")])
def test_temperature_scales_the_variance(name, temperature):
    engine, tolerance = ACCURATE[name]
    data = regression_data()
    mean, covariance = regression_posterior(*data)
    posterior = ptx.infer(
        7, regression, data, dataclasses.replace(engine, temperature=temperature), progress=False
    )
    draws = posterior.draws["w"].reshape(-1, 3)
    sd = np.sqrt(np.diag(covariance) * temperature)
    np.testing.assert_allclose(draws.std(0), sd, rtol=tolerance)
    assert (np.abs(draws.mean(0) - mean) < 0.25 * sd).all()
    wrong = sd * 2 if temperature == 1 else np.sqrt(np.diag(covariance))  # a sampler that ignores T fails
    assert (np.abs(draws.std(0) / wrong - 1) > tolerance).all()
