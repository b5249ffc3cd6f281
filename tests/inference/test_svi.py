"""SVI against closed forms, with negative controls that must fail."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import autoguide as library

import ptx
from ptx.inference import SVI, Cosine, autoguide

REFERENCES = json.loads((Path(__file__).parents[1] / "references" / "closed_form.json").read_text())
BLR = REFERENCES["blr_known_sigma"]
MEAN, COVARIANCE = np.array(BLR["post_mean"]), np.array(BLR["post_cov"])
SMALL = {  # options that keep a test of the guide short
    "AutoBNAFNormal": (("hidden_factors", (2,)),),
    "AutoIAFNormal": (("num_flows", 1), ("hidden_dims", (6,)), ("skip_connections", True)),
    "AutoDAIS": (("K", 2), ("base_dist", "cholesky")),
    "AutoLowRankMultivariateNormal": (("rank", 1),),
}


def weighted_regression(inputs, targets=None):
    """w ~ N(0, 2^2 I), y_n ~ N(x_n w, 0.7^2) to the power of the row's weight."""
    w = numpyro.sample("w", dist.Normal(0, BLR["tau"]).expand([3]).to_event(1))
    with numpyro.plate("rows", inputs["x"].shape[0]), numpyro.handlers.scale(scale=inputs["weight"]):
        numpyro.sample("y", dist.Normal(inputs["x"] @ w, BLR["sigma"]), obs=targets)


def blr_data(rows=slice(None), repeats=1, weight=1.0):
    x = np.tile(np.array(BLR["X"])[rows], (repeats, 1))
    return {"x": x, "weight": np.full(len(x), weight)}, np.tile(np.array(BLR["y"])[rows], repeats)


def meanfield_sd(data):
    """The best factorised Gaussian has the inverse diagonal of the precision as its variances."""
    x, weight = data[0]["x"], data[0]["weight"]
    return np.diag(np.eye(3) / BLR["tau"] ** 2 + (x.T * weight) @ x / BLR["sigma"] ** 2) ** -0.5


def fit(model, data, engine, seed=0, **options):
    return ptx.infer(seed, model, data, engine, progress=False, **options)


def final(posterior, name="elbo", last=200):
    """Mean of the last steps of each chain, and its standard error."""
    values = posterior.history[name][:, -last:].astype(float)
    return values.mean(1), values.std(1) / np.sqrt(last)


# One compiled program serves the gate, its seeds and its controls: the row weights are data.
MEANFIELD = SVI(
    "AutoNormal",
    num_steps=1500,
    num_draws=4000,
    num_chains=6,
    num_particles=32,
    learning_rate=Cosine(0.05, 1500),
)


@pytest.fixture(scope="module")
def meanfield():
    return fit(weighted_regression, blr_data(), MEANFIELD)


def test_mean_field_finds_the_best_factorised_gaussian(meanfield):
    sd = np.array(BLR["meanfield_sd"])
    np.testing.assert_allclose(sd, meanfield_sd(blr_data()), rtol=1e-6)
    draws = meanfield.draws["w"].astype(float)
    # 4,000 draws: an sd is known to 1.1 %, a mean to 0.016 sd; the fit adds less.
    assert (np.abs(draws.std(1) / sd - 1) < 0.05).all()
    assert (np.abs(draws.mean(1) - MEAN) < 0.1 * sd).all()
    assert np.abs(draws.std((0, 1)) / sd - 1).max() < 0.02
    # The posterior's own sds are larger, and a guide that found them would fail.
    assert np.abs(draws.std((0, 1)) / np.sqrt(np.diag(COVARIANCE)) - 1).max() > 0.02


def test_the_elbo_is_that_of_the_best_factorised_gaussian(meanfield):
    value, error = final(meanfield)
    assert (np.abs(value - BLR["elbo_best_diagonal_gaussian"]) < 4.5 * error + 0.005).all()
    assert (error < 0.03).all()


