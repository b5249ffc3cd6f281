"""Latents that carry their own posterior: KL once a row, a bound below the evidence, engines, predictions, stores."""

import re
import signal
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats as st
from store import runs

import ptx
from ptx import inference
from ptx.data import Data
from ptx.inference import MAP, NUTS, SVI, Prior

NUM_ROWS, NOISE = 6, 0.6
INPUTS = np.random.default_rng(2).normal(size=NUM_ROWS)  # what q sees: the targets themselves
POSITION = {"w": jnp.float32(0.4)}
GAIN, SD = 1 / (1 + NOISE**2), NOISE / np.sqrt(1 + NOISE**2)  # of the exact posterior of z


@dataclass(frozen=True)
class Local:
    """w ~ N(0, 1), z_n ~ prior, y_n ~ N(w + z_n, noise^2); q(z_n) = N(gain (x_n - w), sd^2), exact by default where the
    prior is N(0, 1) and x = y."""

    gain: float = GAIN
    sd: float = SD
    prior: Any = "normal"
    wide: bool = False  # a posterior of another shape

    def __call__(self, inputs, targets=None):
        """Run the program."""
        w = numpyro.sample("w", dist.Normal(0, 1))
        prior = {"normal": dist.Normal(0, 1), "student": dist.StudentT(4.0)}[self.prior]
        q = dist.Normal(self.gain * (inputs - w), self.sd)
        q = q.expand((2, *q.batch_shape)) if self.wide else q
        with numpyro.plate("rows", inputs.shape[0]):
            z = numpyro.sample("z", prior, infer={"amortised": q})
            mean = numpyro.deterministic("mean", w + z)
            numpyro.sample("y", dist.Normal(mean, NOISE), obs=targets)


EXACT, DATA = Local(), (INPUTS, INPUTS)


def lower(model=EXACT, data=DATA):
    return ptx.lower(model, data, amortised=True)


@jax.jit
def over_keys(target, position, keys):
    """The bound of each row, by key."""
    return jax.vmap(lambda key: target.log_likelihood(position, None, key))(keys)


@jax.jit
def log_density(target, position, batch=None, rng_key=None, kl_weight=1.0):
    return target.log_density(position, batch, rng_key, kl_weight)


def log_evidence(w=0.4):
    """log p(y_n | w) of each row."""
    return st.norm(w, np.sqrt(1 + NOISE**2)).logpdf(INPUTS)


def gap(model, w=0.4):
    """KL of q to the exact posterior of each row: what the bound falls short of the evidence by."""
    exact = GAIN * (INPUTS - w)
    return normal_kl(model.gain * (INPUTS - w), model.sd, exact, SD)


def normal_kl(mean, sd, prior_mean, prior_sd):
    return np.log(prior_sd / sd) + (sd**2 + (mean - prior_mean) ** 2) / (2 * prior_sd**2) - 0.5


@pytest.mark.parametrize(
    "model", [EXACT, Local(gain=0.2), Local(sd=0.2), Local(sd=1.3), Local(gain=1.2, sd=0.7)], ids=str
)
def test_the_bound_is_the_evidence_less_the_distance_of_q_to_the_posterior(model):
    """So never above it, and equal to it where q is exact; each row by itself."""
    bounds = np.asarray(over_keys(lower(model), POSITION, jax.random.split(jax.random.key(1), 20_000)), float)
    mean, error = bounds.mean(0), bounds.std(0) / np.sqrt(len(bounds))
    assert mean.shape == (NUM_ROWS,)
    assert np.abs((mean - (log_evidence() - gap(model))) / error).max() < 4
    if model == EXACT:
        assert np.abs((mean - log_evidence()) / error).max() < 4
    else:
        assert ((log_evidence() - mean) / error).max() > 8
        assert (mean < log_evidence() + 4 * error).all()


def test_a_bound_without_its_kl_or_with_half_of_it_is_above_the_evidence():
    """The control: what the test above would say of a KL that counts too little."""
    target = lower()
    keys = jax.random.split(jax.random.key(1), 20_000)
    kl = normal_kl(GAIN * (INPUTS - 0.4), SD, 0.0, 1.0)
    bounds = np.asarray(over_keys(target, POSITION, keys), float)
    error = bounds.std(0) / np.sqrt(len(bounds))
    for share in (1.0, 0.5, 0.05):
        assert ((bounds.mean(0) + share * kl - log_evidence()) / error).max() > 8


