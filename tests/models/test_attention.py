"""Attention rows as latents: what a row may depend on, limits, sites of every kind, and what is refused."""

import functools
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from models import reference

import ptx
from ptx import densities, program
from ptx.amortised import Amortised
from ptx.data import Data
from ptx.inference import MAP, NUTS, SVI
from ptx.masked_softmax import softmax
from ptx.models import Transformer, VisionTransformer, attention, bayesian, likelihoods, priors

QUICK = {"xla_backend_optimization_level": 0}  # compiling is most of what these tests cost
RNG = np.random.default_rng(5)
KINDS = [kind for kind in attention.KINDS if kind != "softmax"]
ENCODER = Transformer(
    num_features=3,
    max_length=5,
    num_layers=1,
    num_heads=2,
    width=4,
    mlp_width=4,
    num_outputs=3,
    positions=None,
)
CAUSAL = replace(ENCODER, causal=True, pooling=None)
VECTORS, LABELS = RNG.normal(size=(4, 3, 3)), np.array([0, 2, 1, 1])
PADDED, MASK = np.full((4, 5, 3), np.nan), np.zeros((4, 5), bool)
PADDED[:, [0, 2, 3]], MASK[:, [0, 2, 3]] = VECTORS, True
PADDED[~MASK] = 9.0


def model_of(kind, network=ENCODER):
    return bayesian(replace(network, attention=kind), priors.normal(), likelihoods.categorical)


@functools.cache
def lowered(kind):
    """The model on unpadded rows; other rows go in as batches."""
    return ptx.lower(model_of(kind), (VECTORS, LABELS), amortised=True)


def position_of(network, dtype=jnp.float32, seed=0):
    return {name: jnp.asarray(w, dtype) for name, w in reference.draw_weights(network, seed, 0.8).items()}


