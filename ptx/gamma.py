"""Logarithms of gamma variates for whole arrays at once, with their derivative in the shape."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

from ptx.gamma_gradient import log_gamma_gradient
from ptx.threefry import threefry_2x32

# Each round fills at least 95 % of the words it works on, so that 256 rounds leave an entry empty with a
# probability far below 1e-200; the bound is there so that no accelerator can ever be held by the loop.
MAX_ROUNDS = 256


def log_gamma(
    rng_key: PRNGKeyArray, shape_parameter: Float[Array, "..."], least: float = 0.0
) -> Float[Array, "..."]:
    """z = log g with g ~ Gamma(alpha, 1), independently for each entry alpha of `shape_parameter`.

    Marsaglia and Tsang (2000): with a = alpha (+ 1 where alpha < 1), d = a - 1/3, e = n / (3 sqrt(d)) and n standard
    normal, d (1 + e)^3 is kept with probability h = exp(3 d (log(1 + e) - e + e^2/2 - e^3/3)). Where alpha < 1
    the variate is g = g' U^(1/alpha), g' ~ Gamma(alpha + 1, 1), in the logarithm, so that nothing underflows: z is of
    the order -1/alpha. The uniform that decided, u < h, serves as U = u / h: given that it was kept it is uniform
    and independent of n. So an entry costs one normal and one uniform. Rejected entries (at most 5 %) are drawn
    again in rounds, one entry of every 32 a round, until none is left.

    The result has the shape and dtype of `shape_parameter` (float16 and bfloat16 are computed in float32), and is
    nan where alpha is not positive and finite, or is below `least`. It depends on the key alone, is exact up to
    rounding (the normal's tails end at 5.4 in float32, as those of `jax.random.normal`), and its resolution in float32
    is about max(6e-8 |z|, 6e-8 / alpha). Its derivative is `log_gamma_gradient`; second derivatives are those of that
    approximation. Works under jit, vmap and grad.
    """
    alpha = jnp.asarray(shape_parameter)
    if not jnp.issubdtype(alpha.dtype, jnp.floating):
        raise TypeError(
            f"expected a floating-point shape_parameter, got {alpha.dtype}; convert it to a float dtype"
        )
    seed = jax.random.bits(rng_key, (2,), jnp.uint32)
    working = jnp.promote_types(alpha.dtype, jnp.float32)
    least = float(np.asarray(least, alpha.dtype))  # rounded as an alpha of this value is
    return _log_gamma(least, seed, alpha.astype(working)).astype(alpha.dtype)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _log_gamma(least: float, seed: UInt32[Array, "2"], alpha: Array) -> Array:
    return _fill(seed, alpha.reshape(-1), least).reshape(alpha.shape) if alpha.size else alpha


@_log_gamma.defjvp
def _log_gamma_jvp(least: float, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (seed, alpha), (_, alpha_tangent) = primals, tangents
    z = _log_gamma(least, seed, alpha)
    return z, log_gamma_gradient(alpha, z) * alpha_tangent


@partial(jax.jit, static_argnums=2)
def _fill(
    seed: UInt32[Array, "2"], alpha: Float[Array, " entries"], least: float = 0.0
) -> Float[Array, " entries"]:
    """Propose for all, then for the rejected alone, which are kept as set bits of words of 32 entries.

    Once few words have bits left these are gathered, so that the last rounds, for a handful of entries, are cheap.
    """
    num_words = max(-(-alpha.size // 32), 1)
    few = max(num_words // 16, 1)
    valid = (alpha >= max(least, float(jnp.finfo(alpha.dtype).tiny))) & (alpha < jnp.inf)
    z = jnp.where(valid, _propose(seed, jnp.uint32(0), alpha), jnp.nan)
    word = _pack(z == jnp.inf, num_words)
    column = jnp.arange(num_words, dtype=jnp.int32)
    rounds, z, word = _again(seed, alpha, column, (jnp.uint32(1), z, word), few)
    (left,) = jnp.nonzero(word, size=few, fill_value=num_words)
    remaining = word.at[left].get(mode="fill", fill_value=0)
    return _again(seed, alpha, left.astype(jnp.int32), (rounds, z, remaining), 0)[1]


def _again(seed: UInt32[Array, "2"], alpha: Array, column: Array, carry: tuple, few: int) -> tuple:
    """Rounds of proposals for the lowest set bit of each word, until at most `few` words have any."""
    size, num_words = alpha.size, max(-(-alpha.size // 32), 1)

    def unfinished(carry: tuple) -> Array:
        return (jnp.sum(carry[2] > 0) > few) & (carry[0] <= MAX_ROUNDS)

    def draw(carry: tuple) -> tuple:
        rounds, z, word = carry
        lowest = lax.population_count((word & -word) - 1).astype(jnp.int32)
        entry = jnp.where(word > 0, lowest * num_words + column, size)
        new = _propose(seed, rounds, alpha.at[entry].get(mode="fill", fill_value=1))
        filled = (word > 0) & (new < jnp.inf)
        z = z.at[jnp.where(filled, entry, size)].set(new, mode="drop", unique_indices=True)
        return rounds + 1, z, jnp.where(filled, word & (word - 1), word)

    return lax.while_loop(unfinished, draw, carry)


def _pack(flags: Array, num_words: int) -> UInt32[Array, " words"]:
    """Bit k of word j is entry k * num_words + j: a sum over the leading axis, which is the fast one."""
    padded = jnp.pad(flags, (0, 32 * num_words - flags.size)).reshape(32, num_words)
    return jnp.sum(
        padded.astype(jnp.uint32) << jnp.arange(32, dtype=jnp.uint32)[:, None], axis=0, dtype=jnp.uint32
    )


def _propose(seed: UInt32[Array, "2"], rounds: Array, alpha: Array) -> Array:
    """One proposal for each entry: log g, or inf where it is rejected."""
    symmetric, uniform = _uniforms(seed, rounds, alpha.size, alpha.dtype)
    normal = math.sqrt(2) * lax.erf_inv(symmetric)
    log_u = jnp.log(uniform)
    boosted = alpha < 1
    d = jnp.where(boosted, alpha + 1, alpha) - 1 / 3
    e = normal * lax.rsqrt(9 * d)
    positive = e > -1
    e = jnp.where(positive, e, 0)
    log_1e = jnp.log1p(e)
    log_h = 3 * d * (log_1e - e * (1 - e * (1 / 2 - e * (1 / 3))))
    z = jnp.log(d) + 3 * log_1e + jnp.where(boosted, (log_u - log_h) / alpha, 0)
    return jnp.where(positive & (log_u < log_h), z, jnp.inf)


def _uniforms(seed: UInt32[Array, "2"], rounds: Array, size: int, dtype: jnp.dtype) -> tuple[Array, Array]:
    """Uniform on (-1, 1) and on (0, 1), one pair an entry; 32 random bits each, or 64 in float64."""
    entry = lax.iota(jnp.uint32, size)
    if dtype != jnp.float64:
        first, second = threefry_2x32(seed, entry, jnp.broadcast_to(rounds, entry.shape))
        half = lax.bitcast_convert_type(
            second >> 1, jnp.int32
        )  # signed integers convert faster than unsigned
        symmetric = lax.bitcast_convert_type(first, jnp.int32).astype(dtype)
        return (symmetric + 0.5) * 2.0**-31, (half.astype(dtype) + 0.5) * 2.0**-31
    high = threefry_2x32(seed, entry, jnp.broadcast_to(2 * rounds, entry.shape))
    low = threefry_2x32(seed, entry, jnp.broadcast_to(2 * rounds + 1, entry.shape))
    first, second = (_unit(*words) for words in zip(high, low, strict=True))
    return 2 * first - 1, second


def _unit(high: Array, low: Array) -> Array:
    """A float64 on (0, 1) from 64 bits."""
    return (high.astype(jnp.float64) + (low.astype(jnp.float64) + 0.5) * 2.0**-32) * 2.0**-32
