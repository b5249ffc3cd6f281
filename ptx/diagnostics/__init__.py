"""What a posterior and its predictions are worth: scores, calibration, uncertainty."""

from ptx.diagnostics.calibration import CalibrationCurve, calibration_curve, expected_calibration_error
from ptx.diagnostics.scores import accuracy, brier_score, crps, interval_coverage, log_loss, mean_nll, rmse
from ptx.diagnostics.uncertainty import EntropyDecomposition, entropy_decomposition

__all__ = [
    "CalibrationCurve",
    "EntropyDecomposition",
    "accuracy",
    "brier_score",
    "calibration_curve",
    "crps",
    "entropy_decomposition",
    "expected_calibration_error",
    "interval_coverage",
    "log_loss",
    "mean_nll",
    "rmse",
]
