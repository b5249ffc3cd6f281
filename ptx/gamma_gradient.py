"""The derivative of a log-gamma variate in its shape, by implicit reparameterisation."""

import math

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

# Below this value of x / (1 + alpha) the series is used, above it the polynomial.
SERIES_BELOW = 0.05
W_SCALE = 8.0

# Made by tools/fit_gamma_gradient.py, which prints the greatest relative error: 4.9e-5.
# Row j, column i is the coefficient of (w / W_SCALE)^j s^(1 + i).
POLYNOMIAL = (
    (-0.00152234428, -0.317251579, -0.0621883189, 0.0542373165, -0.123107676, 0.0461888341),
    (-4.00471204, 0.0571384999, 0.449172214, 0.33866668, -0.0565108531, -0.0123748706),
    (0.0509512407, 4.80972767, 2.03973579, -3.41099868, 3.64701768, -0.975345332),
    (0.0361436174, -0.403879009, 1.14041836, -0.536900326, -2.610518, 0.777724776),
    (-0.299539636, 3.20126245, -13.304443, 20.8831618, -23.133977, 3.59163331),
    (-0.0178365487, -0.261933304, 4.77573327, -17.0126096, 18.9798571, -3.10528643),
    (0.631323651, -6.99905094, 29.4384302, -53.8363307, 31.3803928, 15.7224811),
    (-0.0303226556, 0.717718899, -4.63936557, 6.51204324, 9.56964804, -17.1720703),
    (-0.446423244, 4.99085476, -19.0656406, 20.5208609, 26.7102491, -48.4570903),
)
# digamma(1 / b) + log b = b (DIGAMMA[0] + DIGAMMA[1] b + ...) on 0 < b <= 1; greatest error 3.5e-8.
DIGAMMA = (-0.500002792, -0.0832640017, -0.000584101045, 0.0106666128, -0.00486888295, 0.000837464918)


def log_gamma_gradient(
    shape_parameter: Float[Array, "..."], log_variate: Float[Array, "..."]
) -> Float[Array, "..."]:
    """dz/dalpha = -(dF/dalpha) / (dF/dz): how z = log x moves with alpha at a fixed probability F(x; alpha).

    F is the distribution function of Gamma(alpha, 1). Implicit reparameterisation: Figurnov, Mohamed and Mnih
    (2018), equation 5. The approximation is this package's: the lower series of F differentiated term by term,

        alpha dz/dalpha = sum over n of x^n / ((alpha + 1) ... (alpha + n)) (digamma(alpha + n + 1) - z),

    up to n = 3 where x < 0.05 (1 + alpha); elsewhere a polynomial in s = (1 + alpha)^(-1/2) and
    w = (z - log(1 + alpha)) / s, in which alpha dz/dalpha is smooth and tends to 1 as alpha grows without bound.

    The relative error is under 1e-4 (in float32 and float64 alike) for every alpha >= 1e-4 and every probability
    between 1e-8 and 1 - 1e-8; further out in either tail w is held at the edge of the fitted range. One
    logarithm, one exponential, one root and about 70 multiply-adds an element, without branches.
    """
    b = 1 / (1 + shape_parameter)
    root = lax.rsqrt(b)
    s = b * root
    log_ratio = log_variate - jnp.log(1 + shape_parameter)
    low, high = w_range(s)
    w = jnp.clip(log_ratio * root, low, high)
    series = _series(b, jnp.minimum(log_ratio, math.log(SERIES_BELOW)))
    return jnp.where(log_ratio < math.log(SERIES_BELOW), series, _polynomial(s, w)) / shape_parameter


def w_range(s):
    """The least and greatest w that the polynomial was fitted on; probabilities beyond 1e-8 at either end."""
    return -6.4 - 8 * s, 6.4 - 3.3 * s


def _series(b: Array, log_ratio: Array) -> Array:
    """alpha dz/dalpha from four terms, in b = 1 / (1 + alpha) and y = x / (1 + alpha)."""
    y = jnp.exp(log_ratio)
    both = 1 / ((1 + b) * (1 + 2 * b))
    second, third = both * (1 + 2 * b), both * (1 + b)
    first_sum = b  # of 1 / (alpha + 1), 1 / (alpha + 2), ...
    second_sum = first_sum + b * second
    third_sum = second_sum + b * third
    start = b * _horner(DIGAMMA, b) - log_ratio
    nested = y * second * (start + second_sum + y * third * (start + third_sum))
    return start + y * (start + first_sum + nested)


def _polynomial(s: Array, w: Array) -> Array:
    """alpha dz/dalpha = 1 + s times the fitted polynomial."""
    return 1 + s * _horner([_horner(row, s) for row in POLYNOMIAL], w * (1 / W_SCALE))


def _horner(coefficients, x: Array) -> Array:
    total = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        total = coefficient + x * total
    return total
