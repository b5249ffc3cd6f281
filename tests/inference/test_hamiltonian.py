"""HMC and NUTS: warm-up, mass matrices, temperature, and what happens where the density breaks."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from gates.z_scores import Reference, faults, z_scores
from models_for_tests import regression, regression_data, regression_posterior

import ptx
from ptx.inference import HMC, NUTS, hamiltonian

NOTHING = None, np.zeros(1)
both = pytest.mark.parametrize("engine", [HMC(), NUTS()], ids=["HMC", "NUTS"])


def nothing(targets):
    """An observed site that says nothing of the latents."""
    numpyro.sample("nothing", dist.Normal(0, 1), obs=targets)


def standard(inputs, targets=None):
    numpyro.sample("x", dist.Normal(0, 1))
    nothing(targets)


def fit(engine, model, data=NOTHING, seed=0, **options):
    return ptx.infer(seed, model, data, engine, progress=False, **options)


class StanWarmup:
    """Stan's adaptation of d coordinates, written out: windows, Welford's variance with shrinkage, dual averaging."""

    def __init__(self, num_warmup, size, dense, target=0.8, step_size=1.0):
        self.dense, self.target, self.size = dense, target, size
        self.matrix = np.eye(size) if dense else np.ones(size)
        self.slow, self.ends = self.windows(num_warmup)
        self.positions = []
        self.restart(step_size)

    @staticmethod
    def windows(num_warmup):
        if num_warmup < 20:
            return range(0), set()
        first, last, window = 75, 50, 25
        if first + window + last > num_warmup:
            first, last = int(0.15 * num_warmup), int(0.1 * num_warmup)
            window = num_warmup - first - last
        stop, end, ends = num_warmup - last, first, set()
        while end < stop:
            end, window = end + window, 2 * window
            end = stop if end + window > stop else end  # the window after this one would not fit
            ends.add(end - 1)
        return range(first, stop), ends

    def restart(self, step_size):
        self.mu, self.error, self.count = np.log(10 * step_size), 0.0, 0
        self.log_step, self.log_average = np.log(step_size), 0.0

    def update(self, step, position, acceptance):
        self.count += 1
        self.error += (self.target - acceptance - self.error) / (self.count + 10)
        weight = self.count**-0.75
        self.log_average += weight * (self.log_step - self.log_average)  # of the steps that were used
        self.log_step = self.mu - np.sqrt(self.count) / 0.05 * self.error
        if step in self.slow:
            self.positions.append(position)
        if step in self.ends:
            count = len(self.positions)
            covariance = np.atleast_2d(np.cov(np.array(self.positions).T, ddof=1))
            shrunk = count / (count + 5) * covariance + 1e-3 * 5 / (count + 5) * np.eye(self.size)
            self.matrix = shrunk if self.dense else np.diag(shrunk)
            self.positions = []
            self.restart(np.exp(self.log_average))


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("num_warmup", [1, 19, 20, 149, 150, 1000])
def test_warm_up_is_stans(num_warmup, dense):
    """The same acceptance rates and positions give the same step sizes and mass matrices, step by step."""
    rng = np.random.default_rng(num_warmup)
    positions = rng.normal(size=(num_warmup + 3, 3)) @ np.array([[1, 0.5, 0], [0, 2, 0], [0, 0, 0.1]])
    rates = rng.uniform(size=num_warmup + 3)
    with jax.enable_x64(True):
        engine = NUTS(num_warmup=num_warmup, dense_mass=dense)
        target = ptx.lower(regression, regression_data())
        state = hamiltonian.start(engine, target, {"w": jnp.zeros(3)})

        def step(state, inputs):
            index, position, rate = inputs
            state = state._replace(chain=state.chain._replace(position=position))
            state = hamiltonian.adapt(engine, state, rate, index)
            return state, (state.step_size, state.inverse_mass_matrix)

        inputs = (jnp.arange(num_warmup + 3), jnp.asarray(positions), jnp.asarray(rates))
        _, (step_sizes, matrices) = jax.lax.scan(step, jax.tree.map(jnp.asarray, state), inputs)
    stan = StanWarmup(num_warmup, 3, dense)
    for index in range(num_warmup):
        stan.update(index, positions[index], rates[index])
        expected = stan.log_average if index == num_warmup - 1 else stan.log_step
        np.testing.assert_allclose(step_sizes[index], np.exp(expected), rtol=1e-9, err_msg=f"step {index}")
        np.testing.assert_allclose(
            matrices[index], stan.matrix, rtol=1e-9, atol=1e-12, err_msg=f"step {index}"
        )
    assert (np.asarray(step_sizes[num_warmup:]) == np.asarray(step_sizes[num_warmup - 1])).all()
    assert (np.asarray(matrices[num_warmup:]) == np.asarray(matrices[num_warmup - 1])).all()


def test_stans_windows():
    assert StanWarmup.windows(1000)[1] == {99, 149, 249, 449, 949}
    assert StanWarmup.windows(150)[1] == {99}
    assert StanWarmup.windows(100) == (range(15, 90), {89})


@both
@pytest.mark.parametrize("dense", [False, True])
def test_any_mass_matrix_gives_the_same_law(engine, dense):
    """Momenta must be drawn with the mass that moves them: else the variance of N(0, 1) is not 1."""
    run = sampler(dataclasses.replace(engine, num_warmup=0, dense_mass=dense), standard, num_draws=3000)
    for seed, inverse_mass in enumerate((0.1, 1.0, 10.0)):
        matrix = jnp.full((1, 1) if dense else 1, inverse_mass)
        draws = np.asarray(run(matrix, 0.6 / jnp.sqrt(inverse_mass), seed), float)
        assert not faults(draws, Reference(np.zeros(1), np.ones(1)), limit=5, least_ess=2000), inverse_mass


def sampler(engine, model, num_draws):
    """`run(inverse_mass_matrix, step_size, seed)`: draws (4, num_draws, size) of an engine's own steps."""
    target = ptx.lower(model, NOTHING)

    def one(rng_key, inverse_mass_matrix, step_size):
        state = engine.init(rng_key, target, target.initial_position(rng_key))
        state = state._replace(inverse_mass_matrix=inverse_mass_matrix, step_size=step_size)

        def step(state, index):
            state, _ = engine.step(jax.random.fold_in(rng_key, index), target, state, index)
            return state, state.chain.position

        return jax.lax.scan(step, jax.tree.map(jnp.asarray, state), jnp.arange(num_draws))[1]

    chains = jax.jit(jax.vmap(one, (0, None, None)))
    return lambda matrix, step_size, seed: chains(
        jax.random.split(jax.random.key(seed), 4), matrix, step_size
    )


