"""Two chains on two cores against one, and the time from a cold start to the first draw."""

import os
import subprocess
import sys
import time

import numpy as np

import ptx
from benchmarks import targets
from benchmarks.timing import interleaved, row
from ptx import inference


def two_chains(repeats: int) -> list[dict]:
    """Gradients per second of two chains in threads over those of one chain, equal gradients a chain."""
    model, data = targets.model(), targets.digits()

    def run(num_chains: int):
        engine = inference.SGLD(step_size=1e-7, num_warmup=0, num_draws=4, thin=25, num_chains=num_chains)

        def once() -> float:
            posterior = ptx.infer(0, model, data, engine, progress=False)
            return float(posterior.attributes["gradient_evaluations"])

        return once

    seconds = interleaved({"one": run(1), "two": run(2)}, repeats)
    ratios = seconds["one"] / seconds["two"]
    return [
        row(
            "gradients per second, two chains / one",
            "SGLD in threads",
            ratios,
            ">= 1.8",
            np.median(ratios) >= 1.8,
        )
    ]


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
