"""The lowered density: equal to NumPyro's potential, to SciPy term by term, and split into prior and likelihood."""

import collections
import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from models_for_tests import regression, regression_data
from numpyro.distributions import constraints
from numpyro.infer.util import potential_energy

import ptx
from ptx.data import Data

NUM_ROWS = 7
RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(NUM_ROWS, 3))
TARGETS = RNG.normal(size=NUM_ROWS)


def priors():
    """A distribution on each kind of support, with the coordinates of its value that determine the others."""
    ordered = dist.TransformedDistribution(dist.Normal(0, 2).expand([4]), dist.transforms.OrderedTransform())
    lower = np.tril_indices(3, -1)
    covariance = np.array([[2.0, 0.3], [0.3, 1.0]])
    return {
        "real": (dist.Normal(1.0, 2.0), ...),
        "vector": (dist.StudentT(3.0, 0.5, 2.0).expand([3]).to_event(1), ...),
        "correlated": (dist.MultivariateNormal(np.zeros(2), covariance), ...),
        "positive": (dist.HalfCauchy(2.5), ...),
        "positives": (dist.Gamma(jnp.array([2.0, 0.7]), 3.0).to_event(1), ...),
        "interval": (dist.Uniform(-1.0, 3.0), ...),
        "share": (dist.Beta(2.0, 3.0).expand([2]), ...),
        "above": (dist.Pareto(1.5, 2.0), ...),
        "angle": (dist.VonMises(0.3, 2.0), ...),
        "simplex": (dist.Dirichlet(jnp.array([2.0, 0.5, 1.0, 3.0])), np.s_[:-1]),
        "simplices": (dist.Dirichlet(jnp.ones(3)).expand([2]), np.s_[:, :-1]),
        "ordered": (ordered, ...),
        "flat_ordered": (dist.ImproperUniform(constraints.ordered_vector, (), (3,)), ...),
        "correlation": (dist.LKJCholesky(3, 1.5), lower),
    }


def everything(inputs, targets=None):
    """One site on each support, two observed sites, a factor and a scaled site."""
    values = {name: numpyro.sample(name, prior) for name, (prior, _) in priors().items()}
    shift = sum(jnp.sum(value) for value in values.values())
    numpyro.factor("penalty", -0.1 * shift**2)
    with numpyro.handlers.scale(scale=0.5):
        numpyro.sample("tempered", dist.Normal(0, 1))
    with numpyro.plate("rows", inputs.shape[0]):
        mean = inputs @ values["vector"] + 0.1 * shift
        numpyro.sample("y", dist.Normal(mean, values["positive"]), obs=targets)
        numpyro.sample("sign", dist.Bernoulli(logits=mean), obs=None if targets is None else targets > 0)


def lower(model=everything, inputs=INPUTS, targets=TARGETS):
    return ptx.lower(model, Data(inputs, targets))


def start(target, seed=0):
    return compiled("initial_position")(target, jax.random.key(seed))


@functools.cache
def compiled(method):
    """A method of a target as one compiled function: op by op, each costs seconds."""
    return jax.jit(lambda target, *args: getattr(target, method)(*args))


def log_density(target, *args):
    return compiled("log_density")(target, *args)


def log_prior(target, *args):
    return compiled("log_prior")(target, *args)


def constrain(target, position):
    return compiled("constrain")(target, position)


def log_likelihood(target, *args):
    return compiled("log_likelihood")(target, *args)


@pytest.fixture(params=["float32", "float64"])
def tolerance(request):
    """Relative rounding error of a sum of some hundred terms, with JAX's type set."""
    with jax.enable_x64(request.param == "float64"):
        yield 1e-5 if request.param == "float32" else 1e-13


def test_density_equals_numpyros_potential(tolerance):
    target = lower()
    potential = jax.jit(
        lambda position: potential_energy(everything, (INPUTS, jnp.asarray(TARGETS)), {}, position)
    )
    for seed in range(3):
        position = start(target, seed)
        density = log_density(target, position)
        np.testing.assert_allclose(-density, potential(position), rtol=tolerance)
        halves = log_prior(target, position) + log_likelihood(target, position).sum()
        np.testing.assert_allclose(halves, density, rtol=tolerance)


