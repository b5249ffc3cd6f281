"""Do probabilities mean what they say: calibration errors and the curve behind them.

For the shapes of `probs`, `labels` and `mask`, and what is refused, see `ptx.diagnostics.score_inputs`.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from ptx.diagnostics.score_inputs import class_positions


@dataclass(frozen=True, eq=False)
class CalibrationCurve:
    """Top-label confidence against accuracy in the bins that hold a position, by rising confidence."""

    confidence: Float[np.ndarray, " bins"]
    accuracy: Float[np.ndarray, " bins"]
    count: Int[np.ndarray, " bins"]


def expected_calibration_error(
    probs: Any,
    labels: Any,
    *,
    kind: Literal["top_label", "class_wise"] = "top_label",
    binning: Literal["equal_width", "equal_mass"] = "equal_width",
    num_bins: int = 15,
    mask: Any = None,
) -> float:
    """sum_b n_b/N |mean of c_n - mean of p_n| over bins b of p_n; from 0 to 1, lower is better.

    kind:
        `"top_label"` (ECE, Guo et al. 2017): p_n = max_k p_nk and c_n = [argmax_k p_nk = y_n], the first
        class where several tie. `"class_wise"` (static calibration error, Nixon et al. 2019; class-wise ECE,
        Kull et al. 2019): the mean over classes k of the same sum with p_n = p_nk and c_n = [y_n = k],
        classes that never occur included.
    binning:
        `"equal_width"`: `num_bins` bins (i/num_bins, (i+1)/num_bins], closed on the right, the first closed
        on both sides. `"equal_mass"` (adaptive ECE): bin edges at the i/num_bins quantiles of the p_n that
        occur, bins closed on the right; equal values share a bin, so the order of rows does not matter and
        bins may be uneven or empty.

    Draws are averaged before binning. Empty bins count 0. The estimate is biased upwards when bins hold few
    positions (a calibrated model still scores up to about 0.4 sqrt(num_bins / N)), so compare models
    on the same rows and bins.

    Raises:
        ValueError: an unknown kind or binning, `num_bins` below 1, or inputs that `score_inputs` refuses.

    Source: Naeini et al., AAAI 2015; Guo et al., ICML 2017; Nixon et al., CVPR workshops 2019.

    Example:
        >>> probs = [[0.9, 0.1], [0.9, 0.1], [0.6, 0.4]]
        >>> round(expected_calibration_error(probs, [0, 1, 0]), 6)  # (2 |0.5 - 0.9| + |1 - 0.6|) / 3
        0.4
    """
    if kind not in ("top_label", "class_wise"):
        raise ValueError(f"kind: expected 'top_label' or 'class_wise', got {kind!r}")
    kept, labels = class_positions(probs, labels, mask)
    if kind == "top_label":
        return _error(kept.max(axis=-1), kept.argmax(axis=-1) == labels, num_bins, binning)
    classes = range(kept.shape[-1])
    return float(np.mean([_error(kept[:, k], labels == k, num_bins, binning) for k in classes]))


def calibration_curve(
    probs: Any,
    labels: Any,
    *,
    binning: Literal["equal_width", "equal_mass"] = "equal_width",
    num_bins: int = 15,
    mask: Any = None,
) -> CalibrationCurve:
    """Mean confidence, accuracy and count of each bin of the top-label ECE; empty bins are left out.

    sum(count / count.sum() * |accuracy - confidence|) is `expected_calibration_error` with the same settings.

    Raises:
        ValueError: as `expected_calibration_error`.
    """
    kept, labels = class_positions(probs, labels, mask)
    confidence, correct = kept.max(axis=-1), kept.argmax(axis=-1) == labels
    index = _bin_index(confidence, num_bins, binning)
    count = np.bincount(index, minlength=num_bins)
    some = count > 0
    sums = [np.bincount(index, weights=values, minlength=num_bins)[some] for values in (confidence, correct)]
    return CalibrationCurve(sums[0] / count[some], sums[1] / count[some], count[some])


def _error(confidence: np.ndarray, correct: np.ndarray, num_bins: int, binning: str) -> float:
    # n_b |mean of c - mean of p| is |sum of (c - p)| in the bin, so empty bins need no care
    gaps = np.bincount(_bin_index(confidence, num_bins, binning), weights=correct - confidence)
    return float(np.abs(gaps).sum() / len(confidence))


def _bin_index(
    confidence: Float[np.ndarray, " positions"], num_bins: int, binning: str
) -> Int[np.ndarray, " positions"]:
    if not isinstance(num_bins, (int, np.integer)) or isinstance(num_bins, bool) or num_bins < 1:
        raise ValueError(f"num_bins: expected an integer of at least 1, got {num_bins!r}")
    inner = np.arange(1, num_bins)
    if binning == "equal_width":
        edges = inner / num_bins
    elif binning == "equal_mass":
        # the ceil(i N / num_bins)-th smallest value, in integers: a rounded quantile could fall beside its value
        edges = np.sort(confidence)[-(-inner * len(confidence) // num_bins) - 1]
    else:
        raise ValueError(f"binning: expected 'equal_width' or 'equal_mass', got {binning!r}")
    return np.digitize(confidence, edges, right=True)