@both
@pytest.mark.parametrize(
    "temperature", [0.25, *(pytest.param(t, marks=pytest.mark.slow) for t in (1.0, 4.0))]
)
def test_temperature_is_the_power_of_the_unconstrained_density(engine, temperature):
    """Regression weights get T times their covariance; Gamma(a, b) becomes Gamma(a / T, b / T), Jacobian and all."""
    data = regression_data()

    def model(inputs, targets=None):
        numpyro.sample("x", dist.Gamma(6.0, 2.0))
        regression(inputs, targets)

    posterior = fit(dataclasses.replace(engine, num_draws=2500, temperature=temperature), model, data)
    values = posterior.constrained()
    draws = np.concatenate([values["w"], values["x"][..., None]], -1).astype(float)
    mean, covariance = regression_posterior(*data)
    cold = Reference(np.append(mean, 3.0), np.sqrt(np.append(np.diag(covariance), 6 / 4)))
    exact = cold._replace(sd=cold.sd * np.sqrt(temperature))
    assert not faults(draws, exact, limit=5, least_ess=3000)
    if temperature != 1:
        assert z_scores(draws, cold).largest > 8


def dirichlet(*concentration):
    def model(inputs, targets=None):
        numpyro.sample("shares", dist.Dirichlet(jnp.array(concentration)))
        nothing(targets)

    return model


@both
@pytest.mark.parametrize("concentration", [0.1, pytest.param(0.5, marks=pytest.mark.slow)])
def test_dirichlet_moments_are_right_down_to_the_bound(engine, concentration):
    size = 6
    posterior = fit(dataclasses.replace(engine, num_draws=2500), dirichlet(*[concentration] * size))
    sd = np.sqrt((1 / size) * (1 - 1 / size) / (size * concentration + 1))
    exact = Reference(np.full(size, 1 / size), np.full(size, sd))
    draws = posterior.constrained()["shares"].astype(float)
    assert not faults(draws, exact, limit=5, least_ess=3000)
    assert not posterior.findings


@both
def test_small_concentrations_are_refused_by_site(engine):
    for concentration in ((0.01, 0.01, 0.01), (0.099, 1.0), (5.0, 0.05, 5.0)):
        with pytest.raises(ValueError, match=r"site 'shares'.*needs at least 0\.1.*Use SVI"):
            fit(engine, dirichlet(*concentration))
    with pytest.raises(ValueError, match="site 'shares'"):  # at temperature 4 it is a Dirichlet of 0.075
        fit(dataclasses.replace(engine, temperature=4.0), dirichlet(0.3, 0.3))

    def several(inputs, targets=None):
        with numpyro.plate("groups", 2):
            numpyro.sample("deep/shares", dist.Dirichlet(jnp.array([[1.0, 1.0], [1.0, 0.05]])).to_event(0))
        nothing(targets)

    with pytest.raises(ValueError, match="site 'deep/shares'"):
        fit(engine, several)


