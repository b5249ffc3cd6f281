"""Scores of predictions against held-out targets. Every score is one number, a mean over rows.

For the shapes of `probs`, `labels`, `mask` and `predictions`, and what is refused, see
`ptx.diagnostics.score_inputs`. Scores of per-token tasks are means over the tokens where `mask` is True, so
they weigh long rows more than short ones. Repeating the data leaves every score as it is.
"""

import warnings
from numbers import Real
from typing import Any

import numpy as np

from ptx.diagnostics.score_inputs import class_positions, draws_and_targets, numbers, positions


def accuracy(probs: Any, labels: Any, *, mask: Any = None) -> float:
    """Share of positions with argmax_k p_nk = y_n, p averaged over draws; from 0 to 1, higher is better.

    Where several classes tie for the largest probability, the first counts as the prediction.

    Example:
        >>> accuracy([[0.2, 0.8], [0.6, 0.4]], [1, 1])
        0.5
    """
    kept, labels = class_positions(probs, labels, mask)
    return float(np.mean(kept.argmax(axis=-1) == labels))


def log_loss(probs: Any, labels: Any, *, mask: Any = None) -> float:
    """-1/N sum_n log p_n[y_n] in nats, p averaged over draws; from 0, lower is better.

    The mean NLL of class labels. Nothing is clipped: a probability of 0 for a class that occurred scores
    infinity, with a warning. `mean_nll` of pointwise log likelihoods is the same number without the
    underflow.

    Example:
        >>> round(log_loss([[0.5, 0.5], [0.25, 0.75]], [0, 0]), 6)  # (log 2 + log 4) / 2
        1.039721
    """
    kept, labels = class_positions(probs, labels, mask)
    with np.errstate(divide="ignore"):
        log_probs = np.log(kept[np.arange(len(labels)), labels])
    return _negative_mean(log_probs)


def brier_score(probs: Any, labels: Any, *, mask: Any = None) -> float:
    """1/N sum_n sum_k (p_nk - [y_n = k])^2, p averaged over draws; from 0 to 2, lower is better.

    This is Brier's own form, a sum over all classes, for two classes too: twice the (p - y)^2 that some use
    there.

    Source: G. W. Brier, "Verification of forecasts expressed in terms of probability", 1950.

    Example:
        >>> brier_score([[0.0, 1.0], [0.5, 0.5]], [0, 0])  # (2 + 1/2) / 2
        1.25
    """
    kept, labels = class_positions(probs, labels, mask)
    occurred = np.eye(kept.shape[-1])[labels]
    return float(np.mean(np.sum((kept - occurred) ** 2, axis=-1)))


def mean_nll(log_likelihood: Any, *, mask: Any = None) -> float:
    """-1/N sum_n log(1/S sum_s p(y_n | draw s)) in nats; lower is better.

    The mean negative log predictive density. The mean over draws is taken of densities (log-mean-exp over all
    chains and draws), never of log densities, which would score the average member and not the ensemble.

    Args:
        log_likelihood: pointwise log densities log p(y_n | draw s) of shape (chain, draw, rows), or
            (chain, draw, rows, tokens) to score token by token. Where a row is a whole sequence, the score is in
            nats per sequence, of its joint density; token by token it is in nats per token.
        mask: bool of shape (rows,) or (rows, tokens), True where a position counts. Padding has log density 0
            in ptx: without the mask it would count as certain.

    Raises:
        ValueError: fewer than three axes, nothing in it, NaN or +inf where a position counts (the index is
            named). -inf is a density of 0: it counts, and if every draw gives 0 the score is infinite, with a
            warning.

    Example:
        >>> import numpy as np
        >>> round(mean_nll(np.log([[[0.2], [0.6]]])), 6)  # one chain, two draws, one row: -log 0.4
        0.916291
    """
    values = numbers("log_likelihood", log_likelihood).astype(np.float64)
    if values.ndim < 3 or values.size == 0:
        raise ValueError(
            f"log_likelihood: got shape {values.shape}; expected (chain, draw, rows) or (chain, draw, rows, tokens), "
            "none of them 0"
        )
    keep = positions("log_likelihood", values.shape[2:], mask)
    wrong = (np.isnan(values) | (values == np.inf)) & keep
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(
            f"log_likelihood: got {values[where]} at index {where}; expected log densities, in nats"
        )
    draws = values.reshape(-1, *values.shape[2:])[:, keep]
    return _negative_mean(np.logaddexp.reduce(draws, axis=0) - np.log(len(draws)))