def test_the_elbo_stays_below_the_evidence_for_every_seed(meanfield):
    value, error = final(meanfield)
    assert (value < BLR["log_evidence"] + 4 * error).all()
    assert value.mean() < BLR["log_evidence"]
    assert (meanfield.history["elbo"][:, :20].mean(1) < BLR["log_evidence"] - 5).all()  # it rises, from below
    assert meanfield.history["elbo"].shape == (6, 1500)
    assert meanfield.attributes["gradient_evaluations"] == 6 * 1500 * 32


def test_chains_differ(meanfield):
    for i in range(6):
        for j in range(i):
            assert not np.array_equal(meanfield.draws["w"][i], meanfield.draws["w"][j])
            assert not np.array_equal(meanfield.history["elbo"][i, -50:], meanfield.history["elbo"][j, -50:])


@pytest.mark.parametrize("weight", [0.8, 2.0, 0.1])
def test_wrong_weights_are_seen(weight):
    """A likelihood x 0.8, a KL term that counts half (a likelihood x 2), a minibatch without N/B (x 0.1)."""
    draws = fit(weighted_regression, blr_data(weight=weight), MEANFIELD).draws["w"]
    assert np.abs(draws.std((0, 1)) / np.array(BLR["meanfield_sd"]) - 1).min() > 0.05
    np.testing.assert_allclose(draws.std((0, 1)), meanfield_sd(blr_data(weight=weight)), rtol=0.03)


def test_full_rank_finds_posterior_and_evidence():
    engine = SVI(
        "AutoMultivariateNormal",
        num_steps=2000,
        num_draws=4000,
        num_particles=16,
        learning_rate=Cosine(0.05, 2000),
    )
    posterior = fit(weighted_regression, blr_data(), engine)
    value, error = final(posterior)
    assert abs(value[0] - BLR["log_evidence"]) < 0.01  # at q = p each term of the estimate is the evidence
    assert value[0] < BLR["log_evidence"] + 4 * error[0] + 1e-4
    assert value[0] - BLR["elbo_best_diagonal_gaussian"] > 0.02
    draws = posterior.draws["w"][0].astype(float)
    standard = np.sqrt(np.diag(COVARIANCE))
    np.testing.assert_allclose(
        np.cov(draws.T) / np.outer(standard, standard), COVARIANCE / np.outer(standard, standard), atol=0.07
    )
    assert np.abs(np.corrcoef(draws.T)[1, 2]) > 0.1


@pytest.mark.parametrize(
    ("rows", "repeats", "batch_size"),
    [(slice(None), 10, 10), pytest.param(slice(15), 5, 32, marks=pytest.mark.slow)],
)
def test_minibatches_and_repeated_data(rows, repeats, batch_size):
    """200 rows by 10, where sds shrink by sqrt(10); 75 rows by 32, which wraps inside an epoch."""
    data = blr_data(rows, repeats)
    engine = dataclasses.replace(
        MEANFIELD, num_chains=1, num_particles=8, num_steps=3000, batch_size=batch_size
    )
    engine = dataclasses.replace(engine, learning_rate=Cosine(0.02, 3000))
    draws = fit(weighted_regression, data, engine).draws["w"][0]
    np.testing.assert_allclose(draws.std(0), meanfield_sd(data), rtol=0.08)
    once = meanfield_sd(blr_data(rows))
    np.testing.assert_allclose(draws.std(0), once / np.sqrt(repeats), rtol=0.08)


@pytest.mark.parametrize("name", autoguide.available())
def test_every_guide_traces(name):
    """Start, step and draw, without compiling them; `test_every_guide_fits` runs them all."""

    def single(inputs, targets=None):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([2, 3]).to_event(2))
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("y", dist.Normal(inputs * w.sum(), 1.0), obs=targets)

    target = ptx.lower(single, (np.ones(4), np.ones(4)))
    engine = SVI(name, SMALL.get(name, ()), num_draws=1, num_particles=2)
    assert engine.check(target) == ()

    def run():
        state = engine.init(jax.random.key(0), target, {"w": jnp.zeros((2, 3))})
        after, info = engine.step(jax.random.key(1), target, state, 0)
        return state, after, info, engine.draw(jax.random.key(2), target, after)

    state, after, info, position = jax.eval_shape(run)
    assert jax.tree.map(lambda leaf: leaf.shape, state) == jax.tree.map(lambda leaf: leaf.shape, after)
    assert position["w"].shape == (2, 3)
    assert {leaf.shape for leaf in info.values()} == {()}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(autoguide.available()) - set(autoguide._BATCHED)))
