"""What programs may not do, and that running one leaves no trace outside."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from models_for_tests import regression, regression_data
from numpyro import handlers
from numpyro.contrib import control_flow

import ptx
from ptx import program
from ptx.inference import NUTS

DATA = regression_data(6)
INPUTS = DATA[0]


def observe(inputs, targets, mean=0.0):
    numpyro.sample("y", dist.Normal(mean, 1).expand([inputs.shape[0]]), obs=targets)


def discrete(inputs, targets=None):
    kind = numpyro.sample("kind", dist.Bernoulli(0.3))
    observe(inputs, targets, kind)


def enumerated(inputs, targets=None):
    kind = numpyro.sample("kind", dist.Categorical(jnp.ones(3) / 3), infer={"enumerate": "parallel"})
    observe(inputs, targets, kind)


def counted(inputs, targets=None):
    observe(inputs, targets, numpyro.sample("kind", dist.Poisson(2.0)).astype(float))


def subsampled(inputs, targets=None):
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("kind", inputs.shape[0], subsample_size=3) as rows:
        numpyro.sample("y", dist.Normal(w, 1), obs=targets[rows])


def parameter(inputs, targets=None):
    observe(inputs, targets, numpyro.sample("w", dist.Normal(0, 1)) + numpyro.param("kind", 1.0))


def mutable(inputs, targets=None):
    statistics = numpyro.primitives.mutable("kind", {"mean": jnp.zeros(())})
    observe(inputs, targets, numpyro.sample("w", dist.Normal(0, 1)) + statistics["mean"])


def random(inputs, targets=None):
    noise = jax.random.normal(numpyro.prng_key())
    observe(inputs, targets, numpyro.sample("w", dist.Normal(0, 1)) + noise)


def scanned(inputs, targets=None):
    def step(carry, x):
        return numpyro.sample("z", dist.Normal(carry, 1)), None

    observe(inputs, targets, control_flow.scan(step, 0.0, inputs[:, 0])[0])


def twice(inputs, targets=None):
    numpyro.sample("kind", dist.Normal(0, 1))
    observe(inputs, targets, numpyro.sample("kind", dist.Normal(0, 1)))


def twice_observed(inputs, targets=None):
    numpyro.sample("kind", dist.Normal(0, 1), obs=targets[0])
    observe(inputs, targets, numpyro.sample("kind", dist.Normal(0, 1)))


def twice_as_plate(inputs, targets=None):
    w = numpyro.sample("kind", dist.Normal(0, 1))
    with numpyro.plate("kind", inputs.shape[0]):
        numpyro.sample("y", dist.Normal(w, 1), obs=targets)


def direction(inputs, targets=None):
    observe(inputs, targets, numpyro.sample("kind", dist.ProjectedNormal(jnp.ones(3)))[0])


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (direction, r"site 'kind': no map from the reals to its support.*ProjectedNormalReparam"),
        (discrete, r"site 'kind': a discrete latent \(BernoulliProbs\).*sum it out.*observe it"),
        (enumerated, r"site 'kind': a discrete latent \(CategoricalProbs\)"),
        (counted, r"site 'kind': a discrete latent \(Poisson\)"),
        (subsampled, r"plate 'kind': subsamples 3 of 6 rows.*batch_size"),
        (parameter, r"site 'kind': numpyro.param has no prior; give it one"),
        (mutable, r"site 'kind': numpyro's mutable state.*pass fixed values in"),
        (random, r"model: the program draws random numbers .dropout.*turn that off"),
        (scanned, r"model: numpyro.contrib.control_flow hides sites; use"),
        (twice, r"site 'kind': the program has two sites of this name"),
        (twice_observed, r"site 'kind': the program has two sites of this name"),
        (twice_as_plate, r"site 'kind': the program has two sites of this name"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_refused_with_the_name_and_advice(model, says):
    with pytest.raises(ValueError, match=says):
        ptx.lower(model, DATA)
    with pytest.raises(ValueError, match=says):
        ptx.infer(0, model, DATA, NUTS(), progress=False)


def test_a_plate_may_be_entered_twice():
    def model(inputs, targets=None):
        with numpyro.plate("rows", inputs.shape[0]):
            mean = inputs[:, 0]
        w = numpyro.sample("w", dist.Normal(0, 1))
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("y", dist.Normal(w * mean, 1), obs=targets)

    assert ptx.lower(model, DATA).factorizes


def test_plates_over_all_rows_and_of_other_things_are_no_subsamples():
    def model(inputs, targets=None):
        with numpyro.plate("features", 3, subsample_size=3):
            w = numpyro.sample("w", dist.Normal(0, 1))
        mean = inputs @ w
        with numpyro.plate("rows", inputs.shape[0], subsample_size=None):
            numpyro.sample("y", dist.Normal(mean, 1), obs=targets)

    assert ptx.lower(model, DATA).sites[0].plates == ("features",)


def test_sample_shapes_count_as_the_priors_own():
    def model(inputs, targets=None):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1), sample_shape=(3,))
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("y", dist.Normal(inputs @ w[:, 0], 1), obs=targets)

    target = ptx.lower(model, DATA)
    assert target.sites[0].shape == (3, 2)
    assert target.initial_position(jax.random.key(0))["w"].shape == (3, 2)
    draws = np.stack([target.sample_prior(jax.random.key(seed))["w"] for seed in range(100)])
    assert np.abs(np.corrcoef(draws.reshape(100, 6).T) - np.eye(6)).max() < 0.5
    position = {"w": jnp.full((3, 2), 0.5)}
    assert float(target.log_prior(position)) == pytest.approx(6 * scipy.stats.norm.logpdf(0.5), rel=1e-6)


def test_partly_observed_targets_leave_latents_to_the_rows():
    def model(inputs, targets=None):
        w = numpyro.sample("w", dist.Normal(0, 1))
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("y", dist.Normal(w, 1), obs=targets, obs_mask=inputs[:, 0] > 0)

    target = ptx.lower(model, DATA)
    assert {site.name: site.row_axis for site in target.sites} == {"w": None, "y_unobserved": 0}
    rows = np.where(INPUTS[:, 0] > 0, scipy.stats.norm.logpdf(DATA[1]), 0)
    position = {"w": jnp.zeros(()), "y_unobserved": jnp.zeros(6)}
    np.testing.assert_allclose(target.log_likelihood(position), rows, rtol=1e-5)


def test_nothing_leaks_into_a_program_around_it():
    """A density evaluated inside another NumPyro program adds no site to it and takes none of its handlers."""
    target = ptx.lower(regression, DATA)
    position = {"w": jnp.ones(3)}
    alone = target.log_density(position)

    def outer():
        numpyro.sample("w", dist.Normal(0, 1))  # the name of a site inside, too
        inner = target.log_density(position)
        start = target.initial_position(jax.random.key(0))
        numpyro.factor("inner", inner)
        numpyro.deterministic("size", sum(jnp.size(value) for value in start.values()))

    with handlers.scale(scale=10.0):
        trace = handlers.trace(handlers.seed(handlers.condition(outer, {"w": 5.0}), 0)).get_trace()
    assert set(trace) == {"w", "inner", "size"}
    np.testing.assert_allclose(trace["inner"]["fn"].log_factor, alone, rtol=1e-6)
    assert trace["size"]["value"] == 3


def test_an_outer_seed_changes_nothing():
    target = ptx.lower(regression, DATA)
    with handlers.seed(rng_seed=3):
        inside = target.initial_position(jax.random.key(0))
    assert np.array_equal(inside["w"], target.initial_position(jax.random.key(0))["w"])


def test_programs_traced_in_threads_do_not_meet():
    """NumPyro's handlers stand on a stack that all threads share."""
    targets = [ptx.lower(regression, regression_data(rows)) for rows in range(5, 13)]
    found = [None] * len(targets)

    def trace(index):
        target = targets[index]
        density = ptx.compiled.compiled(density_of, (), target, {"w": jnp.zeros(3)})
        found[index] = float(density(target, {"w": jnp.zeros(3)}))

    threads = [threading.Thread(target=trace, args=(index,)) for index in range(len(targets))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [float(target.log_density({"w": jnp.zeros(3)})) for target in targets]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert program.handlers.trace(lambda: None).get_trace() == {}


def density_of(target, position):
    return target.log_density(position)


def test_a_program_compiled_quickly_is_kept_apart_and_computes_the_same():
    position = {"w": jnp.arange(3.0)}
    args = (density_of, (), ptx.lower(regression, DATA), position)
    slowly, quickly = (ptx.compiled.compiled(*args, quickly=quickly) for quickly in (False, True))
    assert slowly is not quickly
    assert quickly is ptx.compiled.compiled(*args, quickly=True)
    np.testing.assert_allclose(slowly(*args[2:]), quickly(*args[2:]), rtol=1e-5)


@pytest.mark.parametrize("name", ["NaN", "infinity"])
def test_densities_that_are_not_finite_are_named(name):
    value = jnp.nan if name == "NaN" else -jnp.inf

    def model(inputs, targets=None):
        w = numpyro.sample("w", dist.Normal(0, 1))
        numpyro.factor("broken", value * jnp.ones(inputs.shape[0]))
        observe(inputs, targets, w)

    with pytest.raises(FloatingPointError, match=r"no start with a finite log density.*site 'broken'"):
        ptx.infer(0, model, DATA, NUTS(num_draws=2, num_warmup=0, num_chains=1), progress=False)