@pytest.mark.parametrize(("low", "high"), [(0.05, 1.0), (1.0, 0.05), (1.0, 0.2), (0.1, 0.1)])
def test_beta_sites_of_small_concentration_are_refused(low, high):
    def model(inputs, targets=None):
        numpyro.sample("share", dist.Beta(low, high).expand([2]).to_event(1))
        nothing(targets)

    with pytest.raises(ValueError, match="site 'share'"):
        fit(HMC(), model)
    if low >= 0.1 and high >= 0.2:
        with jax.enable_x64(True):  # a float64 is closer to 1
            posterior = fit(HMC(num_draws=20, num_warmup=50, num_chains=1), model)
            assert posterior.draws["share"].shape == (1, 20, 2)


def broken_above_three(inputs, targets=None):
    x = numpyro.sample("x", dist.Normal(0, 1))
    numpyro.factor("broken", jnp.where(x > 3, jnp.nan, 0.0))
    nothing(targets)


@both
@pytest.mark.filterwarnings("ignore:.*divergent trajectory:RuntimeWarning")
def test_a_density_that_breaks_freezes_no_chain(engine):
    """NaN above 3 counts as a rejected, divergent proposal: the law is N(0, 1) cut at 3, and the tuner sees it."""
    posterior = fit(dataclasses.replace(engine, num_draws=2500), broken_above_three)
    draws = posterior.draws["x"][..., None].astype(float)
    grid = np.linspace(-9, 3, 100_001)
    weights = np.exp(-0.5 * grid**2)
    mean = np.average(grid, weights=weights)
    exact = Reference(np.array([mean]), np.sqrt([np.average((grid - mean) ** 2, weights=weights)]))
    assert not faults(draws, exact, limit=5, least_ess=2000)
    assert draws.max() <= 3
    assert posterior.statistics["diverging"].any()
    assert any("divergent" in finding for finding in posterior.findings)
    assert (posterior.history["step_size"] > 1e-3).all()
    assert np.isfinite(posterior.statistics["acceptance_rate"]).all()


@both
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_tuner_shrinks_where_proposals_break(engine):
    """Half of the mass is beyond the edge, so steps of the usual size leave the support at once."""

    def model(inputs, targets=None):
        x = numpyro.sample("x", dist.Normal(0, 1).expand([20]).to_event(1))
        numpyro.factor("broken", jnp.where(jnp.any(x > 0.5), jnp.nan, 0.0))
        nothing(targets)

    start = {"x": -jnp.ones(20)}
    whole = fit(dataclasses.replace(engine, num_draws=300), lambda i, t=None: wide(t), init=start)
    posterior = fit(dataclasses.replace(engine, num_draws=300), model, init=start)
    assert posterior.history["step_size"][:, -1].max() < 0.5 * whole.history["step_size"][:, -1].min()
    assert posterior.statistics["acceptance_rate"].mean() > 0.6
    assert (np.diff(posterior.draws["x"], axis=1) != 0).any(-1).mean() > 0.5


def wide(targets):
    numpyro.sample("x", dist.Normal(0, 1).expand([20]).to_event(1))
    nothing(targets)


@both
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_chain_that_cannot_move_is_reported(engine):
    """Finite at its start alone: every proposal is NaN, at any step size that moves a float."""

    def model(inputs, targets=None):
        x = numpyro.sample("x", dist.Normal(0, 1))
        numpyro.factor("broken", jnp.where(x == 1.0, 0.0, jnp.nan))
        nothing(targets)

    settings = dataclasses.replace(engine, num_draws=50, num_warmup=100, num_chains=2)
    posterior = fit(settings, model, init={"x": jnp.array(1.0)})
    assert (posterior.draws["x"] == 1).all()
    assert any("chain 0 never moved" in finding for finding in posterior.findings)
    assert any("chain 1 never moved" in finding for finding in posterior.findings)


@pytest.mark.filterwarnings("ignore:.*divergent trajectory:RuntimeWarning")
def test_trees_stop_at_their_depth():
    def model(inputs, targets=None):
        numpyro.sample("x", dist.Normal(0, jnp.array([1.0, 1e3])).to_event(1))
        nothing(targets)

    for depth in (1, 3):
        posterior = fit(NUTS(num_draws=200, num_warmup=50, max_tree_depth=depth), model)
        assert posterior.history["n_steps"].max() == 2**depth - 1
        assert posterior.history["tree_depth"].max() == depth
        stopped = posterior.statistics["reached_max_tree_depth"]
        assert stopped.any()
        assert (posterior.statistics["tree_depth"][stopped] == depth).all()
    assert not fit(NUTS(num_draws=50, num_warmup=200), standard).statistics["reached_max_tree_depth"].any()


