"""JAX's default random bits at the price of plain arithmetic, which XLA fuses into what uses them."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.random import define_prng_impl
from jaxtyping import Array, PRNGKeyArray, UInt32

SMALL = 1024  # below it JAX's own generator costs little, and compiles faster


def fused(rng_key: PRNGKeyArray) -> PRNGKeyArray:
    """A key that gives the same numbers as `rng_key`, bit by bit, where those are Threefry's; other keys pass through.

    JAX's generator passes over memory every four rounds on CPU; this one computes large arrays by `threefry_2x32`
    within the loop that uses the bits, several times faster. Keys split or folded from this one are of its kind.
    It is meant for use inside compiled code, not for keeping: turn it back with `jax.random.key_data`.
    """
    is_threefry = str(jax.random.key_impl(rng_key)) == "threefry2x32"
    if not is_threefry or not _partitionable():
        return rng_key
    return jax.random.wrap_key_data(jax.random.key_data(rng_key), impl=_FUSED)


def _partitionable() -> bool:
    """Whether JAX numbers its random words one by one, as it does by default."""
    return bool(getattr(jax.config, "jax_threefry_partitionable"))  # noqa: B009  (made at run time)


def threefry_2x32(key: UInt32[Array, "2"], first: Array, second: Array) -> tuple[Array, Array]:
    """Threefry-2x32 with 20 rounds (Salmon et al. 2011): two random words from a counter of two words."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ np.uint32(0x1BD11BDA))
    first, second = first + keys[0], second + keys[1]
    for group in range(5):
        for distance in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            first = first + second
            second = ((second << distance) | (second >> (32 - distance))) ^ first
        first = first + keys[(group + 1) % 3]
        second = second + keys[(group + 2) % 3] + np.uint32(group + 1)
    return first, second


def _plain(key: UInt32[Array, "2"]) -> PRNGKeyArray:
    return jax.random.wrap_key_data(key, impl="threefry2x32")


def _split(key: UInt32[Array, "2"], shape: tuple[int, ...]) -> UInt32[Array, "... 2"]:
    return jax.random.key_data(jax.random.split(_plain(key), shape))


def _fold_in(key: UInt32[Array, "2"], data: Any) -> UInt32[Array, "2"]:
    return jax.random.key_data(jax.random.fold_in(_plain(key), data))


def _bits(key: UInt32[Array, "2"], bit_width: int, shape: tuple[int, ...]) -> Array:
    """As `jax.random.bits`: entry n is made of the two words at counter n."""
    size, dtype = math.prod(shape), jnp.dtype(f"uint{bit_width}")
    if not SMALL <= size < 2**32:
        return jax.random.bits(_plain(key), shape, dtype)
    high, low = threefry_2x32(key, jnp.zeros(shape, jnp.uint32), lax.iota(jnp.uint32, size).reshape(shape))
    if bit_width == 64:
        return (high.astype(dtype) << 32) | low.astype(dtype)
    return (high ^ low).astype(dtype)


_FUSED = define_prng_impl(
    key_shape=(2,),
    seed=lambda seed: jax.random.key_data(jax.random.key(seed, impl="threefry2x32")),
    split=_split,
    random_bits=_bits,
    fold_in=_fold_in,
    name="fused_threefry2x32",
    tag="ptx",
)