def test_jacobians_are_in_the_prior_half(tolerance):
    """The log|det| from the derivative of the map alone, over the coordinates that are free."""
    target = lower()
    position = start(target)
    free = {name: coordinates for name, (_, coordinates) in priors().items()}
    expected = jax.jit(sum_of_priors)(constrain(target, position)) + log_abs_det(target, position, free)
    np.testing.assert_allclose(log_prior(target, position), expected, rtol=50 * tolerance)


def sum_of_priors(values):
    shift = sum(jnp.sum(values[name]) for name in priors())
    tempered = 0.5 * dist.Normal().log_prob(values["tempered"])
    return (
        tempered
        - 0.1 * shift**2
        + sum(jnp.sum(p.log_prob(values[name])) for name, (p, _) in priors().items())
    )


def log_abs_det(target, position, free):
    """log |d free coordinates of the values / d position|, for the sites named in `free`."""

    def coordinates(part):
        values = target.constrain(position | part)
        return {name: values[name][index].ravel() for name, index in free.items()}

    blocks = jax.jit(jax.jacfwd(coordinates))({name: position[name] for name in free})
    rows = [[np.reshape(blocks[a][b], (blocks[a][b].shape[0], -1)) for b in free] for a in free]
    return np.linalg.slogdet(np.block(rows).astype(float))[1]


def test_density_equals_scipy_term_by_term(tolerance):
    def model(inputs, targets=None):
        scale = numpyro.sample("scale", dist.HalfNormal(1.5))
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.array([2.0, 1.0, 0.5])))
        shape = numpyro.sample("shape", dist.Gamma(2.0, 0.5))
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("y", dist.StudentT(4.0, inputs @ weights, scale), obs=targets)
            numpyro.sample("size", dist.Gamma(shape, 1.0), obs=jnp.abs(targets))

    target = lower(model)
    position = start(target, 3)
    values = {name: np.asarray(value, float) for name, value in constrain(target, position).items()}
    w, u = values["weights"] / values["weights"].sum(), float(position["scale"])
    jacobian = log_abs_det(target, position, {"weights": np.s_[:-1]})
    prior = [
        scipy.stats.halfnorm(scale=1.5).logpdf(values["scale"]) + u,  # scale = exp(u)
        scipy.stats.dirichlet([2.0, 1.0, 0.5]).logpdf(w) + jacobian,
        scipy.stats.gamma(2.0, scale=2.0).logpdf(values["shape"]) + float(position["shape"]),
    ]
    np.testing.assert_allclose(log_prior(target, position), sum(prior), rtol=10 * tolerance)
    rows = scipy.stats.t(4.0, INPUTS @ w, values["scale"]).logpdf(TARGETS)
    rows = rows + scipy.stats.gamma(values["shape"]).logpdf(np.abs(TARGETS))
    assert log_likelihood(target, position).shape == (NUM_ROWS,)
    np.testing.assert_allclose(
        log_likelihood(target, position), rows, rtol=50 * tolerance, atol=50 * tolerance
    )


def test_gradient_equals_finite_differences():
    with jax.enable_x64(True):
        target = lower()
        vector = target.flatten(start(target, 1))
        density = jax.jit(lambda v: log_density(target, target.unflatten(v)))
        gradient = jax.grad(density)(vector)
        for axis in range(vector.size):
            step = 1e-6 * jnp.eye(vector.size)[axis]
            slope = (density(vector + step) - density(vector - step)) / 2e-6
            np.testing.assert_allclose(gradient[axis], slope, rtol=1e-5, atol=1e-5)


def test_potential_twice_is_the_same_and_float32_is_near_float64():
    with jax.enable_x64(True):
        wide = lower()
        position = start(wide)
        exact = float(log_density(wide, position))
    narrow = lower()
    single = jax.tree.map(lambda v: np.asarray(v, np.float32), position)
    first, second = log_density(narrow, single), log_density(narrow, single)
    assert first.dtype == jnp.float32
    assert first == second
    assert float(first) == pytest.approx(exact, rel=1e-5)


