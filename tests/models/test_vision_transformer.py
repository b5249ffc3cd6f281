"""The vision transformer against plain NumPy, and its checks."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models import reference

from ptx.models import VisionTransformer

MEAN = VisionTransformer(
    image_size=(4, 6), patch_size=2, num_layers=2, num_heads=2, width=8, num_outputs=3, num_channels=2
)
GREY = replace(MEAN, num_channels=1)


def patches(network, images):
    """Flattened patches, cut by slicing."""
    side, (height, width) = network.patch_size, network.image_size
    corners = [(top, left) for top in range(0, height, side) for left in range(0, width, side)]
    cut = [images[:, top : top + side, left : left + side].reshape(len(images), -1) for top, left in corners]
    return np.stack(cut, axis=1)


def call(network, weights, images):
    with jax.enable_x64(True), jax.numpy_rank_promotion("raise"):
        weights = {name: jnp.asarray(w) for name, w in weights.items()}
        return np.asarray(jax.jit(network.__call__)(weights, jnp.asarray(images)))


def test_mean_pooling_is_a_transformer_over_patches():
    weights, images = reference.draw_weights(MEAN), np.random.default_rng(1).normal(size=(3, 4, 6, 2))
    want = reference.transformer(MEAN.transformer, weights, patches(MEAN, images))
    np.testing.assert_allclose(call(MEAN, weights, images), want, rtol=1e-9)


def test_the_class_token_stands_in_front_and_is_read_out():
    network = replace(MEAN, pooling="class", num_layers=1, positions="sinusoidal")
    weights, images = reference.draw_weights(network), np.random.default_rng(1).normal(size=(3, 4, 6, 2))
    assert network.weights["embedding.class"].shape == (8,)
    # A transformer whose vectors are the embedded patches already: its embedding is the identity.
    embedded = patches(network, images) @ weights["embedding.kernel"] + weights["embedding.bias"]
    token = np.broadcast_to(weights["embedding.class"], (3, 1, 8))
    inner = replace(network.transformer, num_features=8)
    plain = weights | {"embedding.kernel": np.eye(8), "embedding.bias": np.zeros(8)}
    want = reference.transformer(inner, plain, np.concatenate([token, embedded], axis=1))
    np.testing.assert_allclose(call(network, weights, images), want, rtol=1e-9)


def test_a_channel_axis_of_one_may_be_left_out():
    weights, images = reference.draw_weights(GREY), np.random.default_rng(1).normal(size=(3, 4, 6))
    GREY.check(images)
    GREY.check(images[..., None])
    np.testing.assert_array_equal(call(GREY, weights, images), call(GREY, weights, images[..., None]))


def test_integer_pixels_are_the_same_numbers():
    weights = reference.draw_weights(GREY)
    images = np.random.default_rng(1).integers(0, 255, size=(2, 4, 6)).astype(np.uint8)
    GREY.check(images)
    np.testing.assert_allclose(
        call(GREY, weights, images), call(GREY, weights, images.astype(float)), rtol=1e-12
    )


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        (np.zeros((3, 6, 4)), ValueError, r"images must have shape \(rows, 4, 6\).*got \(3, 6, 4\)"),
        (np.zeros((3, 4, 6, 3)), ValueError, r"images must have shape \(rows, 4, 6, 1\)"),
        (np.zeros((4, 6)), ValueError, "images must have shape"),
        (np.zeros((0, 4, 6)), ValueError, "no axis of length 0"),
        (np.full((1, 4, 6), np.nan), ValueError, "row 0, position 0, axis 2 0 holds nan"),
    ],
)
def test_bad_images_are_refused_at_the_door(images, error, message):
    with pytest.raises(error, match=message):
        GREY.check(images)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"patch_size": 3},
            ValueError,
            r"patch_size must divide both sides of the image, got 3 and \(4, 6\)",
        ),
        ({"image_size": 4}, TypeError, r"image_size must be \(height, width\), got 4"),
        ({"pooling": "first"}, ValueError, "pooling must be one of 'mean', 'class'"),
        ({"width": 9}, ValueError, "multiple of num_heads"),
        ({"num_channels": 0}, ValueError, "num_channels must be at least 1"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        replace(GREY, **options)