def test_leapfrog_steps_are_jittered_and_capped():
    free = fit(HMC(num_draws=400, num_warmup=0, step_size=0.1, trajectory_length=2.0), standard)
    lengths = free.history["n_steps"]
    assert lengths.min() >= 10
    assert lengths.max() <= 30
    assert len(np.unique(lengths)) > 15
    capped = fit(HMC(num_draws=50, num_warmup=0, step_size=0.01, max_leapfrog=7), standard)
    assert (capped.history["n_steps"] == 7).all()
    assert capped.attributes["gradient_evaluations"] == capped.history["n_steps"].sum()


@both
def test_thinning_keeps_every_kth_draw(engine):
    data = regression_data()
    whole = fit(dataclasses.replace(engine, num_draws=30, num_warmup=50), regression, data)
    thinned = fit(dataclasses.replace(engine, num_draws=10, num_warmup=50, thin=3), regression, data)
    assert thinned.draws["w"].shape == (4, 10, 3)
    np.testing.assert_array_equal(thinned.draws["w"], whole.draws["w"][:, 2::3])
    np.testing.assert_array_equal(thinned.statistics["lp"], whole.statistics["lp"][:, 2::3])
    assert thinned.history["lp"].shape == (4, 80)


@both
def test_a_dense_mass_matrix_undoes_correlation(engine):
    covariance = np.array([[1.0, 0.995, 0.0], [0.995, 1.0, 0.0], [0.0, 0.0, 100.0]])

    def model(inputs, targets=None):
        numpyro.sample("x", dist.MultivariateNormal(0, jnp.asarray(covariance)))
        nothing(targets)

    exact = Reference(np.zeros(3), np.sqrt(np.diag(covariance)))
    dense = fit(dataclasses.replace(engine, num_draws=2000, dense_mass=True), model)
    assert not faults(dense.draws["x"].astype(float), exact, limit=5, least_ess=3000)
    correlation = np.corrcoef(dense.draws["x"].reshape(-1, 3).T)
    assert correlation[0, 1] == pytest.approx(0.995, abs=0.001)
    diagonal = fit(dataclasses.replace(engine, num_draws=200), model)
    assert dense.statistics["step_size"].min() > 3 * diagonal.statistics["step_size"].max()


@both
def test_energy_belongs_to_the_draw(engine):
    """H + log p is the kinetic energy of the kept state, half a chi-square with d degrees, in rejected draws too."""
    data = regression_data()
    settings = dataclasses.replace(engine, num_draws=2000, num_warmup=0, step_size=0.2)
    mode = {"w": regression_posterior(*data)[0]}
    posterior = fit(settings, regression, data, init=mode)
    statistics = posterior.statistics
    kinetic = statistics["energy"] + statistics["lp"]
    if isinstance(engine, HMC):
        assert statistics["acceptance_rate"].mean() < 0.95  # so some are rejected
        stayed = (np.diff(posterior.draws["w"], axis=1) == 0).all(-1)
        assert stayed.sum() > 100
    assert kinetic.min() > -1e-3
    expected = np.array([posterior.target.log_density({"w": w}) for w in posterior.draws["w"][0, :5]])
    np.testing.assert_allclose(statistics["lp"][0, :5], expected, rtol=1e-5)
    if isinstance(engine, NUTS):
        assert kinetic.mean() == pytest.approx(1.5, rel=0.2)


@both
def test_settings_out_of_range_are_refused(engine):
    for name, bad in (
        ("num_draws", 0),
        ("num_warmup", -1),
        ("thin", 0),
        ("num_chains", 0),
        ("step_size", 0.0),
        ("step_size", float("nan")),
        ("target_acceptance_rate", 1.0),
        ("target_acceptance_rate", 0),
        ("temperature", 0.0),
        ("temperature", -1.0),
        ("trajectory_length" if isinstance(engine, HMC) else "max_tree_depth", 0),
    ):
        with pytest.raises(ValueError, match=name):
            dataclasses.replace(engine, **{name: bad})
    for name, bad in (("num_draws", 10.0), ("dense_mass", 1), ("step_size", "small"), ("num_chains", True)):
        with pytest.raises(TypeError, match=name):
            dataclasses.replace(engine, **{name: bad})
