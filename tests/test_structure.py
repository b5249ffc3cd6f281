"""Which sites belong to the rows, what counts as prior and what as likelihood, and which shapes are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.infer.reparam import CircularReparam, LocScaleReparam, TransformReparam

import ptx
from ptx.inference import NUTS

NUM_ROWS = 6
RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(NUM_ROWS, 3))
TARGETS = RNG.normal(size=NUM_ROWS)
LABELS = np.array([0, 1, 2, 0, 1, 2])


def lower(model, inputs=INPUTS, targets=TARGETS):
    return ptx.lower(model, (inputs, targets))


def terms(target):
    return {term.name: term.row_axis for term in target.terms}


def rows_of(target):
    return {site.name: site.row_axis for site in target.sites}


def at(target, **position):
    return {name: jnp.asarray(value, jnp.float32) for name, value in position.items()}


def weights():
    return numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))


def whole(inputs, targets=None):
    """All rows in one multivariate normal."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    covariance = scale * jnp.eye(inputs.shape[0]) + 0.5
    numpyro.sample("y", dist.MultivariateNormal(0.0, covariance), obs=targets)


def row_latents(inputs, targets=None):
    with numpyro.plate("rows", inputs.shape[0]):
        z = numpyro.sample("z", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(z, 1), obs=targets)


def test_several_observed_sites_add_row_by_row():
    def model(inputs, targets=None):
        w = weights()
        with numpyro.plate("rows", inputs["x"].shape[0]):
            numpyro.sample("y", dist.Normal(inputs["x"] @ w, 1), obs=targets["y"])
            numpyro.sample("n", dist.Poisson(jnp.exp(inputs["x"] @ w)), obs=targets["n"])
        numpyro.sample(
            "pair", dist.Normal(0, 2).expand([inputs["x"].shape[0], 2]).to_event(1), obs=targets["pair"]
        )

    targets = {"y": TARGETS, "n": LABELS, "pair": INPUTS[:, :2]}
    target = lower(model, {"x": INPUTS}, targets)
    w = np.array([0.1, -0.2, 0.3])
    rows = scipy.stats.norm(INPUTS @ w).logpdf(TARGETS) + scipy.stats.poisson(np.exp(INPUTS @ w)).logpmf(
        LABELS
    )
    rows = rows + scipy.stats.norm(0, 2).logpdf(INPUTS[:, :2]).sum(1)
    np.testing.assert_allclose(target.log_likelihood(at(target, w=w)), rows, rtol=1e-4)
    assert terms(target) == {"y": 0, "n": 0, "pair": 0}
    assert target.factorizes


def test_factors_without_rows_are_prior_and_with_rows_likelihood():
    def model(inputs, targets=None):
        w = weights()
        numpyro.factor("smooth", -3.0 * jnp.sum(w**2))
        numpyro.factor("weighted", targets * (inputs @ w))
        numpyro.sample("y", dist.Normal(inputs @ w, 1), obs=targets)

    target = lower(model)
    w = np.array([0.1, -0.2, 0.3])
    rows = TARGETS * (INPUTS @ w) + scipy.stats.norm(INPUTS @ w).logpdf(TARGETS)
    np.testing.assert_allclose(target.log_likelihood(at(target, w=w)), rows, rtol=1e-4)
    prior = scipy.stats.norm.logpdf(w).sum() - 3 * (w**2).sum()
    assert float(target.log_prior(at(target, w=w))) == pytest.approx(prior, rel=1e-5)
    assert target.factorizes
    target.require_rows("this test")


def test_a_factor_over_rows_is_likelihood_enough():
    def model(inputs, targets=None):
        numpyro.factor("all", dist.Normal(inputs @ weights(), 1).log_prob(targets))

    target = lower(model)
    assert target.log_likelihood(at(target, w=np.zeros(3))).shape == (NUM_ROWS,)