def test_constrain_and_unconstrain_are_inverse():
    with jax.enable_x64(True):
        target = lower()
        position = start(target, 5)
        values = constrain(target, position)
        back = compiled("unconstrain")(target, values)
        for name, unconstrained in position.items():
            np.testing.assert_allclose(back[name], unconstrained, rtol=1e-7, atol=1e-9, err_msg=name)
        assert set(values) == set(position) == {site.name for site in target.sites}
        for site in target.sites:
            assert values[site.name].shape == site.shape
            assert position[site.name].shape == site.unconstrained_shape


def test_vectors_and_positions_are_inverse():
    target = lower()
    position = start(target)
    back = target.unflatten(target.flatten(position))
    assert all(np.array_equal(back[name], position[name]) for name in position)


def test_batches_scale_by_rows_over_batch():
    inputs, targets = regression_data(100)
    target = ptx.lower(regression, Data(inputs, targets))
    position = {"w": jnp.array([0.5, -1.0, 2.0])}
    prior = scipy.stats.norm(0, 2).logpdf([0.5, -1.0, 2.0]).sum()
    rows = scipy.stats.norm(inputs @ [0.5, -1.0, 2.0], 0.7).logpdf(targets)
    for size, scale in ((40, 2.5), (1, 100), (33, 100 / 33), (100, 1)):
        batch = Data(inputs[:size], targets[:size])
        expected = prior + scale * rows[:size].sum()
        assert float(log_density(target, position, batch)) == pytest.approx(expected, rel=1e-5)
        np.testing.assert_allclose(log_likelihood(target, position, batch), rows[:size], rtol=1e-4)
        assert float(log_prior(target, position)) == pytest.approx(prior, rel=1e-6)
    assert float(log_density(target, position)) == pytest.approx(prior + rows.sum(), rel=1e-5)


def test_mean_scaled_gradient_over_batches_equals_the_full_one():
    with jax.enable_x64(True):
        inputs, targets = regression_data(100)
        target = ptx.lower(regression, Data(inputs, targets))
        position = {"w": jnp.array([0.5, -1.0, 2.0])}
        gradient = jax.jit(jax.grad(target.log_density))
        stream = np.resize(np.random.default_rng(0).permutation(100), (5, 40))
        parts = [gradient(position, Data(inputs[rows], targets[rows]))["w"] for rows in stream]
        np.testing.assert_allclose(np.mean(parts, 0), gradient(position)["w"], rtol=1e-12)


def test_repeated_data_doubles_the_likelihood_half_alone():
    twice = lower(inputs=np.tile(INPUTS, (2, 1)), targets=np.tile(TARGETS, 2))
    once, position = lower(), start(twice)
    assert float(log_prior(twice, position)) == pytest.approx(float(log_prior(once, position)), rel=1e-5)
    pairs = log_likelihood(twice, position).reshape(2, NUM_ROWS)
    np.testing.assert_allclose(
        pairs, jnp.broadcast_to(log_likelihood(once, position), (2, NUM_ROWS)), rtol=1e-5
    )


