"""log Gamma and its derivatives at positive numbers, by plain arithmetic that XLA fuses.

`jax.scipy.special.polygamma` sums a zeta series, and `gammaln` branches for negative numbers: for arrays of attention
concentrations these cost more than a whole softmax layer. Here x is shifted to x + n by the recurrence, n = 6 (10 in
float64), and Stirling's series is taken there. Each is right to about 3e-6 (5e-12) of max(1, |value|).
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ptx.written import written

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


@jax.custom_jvp
def lgamma(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """log Gamma(x) for x > 0; its derivative is `digamma`."""
    is_small, y, order = _shifted(x)
    inverse = 1 / y
    series = _series(inverse, _over(order, lambda k: 2 * k * (2 * k - 1)))
    stirling = (y - 0.5) * jnp.log(y) - y + (0.5 * math.log(2 * math.pi)) + series * inverse
    return stirling - jnp.where(is_small, jnp.log(_product(x, is_small)[0]), 0)


@lgamma.defjvp
def _lgamma_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    return lgamma(*primals), digamma(*primals) * tangents[0]


@jax.custom_jvp
def digamma(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """psi(x) = d log Gamma(x) / dx for x > 0; its derivative is `trigamma`."""
    is_small, y, order = _shifted(x)
    inverse = 1 / y
    series = _series(inverse, _over(order, lambda k: 2 * k)) * inverse * inverse
    product, first, _ = _product(x, is_small)
    return jnp.log(y) - 0.5 * inverse - series - jnp.where(is_small, first / product, 0)


@digamma.defjvp
def _digamma_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    return digamma(*primals), trigamma(*primals) * tangents[0]


def trigamma(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """psi'(x) for x > 0."""
    is_small, y, order = _shifted(x)
    inverse = 1 / y
    return inverse + _trigamma_tail(inverse, order) + jnp.where(is_small, _squares(x, is_small), 0)


@jax.custom_jvp
def dirichlet_kl_term(a: Float[Array, "..."], b: Float[Array, "..."]) -> Float[Array, "..."]:
    """t(a, b) = (a - b) psi(a) - log Gamma(a) + log Gamma(b) - a, of which Dirichlets' KL is made, in nats:

        KL(Dirichlet(a), Dirichlet(b)) = sum_k t(a_k, b_k) - t(sum a, sum b).

    With the series of psi and log Gamma put together, and a taken off (it cancels in the KL), no term grows faster than
    log a, so that the KL is right to rounding however large a is. The values are `written`, lest a sum of them computes
    them one at a time; their derivatives are computed apart from them, where they are used.
    """
    is_small, y, order = _shifted(a)
    shift, inverse, excess = _shift(is_small, a), 1 / y, a - b
    of_digamma = _series(inverse, _over(order, lambda k: 2 * k)) * inverse
    of_lgamma = _series(inverse, _over(order, lambda k: 2 * k * (2 * k - 1)))
    series = inverse * (excess * (0.5 + of_digamma) + of_lgamma)
    product, first, _ = _product(a, is_small)
    recurrence = jnp.where(is_small, jnp.log(product) - excess * first / product, 0)
    stirling = (0.5 - b - shift) * jnp.log(y) + shift - (0.5 * math.log(2 * math.pi))
    return written(stirling - series + recurrence + lgamma(b))


@dirichlet_kl_term.defjvp
def _dirichlet_kl_term_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (a, b), (a_tangent, b_tangent) = primals, tangents
    value, a = dirichlet_kl_term(a, b), jax.lax.optimization_barrier(a)
    return value, _slope_in_a(a, b) * a_tangent + (digamma(b) - digamma(a)) * b_tangent


def _slope_in_a(a: Array, b: Array) -> Array:
    """(a - b) psi'(a) - 1, in which 1 cancels the leading term."""
    is_small, y, order = _shifted(a)
    inverse, excess = 1 / y, a - b
    tail = _trigamma_tail(inverse, order) + jnp.where(is_small, _squares(a, is_small), 0)
    return excess * tail - (b + _shift(is_small, a)) * inverse


def _trigamma_tail(inverse: Array, order: int) -> Array:
    """psi'(y) - 1 / y at a y that is large enough."""
    return inverse * inverse * (0.5 + _series(inverse, _over(order, lambda _: 1)) * inverse)


def _shifted(x: Array) -> tuple[Array, Array, int]:
    """Where x is shifted up, what it becomes, and how many terms of the series to take there."""
    shifts, order = _plan(x)
    is_small = x < shifts
    return is_small, jnp.where(is_small, x + shifts, x), order


def _shift(is_small: Array, x: Array) -> Array:
    """y - x of `_shifted`, exactly."""
    return jnp.where(is_small, jnp.asarray(_plan(x)[0], x.dtype), 0)


def _plan(x: Array) -> tuple[int, int]:
    return (10, 7) if x.dtype == jnp.float64 else (6, 4)


def _product(x: Array, is_small: Array) -> tuple[Array, Array, Array]:
    """P = x (x + 1) ... (x + n - 1), P' and P'', at 1 where x is not small: P' / P and (P' / P)^2 - P'' / P are the
    sums of 1 / (x + i) and of their squares, at the price of one division."""
    x = jnp.where(is_small, x, 1)
    product, first, second = x, jnp.ones_like(x), jnp.zeros_like(x)
    for i in range(1, _plan(x)[0]):
        factor = x + i
        product, first, second = product * factor, first * factor + product, second * factor + 2 * first
    return product, first, second


def _squares(x: Array, is_small: Array) -> Array:
    """sum of 1 / (x + i)^2 = (P' / P)^2 - P'' / P."""
    product, first, second = _product(x, is_small)
    ratio = 1 / product
    slope = first * ratio
    return slope * slope - second * ratio


def _over(order: int, divisor: Callable[[int], int]) -> list[float]:
    """Bernoulli's numbers B_2, B_4, ... over what is given for k = 1, 2, ..."""
    return [number / divisor(k) for k, number in enumerate(_BERNOULLI[:order], 1)]


def _series(inverse: Array, coefficients: list[float]) -> Array:
    """sum_k c_k y^(-2k), k from 0, of 1 / y."""
    inverse_square, total = inverse * inverse, jnp.full_like(inverse, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total = total * inverse_square + coefficient
    return total