def test_a_kl_without_closed_form_is_estimated_from_the_draw():
    """A Student-t prior: bound and evidence by quadrature over z."""
    model = Local(gain=0.7, sd=0.5, prior="student")
    with pytest.raises(NotImplementedError):
        dist.kl_divergence(dist.Normal(0, 1), dist.StudentT(4.0))
    z = np.linspace(-40, 40, 40_001)[:, None]
    joint = st.norm(0.4 + z, NOISE).logpdf(INPUTS) + st.t(4).logpdf(z)
    evidence = np.log(np.exp(joint).sum(0) * 0.002)
    q = st.norm(0.7 * (INPUTS - 0.4), 0.5)
    want = np.sum(q.pdf(z) * (joint - q.logpdf(z)), 0) * 0.002
    bounds = np.asarray(over_keys(lower(model), POSITION, jax.random.split(jax.random.key(0), 20_000)), float)
    error = bounds.std(0) / np.sqrt(len(bounds))
    assert np.abs((bounds.mean(0) - want) / error).max() < 4
    assert (bounds.mean(0) < evidence + 4 * error).all()
    assert ((evidence - bounds.mean(0)) / error).max() > 8


def test_the_kl_counts_once_a_row_and_is_not_divided_by_their_number():
    target, z = lower(), GAIN * (INPUTS - 0.4)
    kl = normal_kl(z, SD, 0.0, 1.0)
    by_row = st.norm(0.4 + z, NOISE).logpdf(INPUTS) - kl
    np.testing.assert_allclose(target.log_likelihood(POSITION), by_row, rtol=1e-5)
    prior = st.norm.logpdf(0.4)
    for weight in (0.0, 0.3, 1.0, 2.0):
        want = prior + by_row.sum() + (1 - weight) * kl.sum()
        assert float(log_density(target, POSITION, kl_weight=weight)) == pytest.approx(want, rel=1e-5)


def test_the_kl_is_scaled_with_the_likelihood_of_a_minibatch():
    """The mean over the batches of one epoch is the whole; with a key or without, and whatever the KL weighs."""
    target = lower()
    rows = np.random.default_rng(0).permutation(NUM_ROWS).reshape(3, 2)
    for weight in (1.0, 0.3):
        batches = [log_density(target, POSITION, target.data.take(batch), None, weight) for batch in rows]
        whole = log_density(target, POSITION, None, None, weight)
        np.testing.assert_allclose(np.mean(batches), whole, rtol=1e-5)
        assert np.std(batches) > 0.1


