"""How uncertain a prediction is, and how much of that the draws disagree about."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ptx.diagnostics.score_inputs import check_probabilities, numbers, sum_tolerance


@dataclass(frozen=True, eq=False)
class EntropyDecomposition:
    """Entropies in nats, one for each row (and token): `predictive = expected + mutual_information`."""

    predictive: Float[np.ndarray, "..."]
    expected: Float[np.ndarray, "..."]
    mutual_information: Float[np.ndarray, "..."]


def entropy_decomposition(probs: Any) -> EntropyDecomposition:
    """H[mean_s p_s] = mean_s H[p_s] + I(y; draw), with H[p] = -sum_k p_k log p_k in nats and 0 log 0 = 0.

    The predictive entropy (total uncertainty, from 0 to log classes) is the expected entropy (what remains
    when the weights are known) plus the mutual information between label and draw (what more data could
    remove; 0 if all draws agree). All chains and draws count equally. With one draw the mutual information is
    0 by construction and says nothing. Rounding below 0 is set to 0.

    Args:
        probs: class probabilities of each draw, of shape (chain, draw, rows, classes) or
            (chain, draw, rows, tokens, classes).

    Returns:
        Arrays of shape (rows,) or (rows, tokens); select the tokens that count with the mask.

    Raises:
        ValueError: fewer than four axes (probabilities averaged over draws have no such split), fewer than
            two classes, nothing in it, or values that are not finite, negative or do not sum to 1 within
            1e-3.

    Source: S. Depeweg et al., "Decomposition of uncertainty in Bayesian deep learning", ICML 2018.

    Example:

        >>> split = entropy_decomposition([[[[0.5, 0.5]], [[1.0, 0.0]]]])  # one chain, two draws, one row
        >>> [round(float(h[0]), 6) for h in (split.predictive, split.expected, split.mutual_information)]
        [0.562335, 0.346574, 0.215762]
    """
    from scipy.special import entr

    tolerance = sum_tolerance(probs)
    probs = numbers("probs", probs)
    if probs.ndim < 4:
        raise ValueError(
            f"probs: got shape {probs.shape}; expected (chain, draw, rows, classes), the probabilities of each draw"
        )
    check_probabilities(probs, np.ones(probs.shape[2:-1], bool), tolerance)
    predictive = entr(probs.mean(axis=(0, 1), dtype=np.float64)).sum(axis=-1)
    expected = entr(probs).sum(axis=-1, dtype=np.float64).mean(axis=(0, 1))
    return EntropyDecomposition(predictive, expected, np.maximum(predictive - expected, 0))
