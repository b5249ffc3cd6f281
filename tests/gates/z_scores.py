"""The gate: are these draws from a distribution of this mean and standard deviation?"""

from typing import NamedTuple

import numpy as np
from arviz_stats.base import array_stats


class Reference(NamedTuple):
    """Means and standard deviations of K quantities, with the standard errors of both (0 where they are exact)."""

    mean: np.ndarray
    sd: np.ndarray
    mean_error: np.ndarray | float = 0.0
    sd_error: np.ndarray | float = 0.0


class ZScores(NamedTuple):
    """z of each mean and of each standard deviation, shape (K,)."""

    mean: np.ndarray
    sd: np.ndarray

    @property
    def largest(self) -> float:
        """The largest |z|; NaN where one is NaN."""
        return float(np.max(np.abs(np.concatenate(self))))


def z_scores(draws: np.ndarray, reference: Reference) -> ZScores:
    """z = (estimate - reference) / sqrt(se(estimate)^2 + se(reference)^2), draws of shape (chain, draw, K).

    se(mean) = sd / sqrt(ESS of x). The error of the variance is that of the mean of the squared deviations, which have
    an ESS of their own, and se(sd) = se(variance) / (2 sd).
    """
    mean = draws.mean((0, 1))
    squares = (draws - mean) ** 2
    variance = squares.mean((0, 1))
    sd = np.sqrt(variance)
    mean_error = sd / np.sqrt(effective_sizes(draws))
    sd_error = squares.std((0, 1)) / np.sqrt(effective_sizes(squares)) / (2 * sd)
    return ZScores(
        (mean - reference.mean) / np.hypot(mean_error, reference.mean_error),
        (sd - reference.sd) / np.hypot(sd_error, reference.sd_error),
    )


def effective_sizes(draws: np.ndarray) -> np.ndarray:
    """Effective sample size of the mean of each of K quantities."""
    return np.array(
        [_by_quantity(array_stats.ess, draws[..., k], method="mean") for k in range(draws.shape[-1])]
    )


def r_hats(draws: np.ndarray) -> np.ndarray:
    """Rank-normalised split R-hat of each of K quantities."""
    return np.array([_by_quantity(array_stats.rhat, draws[..., k]) for k in range(draws.shape[-1])])


def _by_quantity(statistic, draws: np.ndarray, **options) -> float:
    return float(statistic(draws, chain_axis=0, draw_axis=1, **options))


def copied_chains(draws: np.ndarray) -> list[tuple[int, int]]:
    """Pairs of chains that are equal in any quantity at half of the draws or more."""
    pairs = [(i, j) for i in range(len(draws)) for j in range(i)]
    return [(i, j) for i, j in pairs if ((draws[i] == draws[j]).mean(0) > 0.5).any()]


def faults(draws: np.ndarray, reference: Reference, limit: float, least_ess: float = 0.0) -> list[str]:
    """What is wrong with the draws, in words; empty when they pass."""
    found = [f"chains {i} and {j} are copies" for i, j in copied_chains(draws)]
    z = z_scores(draws, reference)
    if not z.largest < limit:  # NaN is a fault
        found.append(f"z of means {np.round(z.mean, 1)}, of sds {np.round(z.sd, 1)}; limit {limit}")
    if not np.max(r_hats(draws)) < 1.01:
        found.append(f"R-hat {np.max(r_hats(draws)):.4f}")
    if not np.min(effective_sizes(draws)) >= least_ess:
        found.append(f"ESS {np.min(effective_sizes(draws)):.0f}, wanted {least_ess:.0f}")
    return found
