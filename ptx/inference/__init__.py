"""Engines: one algorithm a file, settings in a frozen dataclass, pure functions of state."""

from ptx.inference.cyclical_sghmc import CyclicalSGHMC
from ptx.inference.cyclical_sgld import CyclicalSGLD
from ptx.inference.hmc import HMC
from ptx.inference.map import MAP
from ptx.inference.nuts import NUTS
from ptx.inference.prior import Prior
from ptx.inference.schedule import Cosine, Exponential, Polynomial
from ptx.inference.sghmc import SGHMC
from ptx.inference.sgld import SGLD
from ptx.inference.svi import SVI

__all__ = [
    "HMC",
    "MAP",
    "NUTS",
    "SGHMC",
    "SGLD",
    "SVI",
    "Cosine",
    "CyclicalSGHMC",
    "CyclicalSGLD",
    "Exponential",
    "Polynomial",
    "Prior",
]
