"""Settings of the test process: two CPU devices, a compilation cache, plots without a screen.

They stand before the first import of jax, and as environment variables so that subprocesses of tests see them too.
"""

import gc
import os
from pathlib import Path

# The `devices` chain layout needs a second device; the flag counts only until JAX starts.
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = (
        f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2".strip()
    )
os.environ.setdefault("MPLBACKEND", "Agg")

# Compiling is most of what the suite costs, and most programs are the same in the next run.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

# Tracing makes objects by the million; looking through them as often as Python does takes a tenth of the time.
gc.set_threshold(50_000, 20, 20)