def test_handlers_of_scale_and_mask_count():
    def model(inputs, targets=None):
        with numpyro.handlers.scale(scale=3.0):
            w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
        masked = numpyro.handlers.mask(mask=jnp.arange(inputs.shape[0]) != 1)
        with numpyro.plate("rows", inputs.shape[0]), numpyro.handlers.scale(scale=0.5), masked:
            numpyro.sample("y", dist.Normal(inputs @ w, 1), obs=targets)

    target = lower(model)
    w = np.array([0.1, 0.2, 0.3])
    prior = 3 * scipy.stats.norm.logpdf(w).sum()
    assert float(log_prior(target, {"w": jnp.array(w)})) == pytest.approx(prior, rel=1e-6)
    rows = 0.5 * scipy.stats.norm(INPUTS @ w, 1).logpdf(TARGETS)
    rows[1] = 0
    np.testing.assert_allclose(log_likelihood(target, {"w": jnp.array(w)}), rows, rtol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("event", [0, 1])
def test_half_precision_terms_are_summed_in_float32(dtype, event):
    """20,000 terms of half precision: their sum has an ulp of 128 in bfloat16 and 16 in float16."""

    def model(inputs, targets=None):
        numpyro.sample("w", dist.Normal(jnp.zeros(20_000, dtype), 1).to_event(event))
        numpyro.sample("y", dist.Normal(inputs, 1).to_event(event), obs=targets)

    zeros, targets = jnp.zeros((2, 20_000), dtype), jnp.asarray(RNG.normal(size=(2, 20_000)), dtype)
    position = {"w": targets[0]}
    target = lower(model, zeros, targets)
    exact = np.asarray(dist.Normal(zeros, 1).log_prob(targets), float).sum(1)
    assert log_likelihood(target, position).dtype == log_prior(target, position).dtype == jnp.float32
    np.testing.assert_allclose(log_likelihood(target, position), exact, rtol=1e-6)
    np.testing.assert_allclose(log_prior(target, position), exact[0], rtol=1e-6)
    narrow = np.asarray(dist.Normal(zeros, 1).to_event(1).log_prob(targets), float)
    assert (np.abs(narrow / exact - 1) > 1e-5).all()  # what a sum in the narrow type gives


def test_a_draw_from_the_prior_and_a_start_differ_by_site():
    def model(inputs, targets=None):
        w = numpyro.sample("w", dist.Normal(50.0, 1.0), infer={"init": "prior"})
        v = numpyro.sample("v", dist.Normal(50.0, 1.0))
        numpyro.sample("y", dist.Normal(w + v, 1).expand([inputs.shape[0]]), obs=targets)

    target = lower(model)
    starts = [start(target, seed) for seed in range(50)]
    assert all(abs(position["w"] - 50) < 6 for position in starts)
    assert all(abs(position["v"]) < 2 for position in starts)
    assert np.std([position["v"] for position in starts]) == pytest.approx(4 / np.sqrt(12), rel=0.2)
    draws = [compiled("sample_prior")(target, jax.random.key(seed)) for seed in range(50)]
    assert all(abs(position["v"] - 50) < 6 for position in draws)


def test_prior_draws_follow_sites_above_them():
    def model(inputs, targets=None):
        width = numpyro.sample("width", dist.Uniform(1.0, 2.0))
        numpyro.sample("inside", dist.Uniform(0.0, width))
        numpyro.sample("y", dist.Normal(0, 1).expand([inputs.shape[0]]), obs=targets)

    target = lower(model)
    for seed in range(20):
        for position in (compiled("sample_prior")(target, jax.random.key(seed)), start(target, seed)):
            values = constrain(target, position)
            assert 0 < values["inside"] < values["width"] < 2
    position = {"width": jnp.array(0.3), "inside": jnp.array(-0.8)}
    values = {name: float(value) for name, value in constrain(target, position).items()}
    expected = -np.log(values["width"])  # uniform densities 1 and 1 / width, then both logistic Jacobians
    expected += np.log((values["width"] - 1) * (2 - values["width"]))
    expected += np.log(values["inside"] * (values["width"] - values["inside"]) / values["width"])
    assert float(log_prior(target, position)) == pytest.approx(expected, rel=1e-5)


def test_a_target_is_a_tree_of_its_data():
    target = lower()
    assert [leaf.shape for leaf in jax.tree.leaves(target)] == [INPUTS.shape, TARGETS.shape]
    other = lower(targets=TARGETS + 1)
    assert jax.tree.structure(target) == jax.tree.structure(other)
    density = jax.jit(lambda t, p: t.log_density(p))
    position = start(target)
    assert density(target, position) != density(other, position)
    assert float(density(other, position)) == pytest.approx(float(log_density(other, position)), rel=1e-5)
    assert density._cache_size() == 1


def test_lowering_again_runs_no_program():
    runs = collections.deque()  # a list would count by value

    def model(inputs, targets=None):
        runs.append(1)
        regression(inputs, targets)

    ptx.lower(model, regression_data(20))
    before = len(runs)
    ptx.lower(model, regression_data(20, seed=1))
    assert len(runs) == before
    ptx.lower(model, regression_data(21))
    assert len(runs) > before
