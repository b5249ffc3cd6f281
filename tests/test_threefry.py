"""The fused generator gives JAX's own numbers."""

import jax
import numpy as np
import pytest

from ptx.threefry import SMALL, fused

SHAPES = [(), (3,), (SMALL - 1,), (SMALL,), (40, 50), (3, 7, 211)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32"])
def test_bits_are_those_of_jax(shape, dtype):
    key = jax.random.fold_in(jax.random.key(3), 2**31)
    ours = jax.jit(lambda key: jax.random.bits(fused(key), shape, dtype))(key)
    np.testing.assert_array_equal(ours, jax.random.bits(key, shape, dtype))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_float64_bits_are_those_of_jax(shape):
    with jax.enable_x64(True):
        key = jax.random.key(11)
        np.testing.assert_array_equal(
            jax.random.bits(fused(key), shape, "uint64"), jax.random.bits(key, shape, "uint64")
        )


def test_keys_made_from_it_are_those_of_jax():
    key = jax.random.key(5)
    for make in (
        lambda k: jax.random.split(k, 3),
        lambda k: jax.random.fold_in(k, 7),
        lambda k: jax.random.split(k, (2, 2)),
    ):
        ours, theirs = make(fused(key)), make(key)
        assert ours.shape == theirs.shape
        np.testing.assert_array_equal(jax.random.key_data(ours), jax.random.key_data(theirs))


def test_vmapped_keys_give_jax_numbers():
    keys = jax.random.split(jax.random.key(0), 4)
    draw = lambda key: jax.random.normal(key, (2000,))  # noqa: E731
    np.testing.assert_array_equal(jax.vmap(lambda key: draw(fused(key)))(keys), jax.vmap(draw)(keys))


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_other_generators_pass_through(impl):
    key = jax.random.key(0, impl=impl)
    assert fused(key) is key


def test_older_threefry_passes_through():
    with jax.threefry_partitionable(False):
        key = jax.random.key(0)
        assert fused(key) is key