@functools.partial(jax.jit, compiler_options=QUICK)
def evaluate(target, position, batch, rng_key=None):
    """Outputs, attention rows, bound and KL of each row of a batch."""
    trace, _ = program.run(
        target.model, batch.inputs, batch.targets, program.from_position(position), row_key=rng_key
    )
    kl = {
        term.name: -jnp.sum(densities.log_prob(trace[term.name]), (1, 2))
        for term in target.terms
        if term.amortised
    }
    return {
        "outputs": trace["outputs"]["value"],
        "probs": trace["attention.probs"]["value"],
        "bound": target.log_likelihood(position, batch, rng_key),
        "kl": sum(kl.values()),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_permuted_keys_permute_the_rows_and_leave_outputs_and_bound(kind):
    target, position, order = lowered(kind), position_of(model_of(kind).network), np.array([2, 0, 1])
    found = evaluate(target, position, Data(VECTORS, LABELS))
    permuted = evaluate(target, position, Data(VECTORS[:, order], LABELS))
    np.testing.assert_allclose(permuted["outputs"], found["outputs"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(permuted["bound"], found["bound"], rtol=1e-4)
    np.testing.assert_allclose(permuted["kl"], found["kl"], rtol=1e-3, atol=1e-5)
    probs = np.asarray(found["probs"])[:, :, :, order][..., order]
    np.testing.assert_allclose(permuted["probs"], probs, rtol=1e-3, atol=1e-6)
    assert (
        np.abs(found["probs"] - permuted["probs"]).max() > 0.05
    )  # not uniform rows, which any order leaves alone


@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_nothing(kind):
    """Wherever it stands and whatever it holds: outputs, rows of real keys, KL, bound."""
    target, position = lowered(kind), position_of(model_of(kind).network)
    alone = evaluate(target, position, Data(VECTORS, LABELS))
    padded = evaluate(target, position, Data({"vectors": PADDED, "mask": MASK}, LABELS))
    np.testing.assert_allclose(padded["outputs"], alone["outputs"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(padded["bound"] + padded["kl"], alone["bound"] + alone["kl"], rtol=1e-4)
    real = np.asarray(padded["probs"])[:, :, :, [0, 2, 3]]
    np.testing.assert_allclose(real[..., [0, 2, 3]], alone["probs"], rtol=1e-3, atol=1e-6)
    assert (real[..., [1, 4]] == 0).all()
    np.testing.assert_allclose(padded["kl"], alone["kl"], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(padded["bound"], alone["bound"], rtol=1e-3)


# What the four rows of a causal tagger hold: all, gaps, one real token, none.
SEEN = np.array([[1, 1, 1, 1, 1], [0, 1, 0, 1, 1], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]], bool)
MIXED, TAGS = RNG.normal(size=(4, 5, 3)), RNG.integers(0, 3, size=(4, 5))
TAGGED = {"vectors": np.where(SEEN[..., None], MIXED, np.nan), "mask": SEEN}
ALLOWED = (SEEN[:, None, :] & SEEN[:, :, None] & np.tril(np.ones((5, 5), bool)))[:, None, None]
FEW = np.broadcast_to(ALLOWED.sum(-1) == 1, (4, 1, 2, 5))


@functools.partial(jax.jit, static_argnums=0, compiler_options=QUICK)
def drawn(model, position, inputs, targets, rng_key):
    """Rows, KL by row of attention, and bound, at a draw; with the gradient of the bound."""

    def bound(position):
        run = program.run(Amortised(model), inputs, targets, program.from_position(position), row_key=rng_key)
        (site,) = (msg for name, msg in run[0].items() if program.is_amortised(msg))
        log_prob = [densities.total(densities.log_prob(msg)) for msg in (site, run[0]["targets"])]
        return sum(log_prob), (
            run[0]["attention.probs"]["value"],
            -densities.log_prob(site),
            run[0]["outputs"]["value"],
        )

    return jax.value_and_grad(bound, has_aux=True)(position)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(kind, "float32") for kind in KINDS]
    + [("dirichlet", "bfloat16"), ("dirichlet", "float16"), ("weibull", "bfloat16")]
    + [("lognormal", "float16"), ("gaussian_logits", "bfloat16"), ("gumbel_softmax", "float16")],
)
def test_rows_obey_causal_and_padding_masks_and_are_finite_with_their_gradients(kind, dtype):
    """Drawn rows: 0 at what is masked, 1 in sum; one allowed key is a point mass of KL 0; no key gives zeros."""
    model = model_of(kind, CAUSAL)
    position = position_of(model.network, jnp.dtype(dtype))
    (bound, (probs, kl, outputs)), gradient = drawn(model, position, TAGGED, TAGS, jax.random.key(0))
    probs, kl = np.asarray(probs, np.float64), np.asarray(kl, np.float64)
    assert probs.shape == (4, 1, 2, 5, 5)
    assert (probs[~np.broadcast_to(ALLOWED, probs.shape)] == 0).all()
    has_key = np.broadcast_to(ALLOWED.any(-1), probs.shape[:-1])
    np.testing.assert_allclose(probs.sum(-1), has_key, atol=1e-5)
    np.testing.assert_allclose(probs[FEW].max(-1), 1, atol=1e-7)  # w / w by a reciprocal
    assert (kl[:, None][FEW | ~has_key] == 0).all()
    if kind != "gumbel_softmax":  # whose KL is known by one draw, which may be negative
        assert (kl[:, None][has_key & ~FEW] > 0).all()
    assert np.isfinite(bound)
    assert np.isfinite(np.asarray(outputs, np.float32)).all()
    for name, each in gradient.items():
        assert each.dtype == position[name].dtype
        assert np.isfinite(np.asarray(each, np.float32)).all(), name
    assert np.abs(np.asarray(gradient["attention.query"], np.float32)).max() > 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_later_changes_no_causal_row(kind):
    model = model_of(kind, CAUSAL)
    position, later = position_of(model.network), MIXED.copy()
    later[:, 3:] += 1.0
    full = np.ones((4, 5), bool)
    found, other = (
        drawn(model, position, {"vectors": vectors, "mask": full}, TAGS, jax.random.key(0))[0][1]
        for vectors in (MIXED, later)
    )
    for before, after, axis in zip(found, other, (3, 2, 1), strict=True):
        first = np.take(before, [0, 1, 2], axis), np.take(after, [0, 1, 2], axis)
        np.testing.assert_allclose(*first, rtol=1e-3, atol=1e-5)
        assert np.abs(np.take(before, [3, 4], axis) - np.take(after, [3, 4], axis)).max() > 1e-3


def row_of(kind, scores, rng_key, mask=None):
    """Probabilities of a layer of this kind from given scores, drawn."""

    def layer(inputs, targets=None):
        rows = kind.start(1, scores.shape[1], 1)
        numpyro.deterministic("probs", rows(inputs, mask, SimpleNamespace(index=0)))

    trace, _ = program.run(Amortised(layer), scores, None, program.from_position({}), row_key=rng_key)
    return trace["probs"]["value"]


compiled_row_of = jax.jit(row_of, static_argnums=0, compiler_options=QUICK)
LIMITS = {
    "dirichlet": (attention.dirichlet(sharpness=1e6, floor=0.001), attention.dirichlet(sharpness=20.0)),
    "weibull": (attention.weibull(shape=2000.0), attention.weibull(shape=3.0)),
    "lognormal": (attention.lognormal(scale=1e-3), attention.lognormal(scale=1.0)),
    "gaussian_logits": (attention.gaussian_logits(scale=1e-3), attention.gaussian_logits(scale=1.0)),
}


@pytest.mark.parametrize("kind", LIMITS)
def test_sharper_and_sharper_rows_are_the_softmax(kind):
    """At a draw, whatever is masked; and dull ones are not."""
    scores = jnp.asarray(RNG.normal(size=(4, 2, 5, 5)), jnp.float32)
    mask, key = jnp.asarray(ALLOWED[:, 0]), jax.random.key(1)
    sharp, dull = (
        np.abs(compiled_row_of(rows, scores, key, mask) - softmax(scores, mask)).max()
        for rows in LIMITS[kind]
    )
    assert sharp < 0.01
    assert dull > 0.1


def test_a_network_of_sharp_rows_has_the_outputs_of_the_softmax_network():
    model, position = model_of(LIMITS["dirichlet"][0]), position_of(ENCODER)
    target = ptx.lower(model, (VECTORS, LABELS), amortised=True)
    found = evaluate(target, position, target.data, jax.random.key(0))["outputs"]
    want = jax.jit(ENCODER)(position, jnp.asarray(VECTORS))
    np.testing.assert_allclose(found, want, atol=0.01)
    uniform = jax.jit(lambda w, x: ENCODER(w, x, lambda scores, mask, layer: jnp.full_like(scores, 1 / 3)))
    assert np.abs(uniform(position, jnp.asarray(VECTORS)) - want).max() > 0.1  # what rows are does matter


def test_gumbel_rows_are_drawn_keys_at_a_low_temperature():
    """With probabilities S: the mean row is that of the softmax, though no row is."""
    scores = jnp.asarray(np.tile(np.log([0.2, 0.5, 0.3]) + 1.0, (7000, 1, 3, 1)), jnp.float32)
    rows = attention.gumbel_softmax(temperature=0.01)
    probs = np.asarray(compiled_row_of(rows, scores, jax.random.key(0)), np.float64).reshape(-1, 3)
    assert (probs.max(-1) > 0.99).mean() > 0.95
    error = (probs.mean(0) - [0.2, 0.5, 0.3]) / (probs.std(0) / np.sqrt(len(probs)))
    assert np.abs(error).max() < 4


@pytest.mark.parametrize("kind", KINDS)
def test_extreme_scores_have_finite_rows_and_gradients(kind):
    """Far beyond where exp overflows; and masked ones of any size."""
    scores = jnp.asarray([[[[-300.0, -301.0, 1e4], [1e4, -1e4, 0.0], [0.0, 0.0, 0.0]]]])
    mask = jnp.asarray([[[[True, True, False], [True, True, True], [True, True, True]]]])

    def total(scores):
        probs = row_of(attention.KINDS[kind](), scores, jax.random.key(0), mask)
        return jnp.sum(probs[..., 0]), probs

    (_, probs), gradient = jax.jit(jax.value_and_grad(total, has_aux=True), compiler_options=QUICK)(scores)
    np.testing.assert_allclose(probs.sum(-1), 1, rtol=1e-5)
    assert np.isfinite(gradient).all()
    assert gradient[0, 0, 0, 2] == 0
    assert probs[0, 0, 1, 0] > 0.9


SCOPES = {"fixed": None, "model": (), "layer": (2,), "head": (2, 2), "query": (2, 2)}
DEEP = replace(ENCODER, num_layers=2)


def settings():
    """Every prior and scope of every kind."""
    for name in KINDS:
        kind = attention.KINDS[name]
        for prior in ("constant", "contextual", *(["learned"] if kind.strength else [])):
            for scope in SCOPES if kind.spread else ["fixed"]:
                yield kind(prior=prior, scope=scope)


@pytest.mark.parametrize("rows", list(settings()), ids=str)
def test_sites_of_every_prior_and_scope(rows):
    """Their shapes, and that they are those that the model names: with rows drawn by q, and with rows as latents."""
    model = model_of(rows, DEEP)
    found = {}

    def record(amortised):
        run = program.run(
            Amortised(model) if amortised else model,
            jnp.asarray(VECTORS),
            jnp.asarray(LABELS),
            program.from_start(jax.random.key(0)),
        )
        found[amortised] = {
            name: jnp.shape(msg["value"]) for name, msg in run[0].items() if msg["type"] != "plate"
        }
        return run[1].keys() and None

    for amortised in (False, True):
        jax.eval_shape(functools.partial(record, amortised))
        assert set(found[amortised]) <= set(model.dims)
        for name, shape in found[amortised].items():
            assert len(model.dims[name]) == len(shape), name
    sites, kind = found[True], type(rows)
    for layer in range(2):
        assert sites[f"{kind.site}.{layer}"] == (4, 2, 3, 3)
    assert sites["attention.probs"] == (4, 2, 2, 3, 3)
    spread = f"attention.{kind.spread}"
    assert sites.get(spread) == SCOPES[rows.scope]
    assert sites.get(f"{spread}.kernel") == ((2, 2, 2) if rows.scope == "query" else None)
    assert spread not in found[False]
    assert f"{spread}.kernel" not in found[False]
    strength = f"attention.prior.{kind.strength}"
    for each in found.values():
        assert each.get(strength) == ((2, 2) if rows.prior == "learned" else None)
        assert each.get("attention.prior.in") == ((2, 2, 16) if rows.prior == "contextual" else None)


CHOSEN = [  # every kind, prior and scope at least once
    attention.dirichlet(prior="learned", scope="query"),
    attention.dirichlet(prior="contextual", scope="head"),
    attention.weibull(prior="contextual", scope="layer"),
    attention.lognormal(prior="learned", scope="model"),
    attention.gaussian_logits(prior="contextual", scope="query"),
    attention.gumbel_softmax(prior="contextual"),
]


@pytest.mark.parametrize("rows", CHOSEN, ids=str)
def test_all_that_is_learned_of_rows_has_a_gradient(rows):
    model = model_of(rows, ENCODER)
    target = ptx.lower(model, ({"vectors": PADDED, "mask": MASK}, LABELS), amortised=True)
    position = {
        site.name: 0.3 * jnp.asarray(RNG.normal(size=site.unconstrained_shape)) for site in target.sites
    }
    key = jax.random.key(0)
    bound = jax.jit(jax.grad(lambda u: jnp.sum(target.log_likelihood(u, None, key))), compiler_options=QUICK)
    learned = [
        n for n in position if n.startswith("attention.prior.") or n.startswith(f"attention.{rows.spread}")
    ]
    assert len(learned) == len({"learned": [1], "contextual": [1, 2]}.get(rows.prior, [])) + (
        {"fixed": 0, "query": 2}.get(rows.scope, 1)
    )
    for name, gradient in bound(position).items():
        assert np.isfinite(gradient).all(), name
        assert name not in learned or np.abs(gradient).max() > 1e-6, name


def test_a_contextual_prior_looks_at_real_keys_alone():
    rows = attention.dirichlet(prior="contextual", concentration=3.0)
    target, position = lowered(rows), position_of(model_of(rows).network)
    alone = evaluate(target, position, Data(VECTORS, LABELS))
    padded = evaluate(target, position, Data({"vectors": PADDED, "mask": MASK}, LABELS))
    np.testing.assert_allclose(padded["kl"], alone["kl"], rtol=1e-3, atol=1e-4)
    position["attention.prior.out"] = -position["attention.prior.out"]
    other = evaluate(target, position, Data(VECTORS, LABELS))
    assert np.abs(other["kl"] - alone["kl"]).min() > 1e-3
    np.testing.assert_allclose(other["outputs"], alone["outputs"], rtol=1e-5)  # outputs follow q


def test_lowering_tells_rows_from_parameters_of_their_posterior():
    model = model_of(attention.dirichlet(scope="head"), DEEP)
    amortised, joint = (ptx.lower(model, (VECTORS, LABELS), amortised=which) for which in (True, False))
    names = [{site.name for site in target.sites} for target in (amortised, joint)]
    assert names[0] - names[1] == {"attention.sharpness"}
    assert names[1] - names[0] == {"attention.probs.0", "attention.probs.1"}
    assert [site.row_axis for site in joint.sites if site.amortised] == [0, 0]
    assert {term.name for term in amortised.terms if term.amortised} == names[1] - names[0]
    assert all(term.row_axis == 0 for term in amortised.terms)
    assert dict(amortised.dims)["attention.probs"] == ("row", "layer", "head", "query", "key")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: attention.dirichlet(concentration=1e-4), r"concentration must be at least 0\.001"),
        (lambda: attention.dirichlet(floor=1e-4), r"floor must be at least 0\.001"),
        (lambda: attention.dirichlet(sharpness=0.0), "sharpness"),
        (lambda: attention.dirichlet(sharpness=np.inf), "sharpness"),
        (lambda: attention.dirichlet(concentration="much"), "concentration"),
        (lambda: attention.dirichlet(prior="flat"), "prior"),
        (lambda: attention.dirichlet(scope="token"), "scope"),
        (lambda: attention.dirichlet(hidden=0), "hidden"),
        (lambda: attention.weibull(shape=-1.0), "shape"),
        (lambda: attention.weibull(prior_shape=np.nan), "prior_shape"),
        (lambda: attention.lognormal(scale=0.0), "scale"),
        (lambda: attention.lognormal(prior_scale=-2.0), "prior_scale"),
        (lambda: attention.gaussian_logits(scale=True), "scale"),
        (lambda: attention.gumbel_softmax(temperature=0.0), "temperature"),
        (
            lambda: attention.gumbel_softmax(prior="learned"),
            "prior='learned': gumbel_softmax has nothing to learn",
        ),
        (lambda: attention.gumbel_softmax(scope="head"), "scope='head': gumbel_softmax has nothing to learn"),
        (lambda: replace(ENCODER, attention="linear"), "attention"),
        (lambda: replace(ENCODER, attention=3), "attention is one of softmax, dirichlet"),
    ],
)
def test_bad_settings_are_refused_by_name(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_a_kind_is_itself_its_class_or_its_name():
    same = [
        replace(ENCODER, attention=each) for each in ("dirichlet", attention.dirichlet, attention.dirichlet())
    ]
    assert same[0] == same[1] == same[2]
    assert len({hash(each) for each in same}) == 1
    assert replace(ENCODER, attention="softmax") == ENCODER
    assert attention.dirichlet(sharpness=20) == attention.dirichlet(sharpness=20.0)


IMAGES = RNG.normal(size=(5, 4, 4))
ENGINES = [MAP(num_steps=4, num_chains=2, batch_size=2), SVI(num_steps=4, num_draws=3, batch_size=2)]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: type(engine).__name__)
def test_a_vision_transformer_is_fitted_and_its_rows_are_predicted(engine):
    network = VisionTransformer(
        image_size=(4, 4),
        patch_size=2,
        num_layers=1,
        num_heads=1,
        width=4,
        mlp_width=4,
        num_outputs=3,
        pooling="class",
        attention=attention.dirichlet(scope="layer"),
    )
    model, data = bayesian(network, priors.normal(), likelihoods.categorical), (IMAGES, np.arange(5) % 3)
    posterior = ptx.infer(0, model, data, engine, progress=False)
    chains, draws = posterior.num_chains, posterior.num_draws
    assert posterior.constrained()["attention.sharpness"].shape == (chains, draws, 1)
    assert not any(name.startswith("attention.probs") for name in posterior.draws)
    assert all(np.isfinite(values).all() for values in posterior.history.values())
    kept = ["attention.probs", "targets"]
    predicted = ptx.predict(0, posterior, IMAGES[:3], row_draws=2, sites=kept)
    rows = predicted.deterministic["attention.probs"]
    assert rows.shape == (chains, 2 * draws, 3, 1, 1, 5, 5)
    np.testing.assert_allclose(rows.sum(-1), 1, atol=1e-5)
    assert np.abs(rows[:, 0] - rows[:, 1]).max((-1, -2)).min() > 1e-3  # another draw, other rows
    assert predicted.mean_probabilities().shape == (3, 3)
    assert set(predicted.deterministic) == {"attention.probs"}
    assert "attention.probs" not in ptx.predict(0, posterior, IMAGES[:3], simulated=False).deterministic


@pytest.mark.filterwarnings("ignore:NUTS. .*:RuntimeWarning")
@pytest.mark.slow
def test_nuts_takes_rows_and_weights_jointly():
    engine = NUTS(num_draws=5, num_warmup=5, num_chains=1, max_tree_depth=4)
    posterior = ptx.infer(0, model_of("dirichlet"), (VECTORS, LABELS), engine, progress=False)
    rows = posterior.constrained()["attention.probs.0"]
    assert rows.shape == (1, 5, 4, 2, 3, 3)
    np.testing.assert_allclose(rows.sum(-1), 1, atol=1e-5)
