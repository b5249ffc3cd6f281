"""R-hat without ArviZ, whose import is slow: for progress, while a run goes on."""

import math

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

MIN_DRAWS = 4  # two in each half of a chain, the least that has a variance


def split_rhat(values: Float[np.ndarray, "chain draw"]) -> float:
    """Rank-normalised split R-hat, the larger of the bulk and the folded one; NaN where there is none.

        R-hat = sqrt((B / W + n - 1) / n)

    with every chain cut into halves of n draws, B the variance of the halves' means times n, and W the mean of their
    variances, of the normal scores of the values' ranks and of the ranks of |value - median| (Vehtari, Gelman, Simpson,
    Carpenter and Bürkner 2021). As `arviz_stats.rhat`.

    NaN for fewer than two chains or four draws, for values that are not finite, and where no value ever moves; infinite
    where each half stands still somewhere else.
    """
    num_chains, num_draws = values.shape
    if num_chains < 2 or num_draws < MIN_DRAWS or not np.isfinite(values).all():
        return math.nan
    half = num_draws // 2
    halves = np.concatenate([values[:, :half], values[:, -half:]]).astype(np.float64)
    found = [_rhat(_normal_scores(part)) for part in (halves, np.abs(halves - np.median(halves)))]
    # Folding two places of equal distance leaves one value, which says nothing: the other R-hat decides.
    return float(max((value for value in found if not math.isnan(value)), default=math.nan))


def _rhat(values: Float[np.ndarray, "half draw"]) -> float:
    num_draws = values.shape[1]
    between = num_draws * np.var(np.mean(values, axis=1), ddof=1)
    within = np.mean(np.var(values, axis=1, ddof=1))
    if within == 0:
        return math.inf if between > 0 else math.nan
    return math.sqrt((between / within + num_draws - 1) / num_draws)


def _normal_scores(values: Float[np.ndarray, "half draw"]) -> Float[np.ndarray, "half draw"]:
    """Normal quantiles of (rank - 3/8) / (size + 1/4); equal values share their mean rank."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean_rank = last - (counts - 1) / 2
    return ndtri((mean_rank[place.reshape(values.shape)] - 3 / 8) / (values.size + 1 / 4))
