"""`import ptx` is light and leaves JAX as it found it. Both are read in a fresh process."""

import json
import os
import subprocess
import sys
from pathlib import Path

HEAVY = {
    "arviz",
    "arviz_base",
    "arviz_stats",
    "arviz_plots",
    "xarray",
    "sklearn",
    "matplotlib",
    "zarr",
    "rich",
}
HEAVY |= {"pandas", "h5netcdf", "h5py", "tyro", "scoringrules"}
PROBE = """
import json, sys
import {module}
import jax
jax.config.update("jax_num_cpu_devices", 3)  # an error once a backend runs: no import may start one
settings = {{name: repr(value) for name, value in jax.config.values.items()}}
print(json.dumps([settings, sorted(sys.modules)]))
"""


def state_after_import(module: str) -> tuple[dict[str, str], set[str]]:
    """JAX's settings and the loaded modules of a new process that imported `module` alone."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    probe = [sys.executable, "-W", "error", "-c", PROBE.format(module=module)]
    answer = subprocess.run(probe, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    settings, modules = json.loads(answer.stdout)
    return settings, set(modules)


def test_import_changes_no_jax_setting():
    with_ptx, _ = state_after_import("ptx")
    with_numpyro, _ = state_after_import("numpyro")
    assert with_ptx == with_numpyro
    assert "jax_enable_x64" in with_ptx


def test_import_leaves_heavy_packages_out():
    _, modules = state_after_import("ptx")
    assert {"ptx", "numpyro"} <= modules
    assert not modules & HEAVY


def test_the_probe_sees_a_heavy_import():
    _, modules = state_after_import("xarray")
    assert "xarray" in modules
