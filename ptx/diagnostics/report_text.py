"""How a report looks: a plain text table, and a coloured one for rich."""

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ptx.diagnostics.report import Report
    from ptx.diagnostics.report_rows import Row

HEADINGS = {"accuracy": "accuracy", "nll": "NLL", "ece": "ECE", "brier": "Brier"}
HEADINGS |= {"rmse": "RMSE", "crps": "CRPS", "coverage_90": "90% cover"}
LEAST = ("nll", "ece", "brier", "rmse", "crps")  # scores whose smallest value is the best


def as_text(report: "Report") -> str:
    """Aligned columns, then what they mean, then the findings."""
    cells = [["", *_headings(report)], *([row.name, *_cells(report, row)] for row in report.rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]

    def aligned(line: list[str]) -> str:
        numbers = (cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))
        return "  ".join([line[0].ljust(widths[0]), *numbers])

    return "\n".join([*map(aligned, cells), "", *notes(report), *findings(report)])


def as_tables(report: "Report") -> Any:
    """A rich table, the best of each score in bold; the notes dimmed, the findings in yellow."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))  # fits into 80 columns
    table.add_column("")
    for heading in _headings(report):
        table.add_column(heading, justify="right")
    best = _best(report)
    for index, row in enumerate(report.rows):
        cells = [
            Text(cell, style="bold green" if best.get(column) == index else "")
            for column, cell in enumerate(_cells(report, row))
        ]
        table.add_row(Text(row.name, style="bold"), *cells)
    lines = [Text(line, style="dim") for line in notes(report)]
    return Group(table, *lines, *(Text(line, style="yellow") for line in findings(report)))


def notes(report: "Report") -> list[str]:
    """What was scored and what each column means."""
    of = f"{report.num_rows} rows"
    if report.num_positions != report.num_rows:
        of = f"{report.num_positions} positions in {of}"
    names = HEADINGS | {
        "draws": "draws",
        "r_hat": "R-hat",
        "ess": "ESS",
        "gradient_evaluations": "grads",
        "seconds": "s (compile)",
    }
    meanings = [f"  {names.get(name, name)}: {text}" for name, text in report.conventions.items()]
    return [f"Scored on {of}. n/a: not available, with one chain or too few draws.", *meanings]


def findings(report: "Report") -> list[str]:
    """The findings of each row, or that there are none."""
    lines = []
    for row in report.rows:
        engine = row.engine.split("(")[0] + ": "  # `infer` names the engine, the report names the posterior
        lines += [f"  {row.name}: {finding.removeprefix(engine)}" for finding in row.findings]
    return ["Findings:", *lines] if lines else ["Findings: none"]


def _headings(report: "Report") -> list[str]:
    scores = [HEADINGS[name] for name in _scores(report)]
    return ["draws", *scores, "R-hat", "ESS", "grads", "s (compile)"]


def _scores(report: "Report") -> list[str]:
    return [name for name in report.conventions if name in HEADINGS]


def _cells(report: "Report", row: "Row") -> list[str]:
    found = [row.scores.get(name) for name in _scores(report)]
    scores = ["n/a" if value is None else f"{value:.3f}" for value in found]
    r_hat, ess = row.convergence.r_hat, row.convergence.ess_bulk
    checks = ["n/a" if r_hat is None else f"{r_hat:.2f}", "n/a" if ess is None else f"{ess:.0f}"]
    cost = [f"{row.gradient_evaluations:,}", f"{row.seconds:.1f} ({row.compile_seconds:.1f})"]
    return [f"{row.num_chains} x {row.num_draws}", *scores, *checks, *cost]


def _best(report: "Report") -> dict[int, int]:
    """The row with the best value of each score, by column of `_cells`; none where all are equal."""
    found = {}
    for offset, name in enumerate(_scores(report)):
        values = [row.scores.get(name, math.nan) for row in report.rows]
        if name != "coverage_90" and len(set(values)) > 1 and not any(map(math.isnan, values)):
            found[1 + offset] = values.index(min(values) if name in LEAST else max(values))
    return found
