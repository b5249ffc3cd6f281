"""The driver: keys, starts, layouts, interrupts, memory and findings."""

import dataclasses
import os
import signal
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from models_for_tests import constrained, regression, regression_data

import ptx
from ptx import inference, memory
from ptx.inference import NUTS, Prior

SHORT = NUTS(num_draws=20, num_warmup=100, num_chains=2, max_tree_depth=4)


def fit(engine=SHORT, seed=0, model=regression, data=None, **options):
    return ptx.infer(
        seed, model, regression_data() if data is None else data, engine, progress=False, **options
    )


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_integer_seeds_are_keys(seed):
    if seed < 2**31:
        expected = fit(Prior(num_draws=3), jax.random.key(seed)).draws["w"]
        assert np.array_equal(fit(Prior(num_draws=3), seed).draws["w"], expected)
    assert fit(Prior(num_draws=3), seed).attributes["seed"] == [0, seed]


def test_legacy_and_typed_keys_agree():
    assert np.array_equal(fit(seed=jax.random.PRNGKey(5)).draws["w"], fit(seed=jax.random.key(5)).draws["w"])


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (-1, ValueError),
        (2**32, ValueError),
        (2**63, ValueError),
        (1.5, TypeError),
        (True, TypeError),
        ("seed", TypeError),
        (None, TypeError),
        (jnp.arange(2), TypeError),
        (jax.random.split(jax.random.key(0)), ValueError),
    ],
)
def test_bad_keys_are_refused(bad, error):
    with pytest.raises(error, match="rng_key"):
        fit(seed=bad)


def test_unknown_layout_and_chunk_size_are_refused():
    with pytest.raises(ValueError, match="chain_layout"):
        fit(chain_layout="parallel")
    for chunk_size in (0, -3, 1.5):
        with pytest.raises(ValueError, match="chunk_size"):
            fit(chunk_size=chunk_size)


def test_an_engine_that_is_none_is_refused():
    with pytest.raises(TypeError, match="engine"):
        fit(engine=inference.NUTS)
    with pytest.raises(TypeError, match="engine"):
        fit(engine="NUTS")


def test_init_takes_a_position_with_or_without_chains():
    start = {"w": np.array([1.0, -2.0, 0.5])}
    engine = dataclasses.replace(SHORT, num_warmup=0, step_size=1e-6, num_draws=1, max_tree_depth=1)
    np.testing.assert_allclose(fit(engine, init=start).draws["w"][:, 0], [start["w"]] * 2, atol=1e-3)
    spread = {"w": np.stack([start["w"], -start["w"]])}
    np.testing.assert_allclose(fit(engine, init=spread).draws["w"][:, 0], spread["w"], atol=1e-3)


def test_init_takes_a_posterior():
    before = fit()
    engine = dataclasses.replace(
        SHORT, num_warmup=0, step_size=1e-6, num_draws=1, max_tree_depth=1, num_chains=3
    )
    after = fit(engine, init=before).draws["w"][:, 0]
    np.testing.assert_allclose(after, before.draws["w"][[0, 1, 0], -1], atol=1e-3)


@pytest.mark.parametrize(
    ("init", "error", "match"),
    [
        ({"v": np.zeros(3)}, ValueError, "missing: .'w'.*unknown: .'v'"),
        ({"w": "a"}, TypeError, "site 'w' expected numbers of shape"),
        ({"w": np.zeros(4)}, ValueError, "shape"),
        ({"w": np.full(3, np.nan)}, FloatingPointError, "non-finite"),
        (np.zeros(3), TypeError, "dict"),
    ],
)
def test_bad_starts_are_refused(init, error, match):
    with pytest.raises(error, match=match):
        fit(init=init)


def test_a_posterior_of_another_support_is_no_start():
    def positive(inputs, targets=None):
        w = numpyro.sample("w", dist.HalfNormal(1.0).expand([3]).to_event(1))
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("y", dist.Normal(inputs @ w, 0.7), obs=targets)

    other = fit(Prior(num_draws=2), model=positive)
    with pytest.raises(ValueError, match=r"site 'w' has support .*Real.* here and .* in the posterior's"):
        fit(init=other)


def test_numpy_numbers_are_settings_and_seeds():
    engine = NUTS(
        num_draws=np.int64(5),
        num_warmup=np.int32(20),
        num_chains=2,
        step_size=np.float64(0.5),
        max_tree_depth=3,
    )
    assert repr(engine) == repr(
        NUTS(num_draws=5, num_warmup=20, num_chains=2, step_size=0.5, max_tree_depth=3)
    )
    assert np.array_equal(fit(engine, np.array(3)).draws["w"], fit(engine, 3).draws["w"])
    rate = inference.Cosine(value=np.float32(0.5), num_steps=np.int64(7))
    assert repr(rate) == "Cosine(value=0.5, num_steps=7, final_fraction=0.0)"
    assert repr(inference.SGLD(step_size=np.float64(0.25))) == repr(inference.SGLD(step_size=0.25))
    with pytest.raises(TypeError, match="num_draws must be an integer"):
        NUTS(num_draws=np.float64(5.0))