def test_jacobian_factors_of_reparametrisation_are_no_likelihood():
    """NumPyro marks the factor of CircularReparam as observed; it belongs to the prior of the angle."""

    def model(inputs, targets=None):
        angle = numpyro.sample("angle", dist.VonMises(0.5, 2.0))
        offset = numpyro.sample("offset", dist.Normal(1.0, 3.0))
        rate = numpyro.sample("rate", dist.LogNormal(0.0, 1.0))
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("y", dist.Normal(jnp.sin(angle) + offset + rate, 1), obs=targets)

    how = {"angle": CircularReparam(), "offset": LocScaleReparam(0), "rate": TransformReparam()}
    target = lower(handlers.reparam(model, config=how))
    values = {"angle_unwrapped": 0.7, "offset_decentered": 0.2, "rate_base": -0.4}
    assert {site.name for site in target.sites} == set(values)
    assert terms(target)["angle_factor"] is None
    mean = np.sin(0.7) + 1 + 3 * 0.2 + np.exp(-0.4)
    rows = scipy.stats.norm(mean).logpdf(TARGETS)
    np.testing.assert_allclose(target.log_likelihood(at(target, **values)), rows, rtol=1e-4)
    parts = [target.log_prior(at(target, **(values | {"angle_unwrapped": angle}))) for angle in (0.7, 0.1)]
    expected = np.diff(scipy.stats.vonmises(2.0, 0.5).logpdf([0.1, 0.7]))
    assert float(parts[0] - parts[1]) == pytest.approx(expected[0], abs=1e-4)


def test_handlers_inside_the_program_work():
    def model(inputs, targets=None):
        with handlers.scope(prefix="block"), handlers.reparam(config={"offset": LocScaleReparam(0)}):
            offset = numpyro.sample("offset", dist.Normal(1.0, 3.0))
        numpyro.sample("y", dist.Normal(offset, 1).expand([inputs.shape[0]]), obs=targets)

    target = lower(model)
    assert [site.name for site in target.sites] == ["block/offset_decentered"]
    position = at(target, **{"block/offset_decentered": 0.5})
    assert float(target.log_prior(position)) == pytest.approx(scipy.stats.norm.logpdf(0.5), rel=1e-5)
    np.testing.assert_allclose(
        target.log_likelihood(position), scipy.stats.norm(2.5).logpdf(TARGETS), rtol=1e-5
    )


@pytest.mark.parametrize("handler", [handlers.substitute, handlers.condition])
def test_a_site_that_a_handler_fixes_is_observed_not_sampled(handler):
    def model(inputs, targets=None):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        offset = numpyro.sample("offset", dist.Normal(mean, 0.5))
        numpyro.sample("y", dist.Normal(offset, 1).expand([inputs.shape[0]]), obs=targets)

    target = lower(handler(model, data={"offset": 0.3}))
    assert [site.name for site in target.sites] == ["mean"]
    density = scipy.stats.norm.logpdf(0.7) + scipy.stats.norm(0.7, 0.5).logpdf(0.3)
    density += scipy.stats.norm(0.3).logpdf(TARGETS).sum()
    assert float(target.log_density(at(target, mean=0.7))) == pytest.approx(density, rel=1e-5)


def test_a_likelihood_over_all_rows_is_one_term():
    target = lower(whole)
    assert terms(target) == {"y": None}
    assert not target.factorizes
    position = target.initial_position(jax.random.key(0))
    scale = float(target.constrain(position)["scale"])
    expected = scipy.stats.multivariate_normal(cov=scale * np.eye(NUM_ROWS) + 0.5).logpdf(TARGETS)
    np.testing.assert_allclose(target.log_likelihood(position), [expected], rtol=1e-4)
    with pytest.raises(ValueError, match=r"site 'y'.*engine X needs one term a row.*batch_size=None"):
        target.require_rows("engine X")
    with pytest.raises(ValueError, match="site 'y'"):
        target.log_density(position, target.data.take(slice(0, 3)))


