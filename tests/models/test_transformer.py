"""The transformer against plain NumPy in float64, its gradients, its symmetries and its checks."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from models import reference
from numpyro import handlers

from ptx.masked_softmax import softmax
from ptx.models import Transformer

SIZES = {"max_length": 7, "num_layers": 2, "num_heads": 2, "width": 8, "num_outputs": 3}
ENCODER = Transformer(vocab_size=11, **SIZES)
NETWORKS = {
    "encoder": ENCODER,
    "first, sinusoidal, rms, swiglu": replace(
        ENCODER, pooling="first", positions="sinusoidal", norm="rms", activation="swiglu", norm_bias=True
    ),
    "last, causal, no biases or gains": replace(
        ENCODER, pooling="last", causal=True, bias=False, norm_gain=False, num_heads=4, mlp_width=5
    ),
    "tags": replace(ENCODER, pooling=None, num_layers=1, norm_bias=True),
    "language model": replace(ENCODER, pooling=None, causal=True, tied=True, num_outputs=11, num_layers=3),
    "deep": replace(ENCODER, num_layers=6, num_heads=1, width=4),
    "vectors without positions": replace(
        ENCODER, vocab_size=None, num_features=5, positions=None, activation="swiglu", norm="rms"
    ),
    "odd width": replace(
        ENCODER, vocab_size=None, num_features=2, width=7, num_heads=1, positions="sinusoidal"
    ),
}
# Padding to the right, to the left and inside; one token alone; no token at all.
MASK = np.array(
    [
        [1, 1, 1, 1, 1, 1],
        [1, 1, 1, 0, 0, 0],
        [0, 0, 1, 1, 1, 1],
        [1, 0, 1, 1, 0, 1],
        [0, 0, 0, 1, 0, 0],
        [0, 0, 0, 0, 0, 0],
    ],
    bool,
)


def content_for(network, rows=6, length=6, seed=3):
    rng = np.random.default_rng(seed)
    if network.vocab_size is not None:
        return rng.integers(0, network.vocab_size, size=(rows, length))
    return rng.normal(size=(rows, length, network.num_features))


def with_mask(network, content, mask):
    return {"tokens" if network.vocab_size is not None else "vectors": content, "mask": mask}


def call(network, weights, x, dtype=np.float64):
    """Outputs, compiled, with rank promotion an error."""
    with jax.enable_x64(dtype == np.float64), jax.numpy_rank_promotion("raise"):
        weights = {name: jnp.asarray(w, dtype) for name, w in weights.items()}
        return np.asarray(jax.jit(network.__call__)(weights, jax.tree.map(jnp.asarray, x)))


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("masked", [True, False])
def test_outputs_are_those_of_plain_numpy(network, masked):
    weights, content = reference.draw_weights(network), content_for(network)
    x = with_mask(network, content, MASK) if masked else content
    want = reference.transformer(network, weights, content, MASK if masked else None)
    np.testing.assert_allclose(call(network, weights, x), want, rtol=1e-9, atol=1e-9)
    if masked:
        single = call(network, weights, x, np.float32)
        assert single.dtype == np.float32
        np.testing.assert_allclose(single, want, rtol=2e-4, atol=2e-4 * np.abs(want).max())


@pytest.mark.parametrize("name", ["first, sinusoidal, rms, swiglu", "language model", "deep"])
def test_gradients_are_finite_differences(name):
    network = NETWORKS[name]
    content, weights = content_for(network), reference.draw_weights(network)
    rng = np.random.default_rng(5)
    with jax.enable_x64(True):
        x = with_mask(network, jnp.asarray(content), jnp.asarray(MASK))
        weights = {site: jnp.asarray(w) for site, w in weights.items()}
        cotangent = jnp.asarray(rng.normal(size=jax.eval_shape(network, weights, x).shape))
        value = jax.jit(lambda w: jnp.vdot(network(w, x), cotangent))
        gradient = jax.jit(jax.grad(value))(weights)
        for site, weight in weights.items():
            direction = jnp.asarray(rng.normal(size=weight.shape))
            ahead = value(weights | {site: weight + 1e-6 * direction})
            behind = value(weights | {site: weight - 1e-6 * direction})
            slope = float(jnp.vdot(gradient[site], direction))
            assert slope == pytest.approx(float(ahead - behind) / 2e-6, rel=1e-6, abs=1e-6), site
            assert slope != 0.0, site


@pytest.mark.parametrize(
    "name", ["encoder", "tags", "last, causal, no biases or gains", "vectors without positions"]
)
@pytest.mark.parametrize("side", ["right", "left"])
def test_a_sentence_alone_equals_the_same_sentence_padded_in_a_batch(name, side):
    network = replace(NETWORKS[name], max_length=64)
    weights = reference.draw_weights(network)
    sentence, batch = content_for(network, rows=1, length=5), content_for(network, rows=4, length=64, seed=4)
    place = slice(0, 5) if side == "right" else slice(59, 64)
    batch[2, place] = sentence[0]
    mask = np.ones((4, 64), bool)
    mask[2] = False
    mask[2, place] = True
    alone = call(network, weights, sentence, np.float32)[0]
    padded = call(network, weights, with_mask(network, batch, mask), np.float32)[2]
    padded = padded[place] if network.pooling is None else padded
    np.testing.assert_allclose(padded, alone, rtol=1e-5, atol=1e-5 * np.abs(alone).max())
    unmasked = call(network, weights, batch, np.float32)[2]
    unmasked = unmasked[place] if network.pooling is None else unmasked
    causal_prefix = network.causal and side == "right" and network.pooling is None
    assert causal_prefix or not np.allclose(unmasked, alone, rtol=1e-2)


@pytest.mark.parametrize("name", ["encoder", "vectors without positions", "language model"])
def test_what_padding_holds_makes_no_difference_to_the_last_bit(name):
    network = NETWORKS[name]
    weights, content = reference.draw_weights(network), content_for(network)
    junk = content.copy()
    junk[~MASK] = -7 if network.vocab_size is not None else np.nan
    network.check(with_mask(network, junk, MASK))
    want = call(network, weights, with_mask(network, content, MASK), np.float32)
    np.testing.assert_array_equal(call(network, weights, with_mask(network, junk, MASK), np.float32), want)


@pytest.mark.parametrize("name", ["encoder", "language model", "vectors without positions"])
def test_a_row_of_padding_leaves_gradients_finite_and_the_other_rows_alone(name):
    network = NETWORKS[name]
    weights = {site: jnp.asarray(w, jnp.float32) for site, w in reference.draw_weights(network).items()}
    content, mask = jnp.asarray(content_for(network)), np.ones((6, 6), bool)

    @jax.jit
    def run(mask):
        def total(weights):
            outputs = network(weights, with_mask(network, content, mask))
            return jnp.sum(jnp.square(outputs)), outputs

        gradient, outputs = jax.grad(total, has_aux=True)(weights)
        return outputs, gradient

    whole, _ = run(jnp.asarray(mask))
    mask[1] = False
    outputs, gradient = run(jnp.asarray(mask))
    assert np.all(np.isfinite(outputs))
    assert all(np.all(np.isfinite(g)) for g in gradient.values())
    others = np.arange(6) != 1
    np.testing.assert_array_equal(outputs[others], whole[others])
    assert not np.array_equal(outputs[1], whole[1])


def test_permuting_tokens_under_a_mask_permutes_outputs():
    order = np.array([3, 0, 5, 1, 4, 2])
    for pooling, positions in [("mean", None), (None, None), ("mean", "learned")]:
        network = replace(ENCODER, pooling=pooling, positions=positions)
        weights, content = reference.draw_weights(network), content_for(network)
        outputs = call(network, weights, {"tokens": content, "mask": MASK})
        moved = call(network, weights, {"tokens": content[:, order], "mask": MASK[:, order]})
        want = outputs if pooling == "mean" else outputs[:, order]
        assert np.allclose(moved, want, rtol=1e-9, atol=1e-9) == (positions is None)


def test_permuting_heads_changes_nothing():
    network = replace(ENCODER, num_heads=4)
    weights, content = reference.draw_weights(network), content_for(network)
    order = np.array([2, 0, 3, 1])
    axis = {name: w.dims.index("head") for name, w in network.weights.items() if "head" in w.dims}
    assert set(axis) == {f"attention.{name}" for name in ("query", "key", "value", "output", "query.bias")}
    permuted = weights | {name: np.take(weights[name], order, axis=i) for name, i in axis.items()}
    outputs = call(network, weights, content)
    np.testing.assert_allclose(call(network, permuted, content), outputs, rtol=1e-9)
    only_query = weights | {"attention.query": permuted["attention.query"]}
    assert not np.allclose(call(network, only_query, content), outputs, rtol=1e-3)


@pytest.mark.parametrize("causal", [True, False])
def test_only_an_encoder_looks_ahead(causal):
    network = replace(ENCODER, pooling=None, causal=causal)
    weights, content = reference.draw_weights(network), content_for(network)
    changed = content.copy()
    changed[:, 3] = (changed[:, 3] + 1) % 11
    before, after = (call(network, weights, x, np.float32) for x in (content, changed))
    assert np.array_equal(before[:, :3], after[:, :3]) == causal
    assert not np.any(np.all(before[:, 3:] == after[:, 3:], axis=-1))


def test_rows_are_independent():
    weights, content = reference.draw_weights(ENCODER), content_for(ENCODER)
    outputs = call(ENCODER, weights, content)
    np.testing.assert_allclose(call(ENCODER, weights, content[::-1].copy())[::-1], outputs, rtol=1e-12)
    np.testing.assert_allclose(call(ENCODER, weights, content[:1])[0], outputs[0], rtol=1e-9)


def lowered_lines(num_layers, attend=softmax):
    network = replace(ENCODER, num_layers=num_layers)
    weights = {name: jax.ShapeDtypeStruct(w.shape, jnp.float32) for name, w in network.weights.items()}
    tokens = jax.ShapeDtypeStruct((2, 5), jnp.int32)
    gradient = jax.grad(lambda w, x: jnp.sum(network(w, x, attend)))
    return len(jax.jit(gradient).lower(weights, tokens).as_text().splitlines())


def test_the_program_does_not_grow_with_depth():
    assert lowered_lines(24) == lowered_lines(6)

    def unrolled(scores, mask, layer):
        return softmax(scores, mask)

    assert lowered_lines(8, unrolled) > 1.5 * lowered_lines(4, unrolled)  # the count does see growth


@pytest.mark.parametrize("name", ["encoder", "deep"])
def test_attention_sits_on_a_seam_called_once_per_layer(name):
    network = NETWORKS[name]
    weights, content = reference.draw_weights(network), content_for(network)
    shapes = []

    def attend(scores, mask, layer):
        shapes.append((scores.shape, mask.shape))
        return softmax(scores, mask)

    with jax.enable_x64(True):
        x = {"tokens": jnp.asarray(content), "mask": jnp.asarray(MASK)}
        got = network({site: jnp.asarray(w) for site, w in weights.items()}, x, attend)
    assert shapes == [((6, network.num_heads, 6, 6), (6, 1, 1, 6))] * network.num_layers
    np.testing.assert_allclose(
        got, reference.transformer(network, weights, content, MASK), rtol=1e-9, atol=1e-9
    )


def test_attention_may_hold_one_sample_site_per_layer():
    weights, tokens = reference.draw_weights(ENCODER), jnp.asarray(content_for(ENCODER))

    def program():
        layers = iter(range(ENCODER.num_layers))

        def attend(scores, mask, layer):
            noise = dist.Normal(0.0, 1.0).expand(scores.shape).to_event(3)
            return softmax(scores + numpyro.sample(f"attention.scores.{next(layers)}", noise), mask)

        numpyro.deterministic("outputs", ENCODER(weights, tokens, attend))

    def run(rng_key):
        trace = handlers.trace(handlers.seed(program, rng_key)).get_trace()
        return {name: site["value"] for name, site in trace.items()}

    sites = jax.eval_shape(run, jax.random.key(0))
    assert {name: site.shape for name, site in sites.items()} == {
        "attention.scores.0": (6, 2, 6, 6),
        "attention.scores.1": (6, 2, 6, 6),
        "outputs": (6, 3),
    }


IDS = np.zeros((2, 5), int)


def ids_with(row, column, value, dtype=np.int64):
    ids = np.zeros((2, 5), dtype)
    ids[row, column] = value
    return ids


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        (ids_with(1, 3, 11), ValueError, r"tokens must be in \[0, 11\): row 1, position 3 holds 11"),
        (ids_with(0, 2, 16), ValueError, "row 0, position 2 holds 16"),
        (ids_with(1, 4, -1), ValueError, "row 1, position 4 holds -1"),
        (ids_with(1, 0, 2**33 + 5), ValueError, "row 1, position 0 holds 8589934597"),
        (ids_with(1, 0, 2**63 + 5, np.uint64), ValueError, "row 1, position 0 holds 9223372036854775813"),
        (IDS.astype(np.float32), TypeError, r"tokens must be integers in \[0, 11\), got dtype float32"),
        (IDS.astype(bool), TypeError, "got dtype bool"),
        (np.zeros(5, int), ValueError, r"tokens must have shape \(rows, length\).*got \(5,\)"),
        (np.zeros((2, 5, 1), int), ValueError, r"tokens must have shape \(rows, length\)"),
        (np.zeros((2, 8), int), ValueError, "tokens have 8 positions, more than max_length=7"),
        (np.zeros((0, 5), int), ValueError, "no axis of length 0"),
        (np.zeros((2, 0), int), ValueError, "no axis of length 0"),
        ({"tokens": IDS, "mask": np.ones((2, 5))}, TypeError, "mask must be boolean.*got float64"),
        ({"tokens": IDS, "mask": np.ones((2, 5), int)}, TypeError, "mask must be boolean"),
        ({"tokens": IDS, "mask": np.ones((5, 2), bool)}, ValueError, r"mask must have shape \(2, 5\)"),
        ({"tokens": IDS, "mask": np.ones((2, 5, 1), bool)}, ValueError, r"mask must have shape \(2, 5\)"),
        ({"vectors": IDS}, ValueError, r"mapping of 'tokens' and 'mask'; got the keys \['vectors'\]"),
        ({"tokens": IDS, "masks": IDS}, ValueError, "got the keys"),
        ({"tokens": ids_with(1, 2, 99), "mask": IDS == 0}, ValueError, "row 1, position 2 holds 99"),
    ],
)
def test_bad_tokens_and_masks_are_refused_at_the_door(inputs, error, message):
    with pytest.raises(error, match=message):
        ENCODER.check(inputs)


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        (np.zeros((2, 5)), ValueError, r"vectors must have shape \(rows, length, 5\)"),
        (np.zeros((2, 5, 4)), ValueError, r"vectors must have shape \(rows, length, 5\).*got \(2, 5, 4\)"),
        (np.where(np.arange(50) == 31, np.nan, 0).reshape(2, 5, 5), ValueError, "row 1, position 1, axis 2 1"),
        (np.full((2, 5, 5), np.inf), ValueError, "must be finite"),
    ],
)  # fmt: skip
def test_bad_vectors_are_refused_at_the_door(inputs, error, message):
    with pytest.raises(error, match=message):
        NETWORKS["vectors without positions"].check(inputs)


def test_good_inputs_pass():
    ENCODER.check(IDS)
    ENCODER.check(IDS.tolist())
    ENCODER.check(jnp.asarray(IDS))
    ENCODER.check({"tokens": IDS.astype(np.uint8)})
    ENCODER.check({"tokens": IDS[:1], "mask": np.zeros((1, 5), bool)})


def test_a_sequence_too_long_is_refused_while_tracing_too():
    weights = reference.draw_weights(ENCODER)
    with pytest.raises(ValueError, match="sequences have 8 positions, more than max_length=7"):
        call(ENCODER, weights, {"tokens": np.zeros((1, 8), int), "mask": np.ones((1, 8), bool)})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"vocab_size": None}, ValueError, "either vocab_size .* or num_features"),
        ({"num_features": 3}, ValueError, "either vocab_size .* or num_features"),
        ({"width": 9}, ValueError, "width must be a multiple of num_heads, got 9 and 2"),
        ({"tied": True}, ValueError, "needs pooling=None and num_outputs=vocab_size"),
        ({"tied": True, "pooling": None}, ValueError, "needs pooling=None and num_outputs=vocab_size"),
        ({"num_layers": 0}, ValueError, "num_layers must be at least 1"),
        ({"num_heads": 2.0}, TypeError, "num_heads must be a whole number"),
        ({"max_length": True}, TypeError, "max_length must be a whole number"),
        ({"pooling": "max"}, ValueError, "pooling must be one of 'mean', 'first', 'last', None, got 'max'"),
        ({"positions": "rotary"}, ValueError, "positions must be one of"),
        ({"norm": "batch"}, ValueError, "norm must be one of"),
        ({"activation": "relu"}, ValueError, "activation must be one of"),
        ({"causal": 1}, TypeError, "causal must be True or False"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        replace(ENCODER, **options)
