"""Engines: one algorithm a file, settings in a frozen dataclass, pure functions of state.

The public names stand in `__init__.pyi`, one line each, and are imported at first use: BlackJAX starts a JAX backend
where it is imported, and then devices can no longer be set (`numpyro.set_host_device_count`, `jax.distributed`).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