def test_latents_of_rows_are_seen_and_refuse_minibatches():
    target = lower(row_latents)
    assert rows_of(target) == {"z": 0}
    assert target.sites[0].plates == ("rows",)
    with pytest.raises(ValueError, match=r"site 'z': a latent that belongs to the rows.*batch_size=None"):
        target.require_rows("engine X")
    with pytest.raises(ValueError, match="site 'z'"):
        target.log_density(target.initial_position(jax.random.key(0)), target.data.take(slice(0, 3)))


@pytest.mark.parametrize("rows_last", [True, False])
def test_plates_in_any_order(rows_last):
    outputs = 4

    def model(inputs, targets=None):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([3, outputs]).to_event(2))
        with numpyro.plate("outputs", outputs, dim=-2 if rows_last else -1):
            shift = numpyro.sample("shift", dist.Normal(0, 1))
            with numpyro.plate("rows", inputs.shape[0], dim=-1 if rows_last else -2):
                mean = (inputs @ w).T if rows_last else inputs @ w
                values = None if targets is None else targets.T if rows_last else targets
                numpyro.sample("y", dist.Normal(mean + shift, 1), obs=values)

    targets = RNG.normal(size=(NUM_ROWS, outputs))
    target = lower(model, targets=targets)
    assert terms(target) == {"y": 1 if rows_last else 0}
    shape = (outputs, 1) if rows_last else (outputs,)
    assert {site.name: site.plates for site in target.sites}["shift"] == (
        ("outputs", None) if rows_last else ("outputs",)
    )
    position = at(target, w=np.zeros((3, outputs)), shift=np.zeros(shape))
    rows = scipy.stats.norm.logpdf(targets).sum(1)
    np.testing.assert_allclose(target.log_likelihood(position), rows, rtol=1e-5)
    batch = target.data.take(slice(0, 2))
    expected = target.log_prior(position) + 3 * rows[:2].sum()
    assert float(target.log_density(position, batch)) == pytest.approx(float(expected), rel=1e-5)


def normal(inputs, targets=None):
    numpyro.sample("y", dist.Normal(inputs @ weights(), 1), obs=targets)


def plated(inputs, targets=None):
    mean = inputs @ weights()
    with numpyro.plate("rows", inputs.shape[0]):
        numpyro.sample("y", dist.Normal(mean, 1), obs=targets)


def bernoulli(inputs, targets=None):
    numpyro.sample("y", dist.Bernoulli(logits=inputs @ weights()), obs=targets)


def column(inputs, targets=None):
    numpyro.sample("y", dist.Normal((inputs @ weights())[:, None], 1), obs=targets)


def noisy(inputs, targets=None):
    """Means are a column, noise is not: the distribution itself is rows x rows."""
    numpyro.sample("y", dist.Normal((inputs @ weights())[:, None], jnp.exp(inputs[:, 0])), obs=targets)


ROWS = jnp.asarray(INPUTS)


def captured(inputs, targets=None):
    """Written for exactly the rows it holds."""
    numpyro.sample("y", dist.Normal(ROWS @ weights(), 1), obs=targets)


@pytest.mark.parametrize(
    ("model", "targets"),
    [
        (normal, TARGETS[:, None]),
        (plated, TARGETS[:, None]),
        (bernoulli, LABELS[:, None] > 0),
        (column, TARGETS),
        (noisy, TARGETS),
        (captured, TARGETS[:, None]),
    ],
    ids=["normal", "plated", "bernoulli", "column of outputs", "column of means", "captured rows"],
)
def test_a_column_against_a_vector_is_refused(model, targets):
    with pytest.raises(ValueError, match=r"site 'y'.*compared with every output.*same shape"):
        lower(model, targets=targets)
    if model is not captured:
        with pytest.raises(ValueError, match="site 'y'"):
            lower(model, INPUTS[:1], targets[:1])