def test_the_key_alone_decides_the_draw():
    target, keys = lower(), jax.random.split(jax.random.key(0), 2)
    first, again, other = (over_keys(target, POSITION, keys[i : i + 1])[0] for i in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (np.asarray(first) != other).all()
    assert len(set(np.asarray(first - target.log_likelihood(POSITION)).round(4))) == NUM_ROWS  # rows apart


def test_the_gradient_reaches_what_q_is_made_of():
    """d/dw of the bound at an exact q is that of the evidence, in expectation."""
    target = lower()
    slopes = jax.jit(
        jax.vmap(jax.grad(lambda w, key: jnp.sum(target.log_likelihood({"w": w}, None, key))), (None, 0))
    )
    values = np.asarray(slopes(POSITION["w"], jax.random.split(jax.random.key(3), 20_000)), float)
    want = np.sum((INPUTS - 0.4) / (1 + NOISE**2))
    assert abs(values.mean() - want) / (values.std() / np.sqrt(len(values))) < 4
    assert abs(want) / (values.std() / np.sqrt(len(values))) > 8


def test_lowering_decides_what_the_site_is():
    amortised, joint = lower(), ptx.lower(EXACT, DATA)
    assert amortised.is_amortised
    assert not joint.is_amortised
    assert [site.name for site in amortised.sites] == ["w"]
    assert {site.name: site.row_axis for site in joint.sites} == {"w": None, "z": 0}
    assert {term.name: term.amortised for term in amortised.terms} == {"z": True, "y": False}
    z = jnp.linspace(-1, 1, NUM_ROWS)
    want = st.norm.logpdf(0.4) + st.norm.logpdf(z).sum() + st.norm(0.4 + z, NOISE).logpdf(INPUTS).sum()
    assert float(joint.log_density({**POSITION, "z": z})) == pytest.approx(want, rel=1e-5)


def test_a_posterior_of_another_shape_is_refused_by_the_sites_name():
    with pytest.raises(ValueError, match=r"site 'z': its amortised posterior.*\(2, 6\).*give both the same"):
        lower(Local(wide=True))


@dataclass(frozen=True)
class Learned:
    """`Local` with the log of q's sd a latent that only q uses."""

    def __call__(self, inputs, targets=None):
        """Run the program."""
        log_sd = numpyro.sample("log_sd", dist.Normal(-0.5, 1.0), infer={"amortised_only": True})
        Local(sd=jnp.exp(log_sd))(inputs, targets)


def test_parameters_of_q_vanish_where_q_is_not_used():
    assert [site.name for site in lower(Learned()).sites] == ["log_sd", "w"]
    joint = ptx.lower(Learned(), DATA)
    assert [site.name for site in joint.sites] == ["w", "z"]
    position = {**POSITION, "z": jnp.zeros(NUM_ROWS)}
    want = ptx.lower(EXACT, DATA).log_density(position)
    assert float(joint.log_density(position)) == pytest.approx(float(want), rel=1e-6)


def infer(engine, model=EXACT, data=DATA, **options):
    return ptx.infer(0, model, data, engine, progress=False, **options)


@pytest.mark.parametrize("engine", [inference.SGLD, inference.SGHMC])
def test_samplers_refuse_minibatches_of_rows_by_the_sites_name(engine):
    with pytest.raises(ValueError, match=r"site 'z': a latent that belongs to the rows.*batch_size=None"):
        infer(engine(num_draws=4, step_size=1e-3, batch_size=2))


@pytest.mark.parametrize("guide", ["AutoDAIS", "AutoLaplaceApproximation"])
def test_guides_that_need_a_density_are_refused(guide):
    with pytest.raises(ValueError, match=f"'{guide}' needs a density.*AutoNormal"):
        infer(SVI(guide=guide, num_steps=2))


def test_map_and_svi_find_what_the_bound_says():
    """With an exact q the bound is the evidence: the posterior of w is a known normal; minibatches and all rows."""
    precision = 1 + NUM_ROWS / (1 + NOISE**2)
    mean, sd = INPUTS.sum() / (1 + NOISE**2) / precision, precision**-0.5
    schedule = inference.Exponential(0.1, 1e-3, 2000)
    for batch_size in (None, 2):
        point = infer(MAP(num_steps=2000, learning_rate=schedule, batch_size=batch_size))
        assert float(point.draws["w"][0, 0]) == pytest.approx(mean, abs=0.03)
    fit = infer(SVI(num_steps=2000, learning_rate=schedule, num_draws=4000, num_particles=4))
    assert fit.draws["w"].mean() == pytest.approx(mean, abs=0.06)
    assert fit.draws["w"].std() == pytest.approx(sd, rel=0.1)
    assert fit.target.is_amortised
    assert set(fit.draws) == {"w"}


def test_kl_weight_reaches_both_engines():
    """With hardly any KL, an sd of q is learned that is far too small."""
    schedule = inference.Linear(0.01, 1.0, 100)
    for engine in (
        MAP(num_steps=400, learning_rate=0.05),
        SVI(num_steps=400, num_draws=50, learning_rate=0.05),
    ):
        sds = []
        for weight in (1.0, schedule, 0.01):
            fit = infer(replace(engine, kl_weight=weight), Learned())
            sds.append(float(np.exp(fit.draws["log_sd"].mean())))
        assert sds[0] == pytest.approx(SD, rel=0.3)
        assert sds[1] == pytest.approx(SD, rel=0.3)
        assert sds[2] < 0.6 * sds[0]


@pytest.mark.parametrize("bad", [-1.0, np.nan, "much"])
def test_a_kl_weight_that_is_none_is_refused(bad):
    with pytest.raises((ValueError, TypeError), match="kl_weight"):
        MAP(kl_weight=bad)


ENSEMBLE = MAP(num_steps=20, num_chains=5, learning_rate=0.05)


@pytest.fixture(scope="module")
def ensemble():
    return infer(ENSEMBLE)


def test_predictions_of_an_ensemble_draw_rows_and_average_them(ensemble):
    one = ptx.predict(1, ensemble, INPUTS)
    four = ptx.predict(1, ensemble, INPUTS, row_draws=4)
    assert one.deterministic["mean"].shape == one.targets["y"].shape == (5, 1, NUM_ROWS)
    assert four.deterministic["mean"].shape == four.targets["y"].shape == (5, 4, NUM_ROWS)
    by_draw = np.moveaxis(four.deterministic["mean"], 1, 0)
    assert all((by_draw[i] != by_draw[j]).all() for i in range(4) for j in range(i))
    fewer = ptx.predict(1, ensemble, INPUTS[:2], row_draws=4)
    np.testing.assert_array_equal(fewer.deterministic["mean"], four.deterministic["mean"][:, :, :2])


def test_predictions_at_the_mean_of_the_rows_are_deterministic(ensemble):
    first, second = (ptx.predict(key, ensemble, INPUTS, row_draws="mean") for key in (1, 2))
    np.testing.assert_array_equal(first.deterministic["mean"], second.deterministic["mean"])
    w = ensemble.draws["w"][..., None]
    np.testing.assert_allclose(first.deterministic["mean"], w + GAIN * (INPUTS - w), rtol=1e-5)
    assert (first.targets["y"] != second.targets["y"]).all()  # noise is still drawn


def test_many_row_draws_have_the_spread_of_q(ensemble):
    drawn = ptx.predict(3, ensemble, INPUTS, row_draws=4000, simulated=False).deterministic["mean"]
    w = ensemble.draws["w"][..., None]
    z = (drawn - (w + GAIN * (INPUTS - w))) / SD
    assert np.abs(z.mean(1) * np.sqrt(4000)).max() < 4.5
    assert np.abs((z.std(1) - 1) * np.sqrt(8000)).max() < 4.5


@pytest.mark.parametrize("bad", [0, -2, 1.5, True, "median"])
def test_row_draws_out_of_range_are_refused(ensemble, bad):
    with pytest.raises((ValueError, TypeError), match="row_draws"):
        ptx.predict(0, ensemble, INPUTS, row_draws=bad)


def test_log_likelihood_has_a_term_a_row_without_the_kl(ensemble):
    found = ptx.log_likelihood(ensemble)
    assert set(found) == {"y"}
    assert found["y"].shape == (5, 1, NUM_ROWS)
    np.testing.assert_array_equal(found["y"], ptx.log_likelihood(ensemble, row_chunk=1)["y"])
    most = st.norm(0, NOISE).logpdf(0)
    assert (found["y"] <= most + 1e-6).all()
    other = ptx.log_likelihood(ensemble, (INPUTS[:3], INPUTS[:3]))["y"]
    np.testing.assert_array_equal(other, found["y"][..., :3])


def test_a_sampler_has_rows_of_its_own_and_refuses_row_draws():
    posterior = infer(NUTS(num_draws=300, num_warmup=200, num_chains=2))
    assert posterior.draws["z"].shape == (2, 300, NUM_ROWS)
    with pytest.raises(ValueError, match="no latents that carry their own posterior"):
        ptx.predict(0, posterior, INPUTS, row_draws=2)
    on_training = ptx.predict(0, posterior, INPUTS, simulated=False).deterministic["mean"]
    known = posterior.draws["w"][..., None] + posterior.draws["z"]
    np.testing.assert_allclose(on_training, known, rtol=1e-5, atol=1e-6)
    with pytest.warns(RuntimeWarning, match="z are drawn from their prior"):
        elsewhere = ptx.predict(0, posterior, np.full(3, 9.0), simulated=False).deterministic["mean"]
    z = elsewhere - posterior.draws["w"][..., None]
    assert np.abs(z.mean((0, 1)) * np.sqrt(600)).max() < 4.5
    assert np.abs((z.std((0, 1)) - 1) * np.sqrt(1200)).max() < 4.5


def test_the_prior_ignores_q():
    posterior = infer(Prior(num_draws=2000, num_chains=1), Local(gain=5.0, sd=0.01))
    z = posterior.constrained()["z"][0]
    assert np.abs(z.mean(0) * np.sqrt(2000)).max() < 4.5
    assert np.abs((z.std(0) - 1) * np.sqrt(4000)).max() < 4.5


@pytest.mark.filterwarnings("ignore:.*interrupted after:RuntimeWarning")
def test_a_stored_run_goes_on_as_if_it_had_never_stopped(tmp_path, monkeypatch):
    runs.save_always(monkeypatch.setattr)
    engine = MAP(
        num_steps=17, num_chains=2, learning_rate=0.1, batch_size=4, kl_weight=inference.Linear(0.1, 1.0, 10)
    )
    whole = runs.values(runs.infer(engine, model=EXACT, data=Data(*DATA)))
    with runs.signalled(8, signal.SIGINT):
        part = runs.infer(engine, tmp_path / "run", model=EXACT, data=Data(*DATA), chunk_size=4)
    assert part.attributes["interrupted"]
    resumed = runs.resume(tmp_path / "run", model=EXACT)
    assert resumed.target.is_amortised
    runs.require_same(runs.values(resumed), whole)
    opened = ptx.open_run(tmp_path / "run", EXACT)
    assert opened.target.is_amortised
    assert ptx.predict(0, opened, INPUTS, row_draws=3).targets["y"].shape == (2, 3, NUM_ROWS)
    with pytest.raises(ValueError, match=re.compile("model", re.IGNORECASE)):
        runs.resume(tmp_path / "run", model=Local(sd=0.1))
