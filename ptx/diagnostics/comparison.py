"""Which of two posteriors predicts held-out rows better, and whether the rows can tell."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ptx.diagnostics.score_inputs import numbers


@dataclass(frozen=True)
class Difference:
    """How much better `first` predicts than `second`: a mean over rows, in nats a row.

    Attributes:
        first, second: mean log predictive density of each.
        difference: first - second; positive where `first` is better.
        standard_error: of the difference over rows; None where there is one row.
        num_rows: rows that both were scored on.
    """

    first: float
    second: float
    difference: float
    standard_error: float | None
    num_rows: int

    def __str__(self) -> str:
        error = "n/a (one row)" if self.standard_error is None else f"{self.standard_error:.4f}"
        return f"{self.difference:+.4f} nats a row, standard error {error}, over {self.num_rows} rows"


def log_predictive_density(log_likelihood: Any) -> Float[np.ndarray, " rows"]:
    """log(1/S sum_s p(y_n | draw s)) of each row n in nats, over the S draws of all chains.

    The mean is over densities (log-mean-exp), never over log densities. Its mean over rows is minus
    `diagnostics.mean_nll`; its sum over held-out rows is what is often called elpd.

    Args:
        log_likelihood: log p(y_n | draw s) of shape (chain, draw, rows), as `ptx.log_likelihood` gives it per row.

    Raises:
        ValueError: another number of axes, nothing in it, NaN or +inf.

    Example:
        >>> import numpy as np
        >>> values = log_predictive_density(np.log([[[0.2], [0.6]]]))  # one chain, two draws, one row: log 0.4
        >>> round(float(values[0]), 6)
        -0.916291
    """
    values = numbers("log_likelihood", log_likelihood).astype(np.float64)
    if values.ndim != 3 or values.size == 0:
        raise ValueError(
            f"log_likelihood: got shape {values.shape}; expected (chain, draw, rows), none of them 0. Sum what a row "
            "holds (tokens, outputs) first, as ptx.log_likelihood does with per='row'"
        )
    wrong = np.isnan(values) | (values == np.inf)
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(
            f"log_likelihood: got {values[where]} at index {where}; expected log densities, in nats"
        )
    draws = values.reshape(-1, values.shape[2])
    return np.logaddexp.reduce(draws, axis=0) - np.log(len(draws))


def paired_difference(first: Any, second: Any) -> Difference:
    """d = 1/N sum_n (a_n - b_n) with standard error sd(a_n - b_n) / sqrt(N), a and b the log predictive densities.

    Both posteriors are scored on the same rows, in the same order, so what makes a row hard for both cancels. The
    standard error (divisor N - 1 inside sd) is that of the rows as a sample: it takes them as independent, the
    training data as given, and leaves out the Monte Carlo error of finitely many draws. Times N, both numbers are
    those of the sum over rows, ArviZ's convention.

    Args:
        first: log p(y_n | draw s) of shape (chain, draw, rows), as `ptx.log_likelihood` gives it per row;
            chains and draws may differ.
        second: the same.

    Raises:
        ValueError: numbers of rows that differ; a row that every draw of one side gives density 0; as
            `log_predictive_density`.

    Example:
        >>> import numpy as np
        >>> print(paired_difference(np.log([[[0.5, 0.5]]]), np.log([[[0.25, 0.5]]])))
        +0.3466 nats a row, standard error 0.3466, over 2 rows
    """
    densities = [log_predictive_density(values) for values in (first, second)]
    if densities[0].shape != densities[1].shape:
        raise ValueError(
            f"log_likelihood: {len(densities[0])} rows against {len(densities[1])}; score both on the same rows"
        )
    for name, values in zip(("first", "second"), densities, strict=True):
        if np.isneginf(values).any():
            row = int(np.argmax(np.isneginf(values)))
            raise ValueError(
                f"{name}: every draw gives row {row} density 0, so no finite difference exists; look at that row, "
                "or at the likelihood"
            )
    differences = densities[0] - densities[1]
    num_rows = len(differences)
    error = float(differences.std(ddof=1) / np.sqrt(num_rows)) if num_rows > 1 else None
    means = [float(values.mean()) for values in densities]
    return Difference(means[0], means[1], float(differences.mean()), error, num_rows)