def rmse(predictions: Any, targets: Any) -> float:
    """sqrt(1/N sum_n (m_n - y_n)^2), m the mean of predictions over draws; in the targets' unit, lower is
    better.

    Args:
        predictions: the predictive mean, shaped like `targets`, or draws of it or of targets, of shape
            (chain, draw, *rows).
        targets: numbers of shape (rows,) or (rows, outputs); with outputs, the mean is over all entries.

    Raises:
        ValueError: shapes that do not fit ((rows, 1) against (rows,) included), no targets, NaN or infinity.

    Example:
        >>> rmse([1.0, 2.0], [4.0, 6.0])  # sqrt((9 + 16) / 2)
        3.5355339059327378
    """
    draws, targets = draws_and_targets(predictions, targets, averaged=True)
    return float(np.sqrt(np.mean((draws.mean(axis=0) - targets) ** 2)))


def crps(predictions: Any, targets: Any) -> float:
    """1/N sum_n (E|X_n - y_n| - 1/2 E|X_n - X'_n|), X and X' two of the S draws; in the targets' unit.

    The continuous ranked probability score of the empirical distribution of all draws; lower is better.
    E|X - X'| is over all S^2 pairs (not the "fair" S(S-1) form), so with one draw this is the absolute error.
    Cost: a sort of the draws of each row.

    Args:
        predictions: draws of targets, noise included (not of the mean function), of shape (chain, draw,
            *rows).
        targets: numbers of shape (rows,) or (rows, outputs); with outputs, the mean is over all entries.

    Raises:
        ValueError: shapes that do not fit, no targets, NaN or infinity.

    Source: T. Gneiting and A. E. Raftery, "Strictly proper scoring rules, prediction, and estimation", JASA
    2007; computed by scoringrules.
    """
    from scoringrules import crps_ensemble

    draws, targets = draws_and_targets(predictions, targets)
    # the backend is named, else it would depend on whether numba is installed
    score = crps_ensemble(targets, np.moveaxis(draws, 0, -1), estimator="qd", backend="numpy")
    return float(np.mean(np.asarray(score)))


def interval_coverage(predictions: Any, targets: Any, *, prob: float = 0.9) -> float:
    """Share of targets with q_{(1 - prob)/2} <= y_n <= q_{(1 + prob)/2}; calibrated predictions give `prob`.

    The quantiles are those of row n's draws, all chains together, interpolated linearly (NumPy's default);
    the central interval includes its ends.

    Args:
        predictions: draws of targets, noise included (not of the mean function), of shape (chain, draw,
            *rows).
        targets: numbers of shape (rows,) or (rows, outputs).
        prob: probability of the interval, between 0 and 1.

    Raises:
        ValueError: fewer than two draws, `prob` not between 0 and 1, shapes that do not fit, no targets, NaN,
            infinity.
    """
    draws, targets = draws_and_targets(predictions, targets)
    if not isinstance(prob, Real) or not 0 < prob < 1:
        raise ValueError(f"prob: expected a probability between 0 and 1, such as 0.9; got {prob!r}")
    if len(draws) < 2:
        raise ValueError(
            "predictions: got one draw; an interval needs at least two, and hundreds to mean something"
        )
    lower, upper = np.quantile(draws, [(1 - prob) / 2, (1 + prob) / 2], axis=0)
    return float(np.mean((lower <= targets) & (targets <= upper)))


def _negative_mean(log_probs: np.ndarray) -> float:
    impossible = int(np.sum(log_probs == -np.inf))
    if impossible:
        first = int(np.argmax(log_probs == -np.inf))
        warnings.warn(
            f"{impossible} of {log_probs.size} observed values have predictive probability 0 (the first is number "
            f"{first} of those that count), so the mean negative log likelihood is infinite",
            RuntimeWarning,
            stacklevel=3,
        )
    return float(-np.mean(log_probs))
