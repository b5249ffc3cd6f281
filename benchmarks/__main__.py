"""`python -m benchmarks`: every ratio in one run, as a table and as JSON."""

import argparse
import json
import platform
from pathlib import Path

import jax

from benchmarks import chains, dirichlet, gradients, rivals, stored
from ptx.version import versions


def main() -> None:
    """Run them all; print a table; write JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--repeats", type=int, default=20, help="interleaved repeats of each contender")
    parser.add_argument("--only", default="", help="run the benchmarks whose name contains this")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmarks.json"), help="where the JSON goes")
    options = parser.parse_args()
    parts = {
        "engines": gradients.engines,
        "lowered": gradients.lowered,
        "nuts": rivals.nuts,
        "two chains": chains.two_chains,
        "dirichlet attention": dirichlet.attention,
        "training step": dirichlet.training_step,
        "store overhead": stored.overhead,
        "store memory": stored.memory,
        "cold start": lambda repeats: chains.cold_start(min(repeats, 5)),
    }
    rows = []
    for name, benchmark in parts.items():
        if options.only in name:
            new = benchmark(options.repeats)
            _print(new)
            rows += new
    _write(options.out, rows)


def _print(rows: list[dict]) -> None:
    for line in rows:
        low, high = line["quartiles"]
        met = "met" if line["met"] else "NOT MET"
        print(
            f"{line['benchmark']:42} {line['what']:20} {line['ratio']:6.3f}  [{low:.3f}, {high:.3f}]  "
            f"goal {line['goal']:9} {met}",
            flush=True,
        )


def _write(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    where = {"processor": platform.processor() or platform.machine(), "device": jax.devices()[0].device_kind}
    path.write_text(json.dumps({"machine": where, "versions": versions(), "rows": rows}, indent=1))
    print(f"written to {path}")


if __name__ == "__main__":
    main()
