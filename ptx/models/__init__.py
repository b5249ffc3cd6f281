"""Networks, priors, likelihoods, and the models they make."""

from ptx.models import likelihoods, priors
from ptx.models.bayesian import Bayesian, bayesian
from ptx.models.mlp import MLP
from ptx.models.network import Weight

__all__ = ["MLP", "Bayesian", "Weight", "bayesian", "likelihoods", "priors"]
