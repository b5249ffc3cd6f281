"""Two chains on two cores against one, and the time from a cold start to the first draw."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import ptx
from benchmarks import targets
from benchmarks.timing import interleaved, row
from ptx import inference


def two_chains(repeats: int) -> list[dict]:
    """Gradients per second of two chains in threads over those of one chain, equal gradients a chain.

    On 64 rows, whose activations fit a core's cache, and on 300, where two chains compete for memory. What the machine
    itself allows is measured beside it: two processes that share nothing, each with the bare gradient, over one.
    """
    rows = []
    for num_rows, goal in ((64, ">= 1.8"), (300, "reported")):
        model, data = targets.model(), targets.digits(num_rows)
        seconds = interleaved({"one": _run(model, data, 1), "two": _run(model, data, 2)}, repeats)
        ratios = seconds["one"] / seconds["two"]
        met = goal == "reported" or np.median(ratios) >= 1.8
        what = f"SGLD, {num_rows} rows"
        rows.append(row("gradients per second, two chains / one", what, ratios, goal, met))
        ceiling = _processes(num_rows, min(repeats, 5))
        rows.append(row("the same, two processes / one", f"bare, {num_rows} rows", ceiling, "reported", True))
    return rows


def _run(model: Any, data: ptx.Data, num_chains: int) -> Callable[[], float]:
    engine = inference.SGLD(step_size=1e-7, num_warmup=0, num_draws=4, thin=50, num_chains=num_chains)

    def once() -> float:
        posterior = ptx.infer(0, model, data, engine, progress=False)
        return float(posterior.attributes["gradient_evaluations"])

    return once


def _processes(num_rows: int, repeats: int) -> np.ndarray:
    """Gradients per second of two processes over one."""

    def milliseconds(count: int) -> float:
        command = [sys.executable, "-m", "benchmarks.alone", str(num_rows)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        started = [subprocess.Popen(command, **pipes) for _ in range(count)]
        for process in started:
            process.stdout.readline()  # it has compiled
        for process in started:
            process.stdin.write("go\n")
            process.stdin.flush()
        return max(float(process.communicate()[0]) for process in started)

    return np.asarray([2 * milliseconds(1) / milliseconds(2) for _ in range(repeats)])


def cold_start(repeats: int) -> list[dict]:
    """Seconds of a new process, no compilation cache: import alone, and to the first draw of NUTS."""
    rows = []
    for what, codes in {
        "import": {"ptx": "import ptx", "numpyro": "import numpyro"},
        "first draw of NUTS": {
            name: f"from benchmarks import cold; cold.{name}_draw()" for name in ("ptx", "numpyro")
        },
    }.items():
        seconds: dict[str, list[float]] = {name: [] for name in codes}
        for _ in range(repeats):
            for name, code in codes.items():
                begun = time.perf_counter()
                subprocess.run([sys.executable, "-c", code], check=True, env=_without_cache())
                seconds[name].append(time.perf_counter() - begun)
        ratios = np.asarray(seconds["ptx"]) / np.asarray(seconds["numpyro"])
        goal, met = ("< 1.5", np.median(ratios) < 1.5) if what == "import" else ("reported", True)
        figures = {"seconds": float(np.median(seconds["ptx"]))}
        rows.append(row("cold start, ptx / numpyro", what, ratios, goal, met, **figures))
    return rows


def _without_cache() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if "COMPILATION_CACHE" not in name}