@pytest.mark.parametrize(("model", "targets"), [(normal, TARGETS), (column, TARGETS[:, None])])
def test_equal_shapes_are_right(model, targets):
    target = lower(model, targets=targets)
    w = np.array([0.1, -0.2, 0.3])
    rows = scipy.stats.norm(INPUTS @ w).logpdf(TARGETS)
    np.testing.assert_allclose(target.log_likelihood(at(target, w=w)), rows, rtol=1e-4)


def test_pairs_of_rows_are_one_term():
    def model(inputs, targets=None):
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        distance = inputs[:, None, 0] - inputs[None, :, 0]
        numpyro.sample("near", dist.Normal(distance, scale), obs=targets[:, None] - targets[None, :])

    target = lower(model)
    assert terms(target) == {"near": None}
    with pytest.raises(ValueError, match="site 'near'"):
        target.require_rows("a minibatch")


def test_a_program_for_exactly_its_rows_takes_them_whole():
    target = lower(captured)
    assert terms(target) == {"y": None}
    w = np.array([0.1, -0.2, 0.3])
    expected = scipy.stats.norm(INPUTS @ w).logpdf(TARGETS).sum()
    assert float(target.log_likelihood(at(target, w=w))[0]) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match="site 'y'"):
        target.require_rows("a minibatch")
    engine = NUTS(num_draws=5, num_warmup=5, num_chains=1)
    assert ptx.infer(0, captured, (INPUTS, TARGETS), engine, progress=False).draws["w"].shape == (1, 5, 3)


@pytest.mark.parametrize("model", [normal, plated, row_latents])
def test_one_row(model):
    target = lower(model, INPUTS[:1], TARGETS[:1])
    position = jax.tree.map(jnp.zeros_like, target.initial_position(jax.random.key(0)))
    np.testing.assert_allclose(
        target.log_likelihood(position), scipy.stats.norm.logpdf(TARGETS[:1]), rtol=1e-5
    )
    assert list(terms(target).values()) == [0]


def test_values_outside_their_support_are_refused_by_site_and_index():
    def model(inputs, targets=None):
        logits = weights()
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("y", dist.Categorical(logits=logits), obs=targets)

    for bad, value in ((3, 3), (-1, -1)):
        labels = LABELS.copy()
        labels[4] = bad
        with pytest.raises(ValueError, match=rf"site 'y': the observed value {value} at index \(4,\)"):
            lower(model, targets=labels)
    for labels in (LABELS.astype(float), LABELS + 0.5, LABELS > 0):
        with pytest.raises(TypeError, match=r"site 'y': Categorical.* dtype (float32|bool).*cast"):
            lower(model, targets=labels)
    assert lower(model, targets=LABELS.astype(np.uint8)).factorizes


@pytest.mark.parametrize(
    ("distribution", "targets", "index"),
    [
        (dist.Bernoulli(0.5), np.array([0, 1, 2, 0, 1, 0]), 2),
        (dist.Bernoulli(0.5), np.array([0, 1, 0.5, 0, 1, 0]), 2),
        (dist.Poisson(1.0), np.array([0, 1, 2, -1, 1, 0]), 3),
        (dist.HalfNormal(1.0), np.array([0.1, 1, 2, -0.1, 1, 0.5]), 3),
        (dist.Beta(1.0, 2.0), np.array([0.1, 0.2, 0.3, 0.4, 0.5, 1.5]), 5),
    ],
)
def test_every_support_is_checked(distribution, targets, index):
    def model(inputs, targets=None):
        weights()
        numpyro.sample("y", distribution.expand([inputs.shape[0]]), obs=targets)

    with pytest.raises(ValueError, match=rf"site 'y'.*at index \({index},\) is outside the support"):
        lower(model, targets=targets)


def test_values_that_the_program_breaks_are_refused():
    def model(inputs, targets=None):
        numpyro.sample("y", dist.Normal(inputs @ weights(), 1), obs=jnp.log(targets))

    with pytest.raises(ValueError, match="site 'y': the observed value nan"):
        lower(model, targets=np.array([1.0, 2, 3, -1, 5, 6]))


