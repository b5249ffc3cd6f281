"""Whether chains agree about quantities that mean something: outputs, class probabilities, parameters of small models.

R-hat of single network weights says nothing (units swap places, signs flip): give it what the network computes.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from ptx.kept import blocks
from ptx.predictive import Predictive
from ptx.store.arrays import Stored

MIN_DRAWS = 4  # split chains of one draw have no variance

Verdict = Literal["converged", "not converged", "constant", "n/a"]


@dataclass(frozen=True)
class Convergence:
    """How well the chains agree about one quantity: the worst of its values.

    Attributes:
        name: of the quantity.
        num_values: scalars it has.
        num_checked: scalars examined.
        r_hat: largest R-hat; None where there is none.
        ess_bulk, ess_tail: smallest effective sample sizes, over all chains together; None where there are none.
        verdict: "converged"; "not converged"; "constant", if no value ever moves; "n/a", if the draws cannot tell.
        reason: for the verdict, in words.
    """

    name: str
    num_values: int
    num_checked: int
    r_hat: float | None
    ess_bulk: float | None
    ess_tail: float | None
    verdict: Verdict
    reason: str

    @property
    def passed(self) -> bool:
        """True for "converged" alone: neither NaN nor a missing number is a pass."""
        return self.verdict == "converged"


def check_convergence(
    values: Any, *, max_values: int = 100, max_r_hat: float = 1.01, min_ess_per_chain: float = 100.0
) -> tuple[Convergence, ...]:
    """Largest R-hat and smallest effective sample sizes of each quantity.

    R-hat is the larger of rank-normalised split R-hat and its folded version; bulk and tail (5% and 95% quantiles)
    effective sample sizes are rank-normalised too (Vehtari et al. 2021), whose thresholds are the defaults.

    Args:
        values: an array of shape (chain, draw, ...); a dict (or `xarray.Dataset`) of such arrays by name; or a
            `Predictive`, whose class probabilities and other row-wise deterministic sites are looked at. Arrays with
            named dimensions (`xarray.DataArray`) are taken by the names `chain` and `draw`.
        max_values: of a quantity with more scalars, this many are examined, evenly spaced from the first to the last
            in C order.
        max_r_hat: the largest R-hat that passes.
        min_ess_per_chain: the smallest effective sample size, bulk and tail, that passes, times the number of chains.

    A chain that never moves while others do, or elsewhere, is reported as stuck; values that are not finite never pass.

    Cost: about 3 ms a scalar.

    Raises:
        ValueError: fewer than two axes, quantities of different (chain, draw), or more chains than draws, which looks
            like a transposed array; name the dimensions (`xarray.DataArray`) where it is none.

    Example:
        >>> import numpy as np
        >>> draws = np.random.default_rng(0).normal(size=(4, 500))
        >>> check_convergence({"noise": draws, "nothing": 0 * draws})[1].verdict
        'constant'
    """
    if max_values < 1:
        raise ValueError(f"max_values: expected at least 1, got {max_values}")
    quantities = _quantities(values)
    leads = {name: array.shape[:2] for name, array in quantities.items()}
    if len(set(leads.values())) > 1:
        raise ValueError(f"values: quantities of different (chain, draw): {leads}")
    return tuple(
        _check(name, array, max_values, max_r_hat, min_ess_per_chain) for name, array in quantities.items()
    )


def convergence_table(rows: tuple[Convergence, ...]) -> str:
    """The rows as text, a line each; what is not there is "n/a"."""

    def number(value: float | None, digits: int) -> str:
        return "n/a" if value is None else f"{value:.{digits}f}"

    cells = [("", "R-hat", "ESS bulk", "ESS tail", "verdict")]
    for row in rows:
        numbers = number(row.r_hat, 3), number(row.ess_bulk, 0), number(row.ess_tail, 0)
        cells.append((row.name, *numbers, f"{row.verdict} ({row.reason})"))
    widths = [max(len(line[column]) for line in cells) for column in range(4)]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *(line[i].rjust(widths[i]) for i in (1, 2, 3)), line[4]])
        for line in cells
    )


def _quantities(values: Any) -> dict[str, np.ndarray]:
    if isinstance(values, Predictive):
        outputs = {name: array for name, array in values.deterministic.items() if name in values.row_sites}
        named = {f"{site}.probabilities": array for site, array in values.probabilities.items()}
        return named or outputs
    named = values if isinstance(values, Mapping) else {"values": values}
    return {str(name): _oriented(str(name), array) for name, array in named.items()}


def _oriented(name: str, array: Any) -> Float[np.ndarray, "chain draw ..."]:
    if hasattr(array, "dims"):
        missing = {"chain", "draw"} - set(array.dims)
        if missing:
            raise ValueError(f"{name}: expected dimensions chain and draw, got {tuple(array.dims)}")
        return np.asarray(array.transpose("chain", "draw", ...))
    array = array if isinstance(array, Stored) else np.asarray(array)
    if array.ndim < 2 or 0 in array.shape:
        raise ValueError(f"{name}: expected an array of shape (chain, draw, ...), got {array.shape}")
    if array.shape[0] > array.shape[1] >= MIN_DRAWS:
        raise ValueError(
            f"{name}: shape {array.shape} has more chains than draws; expected (chain, draw, ...). Swap the axes, or "
            "name them (xarray.DataArray) if this is meant"
        )
    return array


def _check(
    name: str, array: np.ndarray, max_values: int, max_r_hat: float, min_ess_per_chain: float
) -> Convergence:
    num_chains, num_draws = array.shape[:2]
    size = math.prod(array.shape[2:])
    chosen = np.unique(np.linspace(0, size - 1, min(max_values, size)).round().astype(int))
    values, num_bad = _looked_at(array, chosen)
    moving_in, reason = _moving(values)

    def found(verdict: Verdict, reason: str, *numbers: float | None) -> Convergence:
        r_hat, ess_bulk, ess_tail = numbers or (None, None, None)
        return Convergence(name, size, len(chosen), r_hat, ess_bulk, ess_tail, verdict, reason)

    if num_bad:
        return found("not converged", f"{num_bad} of {size} values have draws that are not finite")
    if num_draws < MIN_DRAWS:
        return found("n/a", f"{num_draws} draws a chain; at least {MIN_DRAWS} are needed")
    if reason:
        return found("not converged", reason)
    if not moving_in.any():
        return found("constant", "no value ever moves")
    r_hat, ess_bulk, ess_tail = _numbers(values[..., moving_in].astype(np.float64))
    if num_chains == 1:
        return found("n/a", "one chain; R-hat compares chains", None, ess_bulk, ess_tail)
    reasons = [f"R-hat above {max_r_hat}"] if not r_hat <= max_r_hat else []
    least = min_ess_per_chain * num_chains
    reasons += [f"effective sample size below {least:.0f}"] if not min(ess_bulk, ess_tail) >= least else []
    passed = f"{len(chosen)} of {size} values looked at"
    return found(
        "not converged" if reasons else "converged", ", ".join(reasons) or passed, r_hat, ess_bulk, ess_tail
    )


def _looked_at(array: Any, chosen: np.ndarray) -> tuple[Float[np.ndarray, "chain draw value"], int]:
    """The chosen scalars at all draws, and how many of all scalars have a draw that is not finite; block by block."""
    parts, bad = [], np.zeros(math.prod(array.shape[2:]), bool)
    for block in blocks(array):
        flat = block.reshape(*block.shape[:2], -1)
        parts.append(flat[..., chosen])
        bad |= (~np.isfinite(flat)).any(axis=(0, 1))
    return np.concatenate(parts, axis=1), int(bad.sum())


def _moving(values: Float[np.ndarray, "chain draw value"]) -> tuple[np.ndarray, str]:
    """Which values move at all, and which chains are stuck, in words.

    Counts and labels may well stay put in one chain; real numbers do not.
    """
    by_chain = (values != values[:, :1]).any(axis=1)
    anywhere = (values != values[:1, :1]).any(axis=(0, 1))
    stuck = ~by_chain & anywhere
    if values.dtype.kind != "f" or not stuck.any():
        return anywhere, ""
    chains = np.flatnonzero(stuck.any(axis=1))
    return (
        anywhere,
        f"stuck: {int(stuck.any(axis=0).sum())} values never move in chain {', '.join(map(str, chains))}",
    )


def _numbers(values: Float[np.ndarray, "chain draw value"]) -> tuple[float, float, float]:
    """Largest R-hat, smallest bulk and tail effective sample size; NaN where one of them is."""
    from arviz_stats.base.array import array_stats

    r_hat = array_stats.rhat(values, chain_axis=0, draw_axis=1)
    bulk = array_stats.ess(values, chain_axis=0, draw_axis=1, method="bulk")
    tail = array_stats.ess(values, chain_axis=0, draw_axis=1, method="tail", prob=(0.05, 0.95))
    return float(np.max(r_hat)), float(np.min(bulk)), float(np.min(tail))