def test_every_guide_fits(name):
    is_point = name == "AutoDelta"
    engine = SVI(
        name,
        SMALL.get(name, ()),
        num_steps=800,
        num_draws=1 if is_point else 500,
        learning_rate=Cosine(0.1, 800),
    )
    assert eval(repr(engine)) == engine
    posterior = fit(weighted_regression, blr_data(), engine)
    draws = posterior.draws["w"][0]
    assert draws.shape == (engine.num_draws, 3)
    assert posterior.findings == ()
    sd = np.sqrt(np.diag(COVARIANCE))
    assert (np.abs(draws.mean(0) - MEAN) < sd).all()
    if name in autoguide.POINTS:
        assert "elbo" not in posterior.history
        best = posterior.target.log_density({"w": jnp.asarray(MEAN, float)})
        np.testing.assert_allclose(posterior.history["log_density"][0, -1], best, atol=1e-3)
    else:
        assert "log_density" not in posterior.history
        value, error = final(posterior)
        assert BLR["log_evidence"] - 1.5 < value[0] < BLR["log_evidence"] + 4 * error[0]
    if not is_point:
        np.testing.assert_allclose(draws.std(0), sd, rtol=0.3)


@pytest.mark.slow
@pytest.mark.parametrize("name", autoguide._BATCHED)
def test_batched_guides_follow_the_leading_axis(name):
    """Two independent regressions with correlated weights inside each: blocks, and none across."""

    def pair(inputs, targets=None):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([2, 2]).to_event(2))
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("y", dist.Normal(inputs @ w.T, 0.5).to_event(1), obs=targets)

    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 2)) @ np.array([[1.0, 0.7], [0.0, 0.7]])
    options = (("rank", 1),) if "LowRank" in name else ()
    engine = SVI(
        name, options, num_steps=1000, num_draws=2000, num_particles=4, learning_rate=Cosine(0.05, 1000)
    )
    draws = fit(pair, (x, rng.normal(size=(20, 2))), engine).draws["w"][0]
    covariance = np.linalg.inv(np.eye(2) + x.T @ x / 0.25)
    for block in (0, 1):
        np.testing.assert_allclose(np.cov(draws[:, block].T), covariance, rtol=0.25)
    across = np.corrcoef(draws.reshape(-1, 4).T)[:2, 2:]
    assert np.abs(across).max() < 0.12
    assert np.corrcoef(draws[:, 0].T)[0, 1] < -0.4


def test_laplace_is_exact_for_a_gaussian_posterior():
    engine = SVI("AutoLaplaceApproximation", num_steps=500, num_draws=4000, learning_rate=Cosine(0.1, 500))
    posterior = fit(weighted_regression, blr_data(), engine)
    draws = posterior.draws["w"][0].astype(float)
    standard = np.sqrt(np.diag(COVARIANCE))
    np.testing.assert_allclose(
        np.cov(draws.T) / np.outer(standard, standard), COVARIANCE / np.outer(standard, standard), atol=0.07
    )
    assert posterior.history["damped"].sum() == 0
    assert posterior.attributes["gradient_evaluations"] == 503


def test_laplace_damps_a_singular_hessian_and_says_so():
    def unidentified(inputs, targets=None):
        flat = dist.ImproperUniform(dist.constraints.real, (), ())
        mean = numpyro.sample("a", flat) + numpyro.sample("b", flat)
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=targets)

    engine = SVI("AutoLaplaceApproximation", num_steps=300, num_draws=500, learning_rate=Cosine(0.1, 300))
    with pytest.warns(RuntimeWarning, match="along 1 direction"):
        posterior = fit(unidentified, (np.zeros(4), np.ones(4)), engine)
    a, b = posterior.draws["a"][0].astype(float), posterior.draws["b"][0].astype(float)
    assert np.isfinite(a).all()
    assert a.std() > 10
    assert posterior.history["damped"][0, -1] == 1
    assert 0.1 < (a + b).std() < 1.0 + 1e-3 * a.std()


