"""The report: scores, findings and cost of one or more posteriors, side by side."""

import csv
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax

from ptx.diagnostics.report_rows import CONVENTIONS, Row, observed_site, score
from ptx.diagnostics.report_text import HEADINGS, as_tables, as_text
from ptx.posterior import Posterior
from ptx.prediction_inputs import checked_data
from ptx.predictive import Predictive, predict
from ptx.start import as_key


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
        target, chosen = checked_data(posterior.target, data), observed_site(posterior, site)
        prediction = (predictions or {}).get(name)
        if prediction is None:
            key, inputs = jax.random.fold_in(rng_key, index), target.data.inputs
            prediction = predict(key, posterior, inputs, sites=(chosen,))
        row, num_positions = score(name, posterior, target, chosen, prediction, mask, max_values)
        rows.append(row)
        counts.add((target.num_rows, num_positions))
    if len(counts) > 1:
        raise ValueError(
            f"posteriors: scored on different positions {sorted(counts)} (rows, positions); give a `mask`"
        )
    ((num_rows, num_positions),) = counts
    absent = set(HEADINGS) - {score for row in rows for score in row.scores}
    conventions = {name: text for name, text in CONVENTIONS.items() if name not in absent}
    return Report(tuple(rows), num_rows, num_positions, conventions)


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
