"""The report: scores, findings and cost of one or more posteriors, side by side."""

import csv
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ptx.diagnostics.calibration import expected_calibration_error
from ptx.diagnostics.convergence import Convergence, check_convergence
from ptx.diagnostics.report_text import HEADINGS, as_tables, as_text
from ptx.diagnostics.scores import accuracy, brier_score, crps, interval_coverage, mean_nll, rmse
from ptx.posterior import Posterior
from ptx.prediction_inputs import checked_data
from ptx.predictive import Predictive, log_likelihood, predict
from ptx.sites import observed_values
from ptx.start import as_key

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
    "seconds": "wall time of `infer`, compilation included; compile_seconds is that part of it",
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


@dataclass(frozen=True)
class Report:
    """Scores, findings and cost of posteriors on the same held-out rows.

    `print(report)` gives a text table; a rich console shows it as a coloured one.

    Attributes:
        rows: one a posterior.
        num_rows: rows that were scored.
        num_positions: positions in them that count: rows, or the real tokens of a per-token task.
        conventions: what each column means, for the columns that there are.
    """

    rows: tuple[Row, ...]
    num_rows: int
    num_positions: int
    conventions: dict[str, str]

    def __str__(self) -> str:
        return as_text(self)

    def __rich__(self) -> Any:
        return as_tables(self)

    def to_json(self, path: str | Path | None = None) -> str:
        """JSON text, also written to `path`; a number that is not finite becomes the string "inf" or "nan"."""
        text = json.dumps(_plain(asdict(self)), indent=2, allow_nan=False) + "\n"
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def to_csv(self, path: str | Path) -> None:
        """A line for each posterior; what is not available stays empty."""
        lines = [_flat(row) for row in self.rows]
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(dict.fromkeys(name for line in lines for name in line)))
            writer.writeheader()
            writer.writerows(lines)


def report(
    rng_key: Any,
    posteriors: Mapping[str, Posterior],
    data: Any,
    *,
    site: str | None = None,
    mask: Any = None,
    predictions: Mapping[str, Predictive] | None = None,
    max_values: int = 100,
) -> Report:
    """Score posteriors on the same held-out data, each by its predictive, averaged over all of its draws.

    Where the observed site has class probabilities the scores are accuracy, nll, ece and brier, over rows or, where
    a row holds a label per token, over the tokens that the model's padding mask leaves; elsewhere nll, rmse, crps and
    the coverage of 90% intervals, of simulated targets. R-hat and effective sample size are those of
    log p(target | draw), the predictive, at up to `max_values` positions; with one chain or a single draw they are
    not available. For an approximation they tell whether independent fits agree. Nothing is gated: what does not
    converge is a finding of its row.

    Args:
        rng_key: a JAX key or an integer seed; it counts for simulated targets alone.
        posteriors: by the name that the report shall use.
        data: held-out `ptx.Data` or pair (inputs, targets).
        site: the observed site to score, if there are several.
        mask: bool, True where a position counts; by default the padding mask of a model of ptx, else all count.
        predictions: what `ptx.predict` said of `data.inputs`, by name; computed where missing.
        max_values: positions whose convergence is looked at, evenly spaced.

    Cost: two forward passes a draw and row, one with `predictions`, and about 3 ms a value of `max_values`.

    Raises:
        ValueError, TypeError: no posteriors; an unknown or missing site; data that do not fit; as the scores.
    """
    if not isinstance(posteriors, Mapping) or not posteriors:
        raise TypeError(f"posteriors: expected a mapping of names to posteriors, got {posteriors!r}")
    rng_key = as_key(rng_key)
    rows, counts = [], set()
    for index, (name, posterior) in enumerate(posteriors.items()):
        target, chosen = checked_data(posterior.target, data), _site(posterior, site)
        prediction = (predictions or {}).get(name)
        if prediction is None:
            key, inputs = jax.random.fold_in(rng_key, index), target.data.inputs
            prediction = predict(key, posterior, inputs, sites=(chosen,))
        labels = observed_values(target)[chosen]
        keep = _positions(target, labels, mask, chosen in prediction.probabilities)
        rows.append(_row(name, posterior, target, chosen, labels, keep, prediction, max_values))
        counts.add((target.num_rows, int(keep.sum())))
    if len(counts) > 1:
        raise ValueError(
            f"posteriors: scored on different positions {sorted(counts)} (rows, positions); give a `mask`"
        )
    ((num_rows, num_positions),) = counts
    absent = set(HEADINGS) - {score for row in rows for score in row.scores}
    conventions = {name: text for name, text in CONVENTIONS.items() if name not in absent}
    return Report(tuple(rows), num_rows, num_positions, conventions)


def _row(
    name: str,
    posterior: Posterior,
    target: Any,
    site: str,
    labels: np.ndarray,
    keep: np.ndarray,
    prediction: Predictive,
    max_values: int,
) -> Row:
    has_classes = site in prediction.probabilities
    densities = log_likelihood(posterior, target.data, per="token" if keep.ndim == 2 else "row")[site]
    scores = {"nll": mean_nll(densities, mask=keep)}
    if has_classes:
        scores = _class_scores(prediction.probabilities[site], labels, keep) | scores
    else:
        scores |= _real_scores(prediction.targets[site][:, :, keep], labels[keep])
    convergence = _convergence(densities[:, :, keep], max_values)
    cost = posterior.attributes
    return Row(
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

    named = DataArray(
        densities, dims=("chain", "draw", "position")
    )  # an ensemble may have more chains than draws
    return check_convergence({"log p(target | draw)": named}, max_values=max_values)[0]


def _more_findings(posterior: Posterior, convergence: Convergence) -> Any:
    cut = posterior.statistics.get("reached_max_tree_depth")
    if cut is not None and cut.any():
        depth = posterior.engine.max_tree_depth
        yield f"{cut.mean():.0%} of kept draws were cut off at max_tree_depth={depth}"
    if convergence.verdict == "not converged":
        yield f"the predictive has not converged: {convergence.reason}"


def _site(posterior: Posterior, site: str | None) -> str:
    names = [term.name for term in posterior.target.terms if not term.is_factor]
    if site is None and len(names) == 1:
        return names[0]
    if site not in names:
        raise ValueError(f"site: expected one of the observed sites {names}, got {site!r}")
    return site


def _positions(target: Any, labels: np.ndarray, mask: Any, has_classes: bool) -> np.ndarray:
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


def _plain(value: Any) -> Any:
    """As JSON knows it."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _flat(row: Row) -> dict[str, Any]:
    convergence = {"r_hat": row.convergence.r_hat, "ess": row.convergence.ess_bulk}
    cost = {name: getattr(row, name) for name in ("gradient_evaluations", "seconds", "compile_seconds")}
    shape = {"num_chains": row.num_chains, "num_draws": row.num_draws}
    return {"name": row.name, **shape, **row.scores, **convergence, **cost, "engine": row.engine}
