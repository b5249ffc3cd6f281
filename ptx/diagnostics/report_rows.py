"""One posterior of a report: its scores on held-out data, its convergence, its cost."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptx.diagnostics.calibration import expected_calibration_error
from ptx.diagnostics.convergence import Convergence, check_convergence
from ptx.diagnostics.scores import accuracy, brier_score, crps, interval_coverage, mean_nll, rmse
from ptx.posterior import Posterior
from ptx.predictive import Predictive, log_likelihood
from ptx.sites import observed_values
from ptx.target import Target

CONVENTIONS = {
    "draws": "chains x draws of each",
    "accuracy": "share of positions whose most probable class occurred",
    "nll": "mean negative log predictive density, nats a position; densities are averaged over draws",
    "ece": "top-label expected calibration error, 15 bins of equal width",
    "brier": "sum over classes of squared error, mean over positions, from 0 to 2",
    "rmse": "root mean squared error of the mean of simulated targets",
    "crps": "continuous ranked probability score of simulated targets, in their unit",
    "coverage_90": "share of targets inside the central 90% interval of simulated ones",
    "r_hat": "largest rank-normalised split R-hat of log p(target | draw) over positions looked at, not of weights",
    "ess": "smallest bulk effective sample size of the same, over all chains together",
    "gradient_evaluations": "calls of a gradient, all chains together; a minibatch counts one",
    "seconds": "wall time of `infer` in seconds, and what part of it was compiling",
}


@dataclass(frozen=True)
class Row:
    """One posterior in a report.

    Attributes:
        name: what the report calls it.
        engine: its repr.
        num_chains, num_draws: shape of the draws.
        scores: by the names in `CONVENTIONS`.
        convergence: of log p(target | draw) at held-out positions.
        gradient_evaluations, seconds, compile_seconds: cost.
        findings: what a reader must know, in words.
    """

    name: str
    engine: str
    num_chains: int
    num_draws: int
    scores: dict[str, float]
    convergence: Convergence
    gradient_evaluations: int
    seconds: float
    compile_seconds: float
    findings: tuple[str, ...]


def score(
    name: str,
    posterior: Posterior,
    target: Target,
    site: str,
    prediction: Predictive,
    mask: Any,
    max_values: int,
) -> tuple[Row, int]:
    """The row of a posterior on a target of held-out data, and how many positions were scored."""
    labels = observed_values(target)[site]
    keep = _positions(target, labels, mask, site in prediction.probabilities)
    densities = log_likelihood(posterior, target.data, per="token" if keep.ndim == 2 else "row")[site]
    scores = {"nll": mean_nll(densities, mask=keep)}
    if site in prediction.probabilities:
        scores |= _class_scores(prediction.probabilities[site], labels, keep)
    else:
        scores |= _real_scores(prediction.targets[site][:, :, keep], labels[keep])
    convergence = _convergence(densities[:, :, keep], max_values)
    cost = posterior.attributes
    row = Row(
        name=name,
        engine=repr(posterior.engine),
        num_chains=posterior.num_chains,
        num_draws=posterior.num_draws,
        scores={score: scores[score] for score in CONVENTIONS if score in scores},
        convergence=convergence,
        gradient_evaluations=int(cost["gradient_evaluations"]),
        seconds=float(cost["seconds"]),
        compile_seconds=float(cost["compile_seconds"]),
        findings=(*posterior.findings, *_more_findings(posterior, convergence)),
    )
    return row, int(keep.sum())


def observed_site(posterior: Posterior, site: str | None) -> str:
    """The named observed site, or the only one."""
    names = [term.name for term in posterior.target.terms if term.is_observed]
    if site is None and len(names) == 1:
        return names[0]
    if site is None or site not in names:
        raise ValueError(f"site: expected one of the observed sites {names}, got {site!r}")
    return site


def _class_scores(probs: np.ndarray, labels: np.ndarray, keep: np.ndarray) -> dict[str, float]:
    return {
        "accuracy": accuracy(probs, labels, mask=keep),
        "ece": expected_calibration_error(probs, labels, mask=keep),
        "brier": brier_score(probs, labels, mask=keep),
    }


def _real_scores(simulated: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    scores = {"rmse": rmse(simulated, targets), "crps": crps(simulated, targets)}
    if simulated.shape[0] * simulated.shape[1] > 1:
        scores["coverage_90"] = interval_coverage(simulated, targets)
    return scores


def _convergence(densities: np.ndarray, max_values: int) -> Convergence:
    from xarray import DataArray

    # Named dimensions, since an ensemble may have more chains than draws.
    named = DataArray(densities, dims=("chain", "draw", "position"))
    return check_convergence({"log p(target | draw)": named}, max_values=max_values)[0]


def _more_findings(posterior: Posterior, convergence: Convergence) -> Iterator[str]:
    cut = posterior.statistics.get("reached_max_tree_depth")
    if cut is not None and np.any(cut):
        depth = posterior.engine.max_tree_depth
        yield f"{np.mean(cut):.0%} of kept draws were cut off at max_tree_depth={depth}"
    if convergence.verdict == "not converged":
        yield f"the predictive has not converged: {convergence.reason}"


def _positions(target: Target, labels: np.ndarray, mask: Any, has_classes: bool) -> np.ndarray:
    """True at the positions that are scored: (rows,), or (rows, tokens) for a label per token."""
    if mask is not None:
        return np.asarray(mask)
    keep = np.ones(labels.shape if has_classes else labels.shape[:1], bool)
    network, likelihood = (getattr(target.model, part, None) for part in ("network", "likelihood"))
    masked = getattr(network, "target_mask", None)
    padding = None if masked is None else masked(target.data.inputs)
    if padding is not None:
        keep = np.asarray(padding)
    ignored = getattr(likelihood, "ignore_index", None)
    return keep if ignored is None else keep & (np.asarray(target.data.targets) != ignored)
