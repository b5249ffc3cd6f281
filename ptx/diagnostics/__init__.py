"""What a posterior and its predictions are worth: ArviZ trees, convergence, scores, calibration, uncertainty."""

from ptx.diagnostics.arviz import to_datatree
from ptx.diagnostics.calibration import CalibrationCurve, calibration_curve, expected_calibration_error
from ptx.diagnostics.convergence import Convergence, check_convergence, convergence_table
from ptx.diagnostics.scores import accuracy, brier_score, crps, interval_coverage, log_loss, mean_nll, rmse
from ptx.diagnostics.uncertainty import EntropyDecomposition, entropy_decomposition

__all__ = [
    "CalibrationCurve",
    "Convergence",
    "EntropyDecomposition",
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
    "mean_nll",
    "rmse",
    "to_datatree",
]