def test_a_start_with_infinite_density_names_the_site():
    def positive_only(inputs, targets=None):
        w = numpyro.sample("w", dist.Normal(0, 1))
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("y", dist.Normal(jnp.sqrt(w), 1.0), obs=targets)

    data = (np.zeros(4), np.ones(4))
    with pytest.raises(FloatingPointError, match="site 'y' has nan"):
        fit(model=positive_only, data=data, init={"w": -1.0})
    assert (fit(Prior(num_draws=3), model=positive_only, data=data).num_draws) == 3


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_start_is_searched_for():
    def half_line(inputs, targets=None):
        w = numpyro.sample("w", dist.Normal(0, 1))
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("y", dist.Normal(jnp.sqrt(w - 1.5), 1.0), obs=targets)

    posterior = fit(model=half_line, data=(np.zeros(4), np.ones(4)))
    assert (posterior.draws["w"] > 1.5).all()


def test_a_model_without_latents_returns():
    def nothing(inputs, targets=None):
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("y", dist.Normal(0.0, 1.0), obs=targets)

    posterior = fit(model=nothing, data=(np.zeros(4), np.ones(4)))
    assert posterior.draws == {}
    assert "no latent site" in posterior.findings[0]


def test_an_interrupt_returns_equal_chains():
    engine = NUTS(num_draws=10**6, num_warmup=10, num_chains=2, max_tree_depth=2)
    timer = threading.Timer(4.0, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    before = signal.getsignal(signal.SIGINT)  # ignored, where the suite runs in a shell's background
    with pytest.warns(RuntimeWarning, match="interrupted"):
        posterior = ptx.infer(0, regression, regression_data(), engine, progress=False, chunk_size=50)
    timer.join()
    draws = posterior.draws["w"]
    assert 0 < posterior.num_draws < 10**6
    assert draws.shape == (2, posterior.num_draws, 3)
    assert np.isfinite(draws).all()
    assert posterior.attributes["interrupted"]
    assert posterior.statistics["lp"].shape == (2, posterior.num_draws)
    assert signal.getsignal(signal.SIGINT) is before
    shorter = ptx.infer(
        0,
        regression,
        regression_data(),
        dataclasses.replace(engine, num_draws=posterior.num_draws),
        progress=False,
    )
    assert np.array_equal(shorter.draws["w"], draws)


def test_a_run_that_cannot_fit_is_refused_with_figures():
    engine = dataclasses.replace(SHORT, num_draws=10**10)
    with pytest.raises(MemoryError, match=r"GiB of host memory .*GiB is free.*num_draws"):
        fit(engine)


def test_memory_is_read_from_the_machine():
    assert 2**20 < memory.host_available() < 2**50


@pytest.mark.filterwarnings("ignore:.*divergent:RuntimeWarning")
def test_findings_report_a_chain_that_never_moves():
    engine = dataclasses.replace(SHORT, num_warmup=0, step_size=1e6, max_tree_depth=1)
    with pytest.warns(RuntimeWarning, match="never moved"):
        posterior = fit(engine)
    assert any("never moved" in finding for finding in posterior.findings)


@pytest.mark.filterwarnings("ignore:.*divergent:RuntimeWarning", "ignore:Prior. factor:RuntimeWarning")
def test_float64_runs_in_float64():
    with jax.enable_x64(True):
        posterior = fit()
        assert posterior.draws["w"].dtype == np.float64
        assert posterior.attributes["x64"]
        assert fit(inference.SVI(num_steps=20, num_draws=5, num_chains=2)).draws["w"].dtype == np.float64
        prior = ptx.infer(0, constrained, regression_data(), Prior(num_draws=5), progress=False)
        assert {values.dtype for values in prior.constrained().values()} == {np.dtype("float64")}
    assert fit().draws["w"].dtype == np.float32


def test_progress_tells_compiling_from_sampling(monkeypatch):
    seen = []

    class Recorded:
        def __enter__(self):
            return lambda phase, step, history, *_: seen.append((phase, step, sorted(history)))

        def __exit__(self, *_):
            return None

    monkeypatch.setattr(sys.modules["ptx.infer"], "display", lambda engine, enabled, target: Recorded())
    ptx.infer(0, regression, regression_data(), SHORT)
    assert seen[0][:2] == ("compiling", 0)
    assert seen[-1][:2] == ("sampling", SHORT.num_steps)
    assert "acceptance_rate" in seen[-1][2]
