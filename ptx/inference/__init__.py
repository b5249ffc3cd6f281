"""Engines: one algorithm a file, settings in a frozen dataclass, pure functions of state."""

from ptx.inference.hmc import HMC
from ptx.inference.nuts import NUTS
from ptx.inference.prior import Prior
from ptx.inference.schedule import Cosine, Exponential, Polynomial

__all__ = ["HMC", "NUTS", "Cosine", "Exponential", "Polynomial", "Prior"]
