"""Pure functions that networks share, against NumPy and SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from ptx.masked_softmax import softmax
from ptx.models import MLP, Transformer, VisionTransformer, Weight, attention
from ptx.models.network import layer_norm, rms_norm
from ptx.models.sequence import pool, sinusoids

RNG = np.random.default_rng(0)


def test_softmax_without_mask_is_scipys():
    scores = RNG.normal(size=(2, 3, 4, 5)) * 10
    np.testing.assert_allclose(
        softmax(jnp.asarray(scores)), scipy.special.softmax(scores, axis=-1), rtol=1e-5
    )


def test_masked_keys_get_exactly_zero_and_the_rest_is_the_softmax_over_what_is_left():
    scores = RNG.normal(size=(1, 1, 3, 5))
    mask = np.array([True, False, True, True, False])[None, None, None]
    got = np.asarray(softmax(jnp.asarray(scores), jnp.asarray(mask)))
    assert np.all(got[..., ~mask[0, 0, 0]] == 0.0)
    want = scipy.special.softmax(scores[..., mask[0, 0, 0]], axis=-1)
    np.testing.assert_allclose(got[..., mask[0, 0, 0]], want, rtol=1e-5)


def test_a_query_without_keys_gets_zeros_and_zero_gradient():
    scores = jnp.asarray(RNG.normal(size=(1, 1, 2, 4)))
    mask = jnp.asarray([[True, True, False, True], [False] * 4])[None, None]
    cotangent = jnp.asarray(RNG.normal(size=scores.shape))
    probabilities, gradient = jax.value_and_grad(lambda s: jnp.vdot(softmax(s, mask), cotangent))(scores)
    assert np.all(softmax(scores, mask)[0, 0, 1] == 0.0)
    assert np.isfinite(probabilities)
    assert np.all(gradient[0, 0, 1] == 0.0)
    assert np.all(np.isfinite(gradient))
    assert np.any(gradient[0, 0, 0] != 0.0)


@pytest.mark.parametrize("largest", [1e4, 3e38])
def test_large_scores_neither_overflow_nor_leak_through_the_mask(largest):
    scores = jnp.asarray([[[largest, 0.0, -largest, largest]]], jnp.float32)
    got = softmax(scores, jnp.asarray([[[True, True, True, False]]]))
    np.testing.assert_array_equal(got, [[[1.0, 0.0, 0.0, 0.0]]])


def test_softmax_of_bfloat16_is_computed_in_float32():
    assert softmax(jnp.ones((1, 2, 3), jnp.bfloat16)).dtype == jnp.float32


def test_norms_are_their_formulas():
    x = RNG.normal(size=(7, 5)) * 3 + 2
    with jax.enable_x64(True):
        got_layer, got_rms = np.asarray(layer_norm(jnp.asarray(x))), np.asarray(rms_norm(jnp.asarray(x)))
    mean, variance = x.mean(axis=1, keepdims=True), x.var(axis=1, keepdims=True)
    np.testing.assert_allclose(got_layer, (x - mean) / np.sqrt(variance + 1e-5), rtol=1e-12)
    np.testing.assert_allclose(got_rms, x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-5), rtol=1e-12)


@pytest.mark.parametrize("norm", [layer_norm, rms_norm])
def test_norms_of_zeros_have_finite_gradients(norm):
    assert np.all(np.isfinite(jax.jacobian(norm)(jnp.zeros((1, 4)))))


@pytest.mark.parametrize("width", [6, 7])
def test_sinusoids_are_the_published_formula(width):
    got = np.asarray(sinusoids(9, width))
    for t in range(9):
        for i in range(0, width, 2):
            angle = t / 10000 ** (i / width)
            assert got[t, i] == pytest.approx(np.sin(angle), abs=1e-6)
            if i + 1 < width:
                assert got[t, i + 1] == pytest.approx(np.cos(angle), abs=1e-6)


@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
def test_pooling_takes_real_positions_only(pooling):
    hidden = RNG.normal(size=(3, 5, 2))
    mask = np.array([[0, 1, 1, 0, 1], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0]], bool)
    hidden[~mask] = np.nan
    got = np.asarray(pool(jnp.asarray(hidden), jnp.asarray(mask), pooling))
    want = {"mean": hidden[0, [1, 2, 4]].mean(axis=0), "first": hidden[0, 1], "last": hidden[0, 4]}[pooling]
    np.testing.assert_allclose(got[0], want, rtol=1e-6)
    np.testing.assert_allclose(got[1], hidden[1, 0], rtol=1e-6)
    assert np.all(got[2] == 0.0)


NETWORKS = {
    "mlp": MLP(num_features=3, num_outputs=2, hidden=(4, 4)),
    "encoder": Transformer(
        vocab_size=9, max_length=6, num_layers=3, num_heads=2, width=8, num_outputs=4, norm_bias=True
    ),
    "decoder": Transformer(
        vocab_size=9, max_length=6, num_layers=3, num_heads=2, width=8, num_outputs=9,
        pooling=None, tied=True, causal=True, activation="swiglu",
    ),
    "vectors": Transformer(num_features=5, max_length=6, num_layers=1, num_heads=1, width=8, num_outputs=1),
    "vision": VisionTransformer(
        image_size=(4, 6), patch_size=2, num_layers=2, num_heads=2, width=8, num_outputs=3, pooling="class"
    ),
}  # fmt: skip


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_dim_names_have_one_length_each_and_are_no_site_names(network):
    lengths = {}
    for weight in network.weights.values():
        for dim, length in zip(weight.dims, weight.shape, strict=True):
            assert lengths.setdefault(dim, length) == length
    assert not set(lengths) & {*network.weights, "chain", "draw", "row", "token"}
    assert not any("/" in name for name in network.weights)
    assert network.output_dims[0] == "row"


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_fan_in_is_the_number_of_terms_summed(network):
    """With unit inputs and unit kernels, an output of a linear map is its fan-in."""
    for name, weight in network.weights.items():
        if weight.fan_in is None:
            assert name.endswith(("bias", "gain", "token", "position", "class"))
            continue
        summed = {"attention.output": ("head", "head_dim")}.get(
            name, (weight.dims[weight.dims[0] == "layer"],)
        )
        sizes = dict(zip(weight.dims, weight.shape, strict=True))
        assert weight.fan_in == np.prod([sizes[dim] for dim in summed]), name


def test_only_norm_gains_are_centred_at_one():
    for network in NETWORKS.values():
        for name, weight in network.weights.items():
            assert weight.center == (1.0 if name.endswith("norm.gain") else 0.0)


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_networks_hash_and_print_by_value(network):
    scope = {
        "MLP": MLP,
        "Transformer": Transformer,
        "VisionTransformer": VisionTransformer,
        **attention.KINDS,
    }
    again = eval(repr(network), scope)
    assert again == network
    assert hash(again) == hash(network)


def test_a_weight_needs_a_distinct_name_per_axis():
    with pytest.raises(ValueError, match="one distinct name per axis"):
        Weight((2, 2), ("embed", "embed"))
    with pytest.raises(ValueError, match="one distinct name per axis"):
        Weight((2, 2), ("embed",))
