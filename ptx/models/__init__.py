"""Networks, priors, likelihoods, and the models they make."""

from ptx.models import attention, likelihoods, priors
from ptx.models.bayesian import Bayesian, bayesian
from ptx.models.mlp import MLP
from ptx.models.network import Weight
from ptx.models.transformer import Transformer
from ptx.models.vision_transformer import VisionTransformer

__all__ = [
    "MLP",
    "Bayesian",
    "Transformer",
    "VisionTransformer",
    "Weight",
    "attention",
    "bayesian",
    "likelihoods",
    "priors",
]
