"""Fits the coefficients of ptx/gamma_gradient.py and makes the reference values of its test.

    python tools/fit_gamma_gradient.py coefficients
    python tools/fit_gamma_gradient.py reference tests/references/gamma_gradient.json

Needs NumPy, SciPy and mpmath. Both take seconds.

With z = log x the quantile of log Gamma(alpha, 1) at a fixed probability, the lower series of the distribution
function, differentiated term by term, gives

    alpha dz/dalpha = sum over n >= 0 of x^n / ((alpha + 1) ... (alpha + n)) (digamma(alpha + n + 1) - log x),

which is evaluated here with 50 digits for every x. In the coordinates s = (1 + alpha)^(-1/2) and
w = log(x / (1 + alpha)) / s it is a smooth function of both, 1 at s = 0 (alpha to infinity), and 1 plus s times a
polynomial is fitted to it with the least greatest relative error, by least squares weighted again and again.
"""

import argparse
import json
from pathlib import Path

import mpmath
import numpy as np
from scipy.special import gammainccinv, gammaincinv

from ptx.gamma_gradient import SERIES_BELOW, W_SCALE, w_range

mpmath.mp.dps = 50
DEGREE_S, DEGREE_W = 5, 8
DEGREE_DIGAMMA = 6


def scaled_gradient(alpha: float, log_x: mpmath.mpf) -> mpmath.mpf:
    """alpha dz/dalpha by the series; it is entire in x, and 50 digits bear its cancellation here."""
    shape, x = mpmath.mpf(float(alpha)), mpmath.exp(log_x)
    factor, digamma = mpmath.mpf(1), mpmath.digamma(shape + 1)
    total, n = digamma - log_x, 0
    while True:
        n += 1
        factor *= x / (shape + n)
        digamma += 1 / (shape + n)
        total += factor * (digamma - log_x)
        if n > x - shape and factor < mpmath.mpf(10) ** -30 and factor * abs(log_x) < 1e-25 * abs(total):
            return total


def chebyshev_nodes(low: float, high: float, count: int) -> np.ndarray:
    return low + (high - low) * (0.5 + 0.5 * np.cos(np.pi * (np.arange(count) + 0.5) / count))


def table(count_s: int = 26, count_w: int = 40) -> np.ndarray:
    """Rows (s, w, alpha dz/dalpha) over the domain of the polynomial."""
    rows = []
    for s in np.maximum(chebyshev_nodes(0.0, 1.0, count_s), 0.008):
        low, high = w_range(s)
        for w in chebyshev_nodes(max(low, np.log(0.9 * SERIES_BELOW) / s), high, count_w):
            alpha = 1 / s**2 - 1
            log_x = mpmath.mpf(float(s * w)) + mpmath.log(1 + mpmath.mpf(float(alpha)))
            rows.append((s, w, float(scaled_gradient(alpha, log_x))))
    return np.asarray(rows)


def minimax(basis: np.ndarray, values: np.ndarray, rounds: int = 80) -> tuple[np.ndarray, float]:
    """Coefficients of about the least greatest error, and that error."""
    weights, best, best_error = np.ones(len(values)), np.zeros(basis.shape[1]), np.inf
    for _ in range(rounds):
        root = np.sqrt(weights)
        coefficients = np.linalg.lstsq(basis * root[:, None], values * root, rcond=1e-15)[0]
        errors = np.abs(basis @ coefficients - values)
        if errors.max() < best_error:
            best, best_error = coefficients, errors.max()
        weights = weights * (errors / errors.max() + 0.03)
        weights /= weights.mean()
    return best, float(best_error)


def fit_polynomial() -> None:
    s, w, value = table().T
    columns = [
        s ** (1 + i) * (w / W_SCALE) ** j / value for j in range(DEGREE_W + 1) for i in range(DEGREE_S + 1)
    ]
    coefficients, error = minimax(np.stack(columns, axis=1), (value - 1) / value)
    _print("POLYNOMIAL", coefficients.reshape(DEGREE_W + 1, DEGREE_S + 1), error)


def fit_digamma() -> None:
    """digamma(1 / b) + log b as b times a polynomial in b on (0, 1]."""
    b = chebyshev_nodes(1e-4, 1.0, 200)
    value = np.asarray([float(mpmath.digamma(1 / mpmath.mpf(float(t))) + mpmath.log(float(t))) for t in b])
    basis = np.stack([b ** (1 + i) for i in range(DEGREE_DIGAMMA)], axis=1)
    coefficients, error = minimax(basis, value)
    _print("DIGAMMA", coefficients[None], error)


def _print(name: str, coefficients: np.ndarray, error: float) -> None:
    print(f"# greatest error {error:.1e}\n{name} = (")
    for row in coefficients:
        print("    (" + ", ".join(f"{value:.9g}" for value in row) + "),")
    print(")")


def reference(path: Path) -> None:
    """(alpha, z, dz/dalpha) for alpha from 1e-4 to 1e4 and probabilities from 1e-6 to 1 - 1e-6."""
    rows = []
    for alpha in np.logspace(-4, 4, 33):
        for probability in (1e-6, 1e-4, 1e-2, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1 - 1e-4, 1 - 1e-6):
            log_x = _log_quantile(alpha, probability)
            gradient = scaled_gradient(alpha, mpmath.mpf(log_x)) / mpmath.mpf(float(alpha))
            rows.append([float(alpha), log_x, float(gradient)])
    path.write_text(json.dumps({"columns": ["alpha", "z", "dz/dalpha"], "rows": rows}, indent=None))
    print(f"{len(rows)} rows in {path}")


def _log_quantile(alpha: float, probability: float) -> float:
    """By the series' first term where the quantile is so small that it is exact; else SciPy's inverse."""
    first = (np.log(probability) + float(mpmath.loggamma(alpha + 1))) / alpha
    if first < -40:
        return float(first)
    upper = probability > 0.5
    return float(np.log(gammainccinv(alpha, 1 - probability) if upper else gammaincinv(alpha, probability)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("coefficients", "reference"))
    parser.add_argument("path", nargs="?", type=Path)
    options = parser.parse_args()
    if options.what == "reference":
        reference(options.path)
    else:
        fit_polynomial()
        fit_digamma()
