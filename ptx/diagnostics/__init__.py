"""What a posterior and its predictions are worth: ArviZ trees, convergence, scores, comparison, reports, plots."""

from ptx.diagnostics.arviz import to_datatree
from ptx.diagnostics.calibration import CalibrationCurve, calibration_curve, expected_calibration_error
from ptx.diagnostics.comparison import Difference, log_predictive_density, paired_difference
from ptx.diagnostics.convergence import Convergence, check_convergence, convergence_table
from ptx.diagnostics.plots import plot_energy, plot_entropy, plot_ranks, plot_reliability, plot_traces
from ptx.diagnostics.report import Report, report
from ptx.diagnostics.report_rows import Row
from ptx.diagnostics.scores import accuracy, brier_score, crps, interval_coverage, log_loss, mean_nll, rmse
from ptx.diagnostics.uncertainty import EntropyDecomposition, entropy_decomposition

__all__ = [
    "CalibrationCurve",
    "Convergence",
    "Difference",
    "EntropyDecomposition",
    "Report",
    "Row",
    "accuracy",
    "brier_score",
    "calibration_curve",
    "check_convergence",
    "convergence_table",
    "crps",
    "entropy_decomposition",
    "expected_calibration_error",
    "interval_coverage",
    "log_loss",
    "log_predictive_density",
    "mean_nll",
    "paired_difference",
    "plot_energy",
    "plot_entropy",
    "plot_ranks",
    "plot_reliability",
    "plot_traces",
    "report",
    "rmse",
    "to_datatree",
]
