"""What storing a run costs in time, and whether memory grows with the number of draws or of fits."""

import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import ptx
from benchmarks import targets
from benchmarks.timing import interleaved, row
from ptx import inference

ENGINES = {
    "SGLD, every step a draw": inference.SGLD(step_size=1e-7, num_warmup=0, num_draws=1500, num_chains=1),
    "NUTS": inference.NUTS(num_warmup=0, step_size=2e-3, max_tree_depth=4, num_draws=80, num_chains=1),
}


def overhead(repeats: int) -> list[dict]:
    """Seconds of a run with the store over those without, compiling aside; runs last several saves."""
    model, data = targets.model(), targets.digits()
    rows = []
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as directory:
        for name, engine in ENGINES.items():
            stores = (Path(directory) / f"{name} {number}" for number in itertools.count())
            runs = {
                "stored": _run(model, data, engine, stores),
                "in memory": _run(model, data, engine, itertools.repeat(None)),
            }
            seconds = interleaved(runs, max(3, repeats // 4))
            ratios = seconds["stored"] / seconds["in memory"]
            met = np.median(ratios) <= 1.03
            rows.append(row("time per step, stored / in memory", name, ratios, "<= 1.03", met))
    return rows


def _run(model: Any, data: ptx.Data, engine: Any, stores: Iterator[Path | None]) -> Callable[[], float]:
    def once() -> float:
        posterior = ptx.infer(0, model, data, engine, store=next(stores), progress=False)
        return float(posterior.attributes["num_steps"])

    return once


def memory(repeats: int) -> list[dict]:
    """Peak memory of a process that draws 20 times as many over one that draws few; growth over 20 fits in one."""
    ratios = []
    for _ in range(min(repeats, 3)):
        few, many = (_peak("draws", count) for count in (200, 4000))
        ratios.append(many / few)
    met = np.median(ratios) <= 1.05
    rows = [row("peak memory, 20 x draws / 1 x", "stored SGLD", np.asarray(ratios), "<= 1.05", met)]
    growth = np.asarray([_peak("fits", 20) for _ in range(min(repeats, 3))])
    rows.append(
        row("memory after 20 fits / after 4", "stored NUTS", growth, "<= 1.02", np.median(growth) <= 1.02)
    )
    return rows


def _peak(what: str, count: int) -> float:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as directory:
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.stored", what, str(count), directory]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def resident() -> float:
    """Bytes of this process in memory now."""
    return float(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def draws(count: int, directory: str) -> float:
    """Peak bytes of a process that keeps `count` draws of 10,330 weights in each of two chains."""
    import resource

    engine = inference.SGLD(step_size=1e-7, num_warmup=0, num_draws=count, num_chains=2, thin=1)
    ptx.infer(0, targets.model(), targets.digits(16), engine, store=Path(directory) / "run", progress=False)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def fits(count: int, directory: str) -> float:
    """Bytes in memory after `count` fits, over those after the fourth."""
    engine = inference.NUTS(num_warmup=20, num_draws=20, num_chains=2, max_tree_depth=3)
    found = []
    for fit in range(count):
        store = Path(directory) / str(fit)
        ptx.infer(fit, targets.model(), targets.digits(64), engine, store=store, progress=False)
        found.append(resident())
    return found[-1] / found[3]


if __name__ == "__main__":
    print({"draws": draws, "fits": fits}[sys.argv[1]](int(sys.argv[2]), sys.argv[3]))