def test_laplace_without_its_last_step_has_no_spread_to_show():
    target = ptx.lower(weighted_regression, blr_data())
    engine = SVI("AutoLaplaceApproximation")
    state = engine.init(jax.random.key(0), target, {"w": jnp.zeros(3)})
    assert np.isnan(engine.draw(jax.random.key(1), target, state)["w"]).all()


def scale_and_simplex(inputs, targets=None):
    """A scale (1-D quadrature) and class probabilities (conjugate)."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    probs = numpyro.sample("probs", dist.Dirichlet(2 * jnp.ones(3)))
    with numpyro.plate("rows", inputs.shape[0]):
        numpyro.sample("y", dist.Normal(0, scale), obs=None if targets is None else targets["y"])
        numpyro.sample("label", dist.Categorical(probs), obs=None if targets is None else targets["label"])


@pytest.mark.slow
def test_constrained_sites_match_quadrature():
    y = np.random.default_rng(1).normal(size=30) * 0.8
    label = np.repeat([0, 1, 2], [16, 9, 5])
    engine = SVI(
        "AutoMultivariateNormal",
        num_steps=2000,
        num_draws=4000,
        num_particles=8,
        learning_rate=Cosine(0.05, 2000),
    )
    posterior = fit(scale_and_simplex, (np.zeros(30), {"y": y, "label": label}), engine)
    values = {name: array[0] for name, array in posterior.constrained().items()}
    assert (values["scale"] > 0).all()
    np.testing.assert_allclose(values["probs"].sum(-1), 1, rtol=1e-5)
    grid = np.linspace(0.2, 3, 20001)
    log_p = -0.5 * grid**2 - 30 * np.log(grid) - (y**2).sum() / (2 * grid**2)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = (p * grid).sum()
    sd = np.sqrt((p * (grid - mean) ** 2).sum())
    assert abs(values["scale"].mean() - mean) < 0.15 * sd  # no log-Jacobian: 0.3 sd lower
    np.testing.assert_allclose(values["scale"].std(), sd, rtol=0.1)
    alpha = 2 + np.array([16, 9, 5])
    exact = alpha / alpha.sum()
    exact_sd = np.sqrt(exact * (1 - exact) / (alpha.sum() + 1))
    assert (np.abs(values["probs"].mean(0) - exact) < 0.15 * exact_sd).all()
    np.testing.assert_allclose(values["probs"].std(0), exact_sd, rtol=0.1)


def test_huge_learning_rates_end_finite_or_are_reported():
    engine = SVI(num_steps=50, learning_rate=1e3, num_draws=20, optimiser="sgd")
    with pytest.warns(RuntimeWarning, match="non-finite gradient"):
        posterior = fit(weighted_regression, blr_data(), engine)
    assert np.isfinite(posterior.draws["w"]).all()
    assert posterior.findings


def test_it_starts_at_a_given_position():
    target = ptx.lower(weighted_regression, blr_data())
    engine = SVI(guide_options=(("init_scale", 1e-3),))
    start = {"w": jnp.array([1.0, 2.0, 3.0])}
    state = engine.init(jax.random.key(0), target, start)
    np.testing.assert_allclose(state.search.objective, target.log_density(start), rtol=1e-6)
    keys = jax.random.split(jax.random.key(1), 200)
    draws = jax.jit(jax.vmap(lambda key: engine.draw(key, target, state)["w"]))(keys)
    np.testing.assert_allclose(draws.mean(0), start["w"], atol=1e-3)
    np.testing.assert_allclose(draws.std(0), 1e-3, rtol=0.2)


def test_no_site_reaches_a_program_outside():
    target = ptx.lower(weighted_regression, blr_data())
    engine = SVI(num_particles=2)

    def run():
        state = engine.init(jax.random.key(0), target, {"w": jnp.zeros(3)})
        state, _ = engine.step(jax.random.key(1), target, state, 0)
        return engine.draw(jax.random.key(2), target, state)

    with numpyro.handlers.trace() as trace:
        jax.eval_shape(run)
    assert not trace


@pytest.mark.parametrize("num_particles", [1, 2])
def test_no_traced_value_outlives_its_trace(num_particles):
    target = ptx.lower(weighted_regression, blr_data())
    engine = SVI(num_particles=num_particles)

    def run(rng_key):
        state = engine.init(rng_key, target, {"w": jnp.zeros(3)})
        state, _ = engine.step(rng_key, target, state, 0)
        return engine.draw(rng_key, target, state)

    with jax.checking_leaks():
        jax.eval_shape(run, jax.random.key(0))


def test_every_numpyro_guide_is_fitted_or_refused_by_name():
    guides = set(library.__all__) - {"AutoGuide", "AutoContinuous"}
    assert set(autoguide.available()) == guides - set(autoguide._REFUSED)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"guide": "AutoNormle"}, ValueError, "'AutoNormal'"),
        ({"guide": "AutoGuide"}, ValueError, "no NumPyro autoguide"),
        ({"guide": "AutoContinuous"}, ValueError, "no NumPyro autoguide"),
        ({"guide": "AutoGuideList"}, ValueError, "container"),
        ({"guide": "AutoSemiDAIS"}, ValueError, "per-row"),
        ({"guide": "AutoSurrogateLikelihoodDAIS"}, ValueError, "AutoDAIS"),
        ({"guide": library.AutoNormal}, TypeError, "name of a NumPyro autoguide"),
        ({"guide": "AutoDelta"}, ValueError, "num_draws=1"),
        ({"guide": "AutoDAIS", "batch_size": 5}, ValueError, "batch_size=None"),
        ({"guide": "AutoDAIS", "guide_options": (("eta_init", 0.5),)}, ValueError, "eta_init"),
        ({"guide_options": (("scale", 0.1),)}, ValueError, "init_scale"),
        ({"guide_options": (("init_loc_fn", 0.1),)}, ValueError, "takes the options"),
        ({"guide_options": (("init_scale", 0.0),)}, ValueError, "positive"),
        ({"guide_options": (("init_scale", -1.0),)}, ValueError, "positive"),
        ({"guide_options": (("init_scale", float("nan")),)}, ValueError, "positive"),
        ({"guide_options": (("init_scale", jnp.ones(2)),)}, TypeError, "plain value"),
        ({"guide_options": {"init_scale": 0.1}}, TypeError, "tuple of pairs"),
        ({"guide_options": ("init_scale", 0.1)}, TypeError, "tuple of pairs"),
        ({"guide_options": (("init_scale", 0.1), ("init_scale", 0.2))}, ValueError, "given twice"),
        ({"num_particles": 0}, ValueError, "num_particles"),
        ({"num_draws": 0}, ValueError, "num_draws"),
        ({"num_steps": -1}, ValueError, "num_steps"),
        ({"optimiser": "sdg"}, ValueError, "'sgd'"),
        ({"learning_rate": -0.1}, ValueError, "learning_rate"),
    ],
)
def test_settings_are_refused(settings, error, message):
    with pytest.raises(error, match=message):
        SVI(**settings)


def test_targets_that_a_guide_cannot_lay_out_are_refused():
    def two_sites(inputs, targets=None):
        mean = numpyro.sample("a", dist.Normal(0, 1)) + numpyro.sample("b", dist.Normal(0, 1))
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=targets)

    def one_number(inputs, targets=None):
        w = numpyro.sample("w", dist.Normal(0, 1))
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("y", dist.Normal(w, 1.0), obs=targets)

    data = (np.zeros(4), np.ones(4))
    with pytest.raises(ValueError, match="2 sites"):
        fit(two_sites, data, SVI("AutoBatchedMultivariateNormal"))
    with pytest.raises(ValueError, match=r"site 'w'.*batch axes"):
        fit(weighted_regression, blr_data(), SVI("AutoBatchedMultivariateNormal"))
    for name in ("AutoIAFNormal", "AutoBNAFNormal"):
        with pytest.raises(ValueError, match=f"{name}.*1 latent value"):
            fit(one_number, data, SVI(name))
    with pytest.raises(ValueError, match="Hidden dimension"):
        fit(weighted_regression, blr_data(), SVI("AutoIAFNormal", (("hidden_dims", (2,)),)))
