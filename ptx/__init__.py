"""ptx: probabilistic programming for Bayesian transformers.

A Bayesian transformer is written once, as a NumPyro model with explicit sample sites; any inference engine is then
chosen for it, and ArviZ diagnoses every posterior.
"""

from ptx import diagnostics, inference, models
from ptx.data import Data
from ptx.diagnostics import to_datatree
from ptx.infer import infer, resume
from ptx.lowering import lower
from ptx.posterior import Posterior
from ptx.predictive import Predictive, log_likelihood, predict
from ptx.store.opened import open_run
from ptx.target import Target
from ptx.version import __version__

__all__ = [
    "Data",
    "Posterior",
    "Predictive",
    "Target",
    "__version__",
    "diagnostics",
    "infer",
    "inference",
    "log_likelihood",
    "lower",
    "models",
    "open_run",
    "predict",
    "resume",
    "to_datatree",
]
