"""`ptx demo`: two small transformers on real data, each defined once and fitted by four engines."""

from ptx.demo.run import demo
from ptx.demo.tasks import FULL, QUICK, Size

__all__ = ["FULL", "QUICK", "Size", "demo"]