def test_masked_values_need_no_support():
    def model(inputs, targets=None):
        seen = targets >= 0
        logits = jnp.broadcast_to(jnp.pad(weights(), (0, 0)), (inputs.shape[0], 3))
        with numpyro.plate("rows", inputs.shape[0]), handlers.mask(mask=seen):
            numpyro.sample("y", dist.Categorical(logits=logits), obs=jnp.maximum(targets, 0))

    labels = LABELS.copy()
    labels[2] = -100
    target = lower(model, targets=labels)
    likelihood = np.asarray(target.log_likelihood(at(target, w=np.zeros(3))))
    np.testing.assert_allclose(likelihood, np.where(labels < 0, 0, -np.log(3)), rtol=1e-6)


@pytest.mark.parametrize("kind", ["improper", "masked", "masked by a handler"])
def test_improper_priors_are_refused_where_a_proper_one_is_needed(kind):
    def model(inputs, targets=None):
        prior = dist.Normal(0, 1).expand([3]).to_event(1)
        if kind == "improper":
            w = numpyro.sample("w", dist.ImproperUniform(constraints.real_vector, (), (3,)))
        elif kind == "masked":
            w = numpyro.sample("w", prior.mask(False))
        else:
            with handlers.mask(mask=False):
                w = numpyro.sample("w", prior)
        numpyro.sample("y", dist.Normal(inputs @ w, 1), obs=targets)

    target = lower(model)
    with pytest.raises(ValueError, match=r"site 'w': its prior is improper.*evidence needs a proper one"):
        target.require_proper("evidence")
    with pytest.raises(ValueError, match="site 'w'"):
        target.sample_prior(jax.random.key(0))
    assert float(target.log_prior(at(target, w=np.ones(3)))) == 0
    lower(normal).require_proper("evidence")


def test_names_with_slashes_are_kept():
    def model(inputs, targets=None):
        w = numpyro.sample("layer/0/w", dist.Normal(0, 1).expand([3]).to_event(1))
        numpyro.sample("out/y", dist.Normal(inputs @ w, 1), obs=targets)

    target = lower(model)
    assert [site.name for site in target.sites] == ["layer/0/w"]
    assert terms(target) == {"out/y": 0}
    engine = NUTS(num_draws=5, num_warmup=5, num_chains=1)
    draws = ptx.infer(0, model, (INPUTS, TARGETS), engine, progress=False).draws
    assert draws["layer/0/w"].shape == (1, 5, 3)


def test_models_without_observed_sites_or_targets_are_refused():
    def prior_only(inputs, targets=None):
        weights()

    with pytest.raises(ValueError, match=r"no observed site.*obs=targets"):
        lower(prior_only)
    with pytest.raises(ValueError, match="no observed site"):
        lower(normal, targets=None)


def test_models_that_cannot_be_looked_up_are_refused():
    class Unhashable:
        __hash__ = None

        def __call__(self, inputs, targets=None):
            normal(inputs, targets)

    with pytest.raises(TypeError, match="not hashable"):
        lower(Unhashable())
    with pytest.raises(TypeError, match="expected a callable"):
        lower(None)
    with pytest.raises(TypeError, match="expected a callable"):
        lower({"w": dist.Normal()})


@pytest.mark.parametrize(
    "need",
    [
        lambda x: int(x.max()) + 1,
        lambda x: 3 if x[0, 0] > 0 else 4,
        lambda x: len(np.unique(np.asarray(x))),
        lambda x: len(x[x > 0]),
    ],
    ids=["int", "if", "numpy", "boolean index"],
)
def test_programs_that_need_the_numbers_of_their_data_are_refused(need):
    def model(inputs, targets=None):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([need(inputs)]))
        numpyro.sample("y", dist.Normal(w[0], 1).expand([inputs.shape[0]]), obs=targets)

    with pytest.raises(
        TypeError, match=r"model: the program needs the numbers in its data.*keep them in the model"
    ):
        lower(model)
