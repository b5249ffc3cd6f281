"""`python -m benchmarks.attention`: inference on weights against inference on attention rows, on real data.

Two tasks, one architecture each, three seeds (split or subset of the data, start, minibatches, draws). Settings of the
attentions were chosen by validation NLL alone (`--tune`, in `benchmarks.attention_tuning`); nothing looks at the test
rows or at those outside but the scores below.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np

import ptx
from benchmarks import attention_picture
from benchmarks.attention_methods import CHOSEN, Fit, methods
from benchmarks.attention_tasks import NUM_LAYERS, TASKS, Task, mask_of
from benchmarks.attention_tuning import tune
from ptx.diagnostics import (
    accuracy,
    brier_score,
    entropy_decomposition,
    expected_calibration_error,
    log_loss,
)
from ptx.version import versions

NUM_STEPS, SEEDS, BEGUN = 1000, (0, 1, 2), time.perf_counter()


def scores(task: Task, fit: Fit) -> dict[str, float | None]:
    """Of one fit, on the test rows and on those outside; mutual information is None where there is one draw."""
    probs, outside = _predict(task, fit)
    mask = mask_of(task.test.inputs)
    keep = np.ones(task.test.num_rows, bool) if mask is None else mask
    split, labelled = entropy_decomposition(probs), (probs, task.test.targets)
    many = probs.shape[0] * probs.shape[1] > 1
    found: dict[str, float | None] = {
        "accuracy": accuracy(*labelled, mask=mask),
        "NLL": log_loss(*labelled, mask=mask),
        "ECE": expected_calibration_error(*labelled, mask=mask),
        "Brier": brier_score(*labelled, mask=mask),
        "entropy": float(split.predictive[keep].mean()),
        "expected": float(split.expected[keep].mean()),
        "mutual information": float(split.mutual_information[keep].mean()) if many else None,
    }
    for name, others in outside.items():
        apart, where = entropy_decomposition(others), mask_of(task.outside[name])
        for label, kind in (("entropy", "predictive"), ("mutual information", "mutual_information")):
            inside, out = _of_rows(getattr(split, kind), mask), _of_rows(getattr(apart, kind), where)
            measured = many or kind == "predictive"
            found[f"AUROC {name}, {label}"] = _auroc(inside, out) if measured else None
    return found


def _predict(task: Task, fit: Fit) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Class probabilities of the test rows and of those outside, in one call: one program."""
    parts = [task.test.inputs, *task.outside.values()]
    if isinstance(parts[0], dict):
        joined = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        sizes = [len(part["mask"]) for part in parts]
    else:
        joined, sizes = np.concatenate(parts), [len(part) for part in parts]
    predictive = ptx.predict(
        1, fit.posterior, joined, sites=["targets"], simulated=False, row_draws=fit.row_draws
    )
    probs = np.split(predictive.probabilities["targets"], np.cumsum(sizes)[:-1], axis=2)
    return probs[0], dict(zip(task.outside, probs[1:], strict=True))


def _of_rows(values: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """One number a row: of a sentence, the mean over its words."""
    return values if mask is None else np.sum(values * mask, 1) / np.sum(mask, 1)


def _auroc(inside: np.ndarray, outside: np.ndarray) -> float:
    """P(a row from outside scores higher than one from inside)."""
    from sklearn.metrics import roc_auc_score

    labels = np.repeat([0, 1], [len(inside), len(outside)])
    return float(roc_auc_score(labels, np.concatenate([inside, outside])))


def compare(names: list[str], num_steps: int, seeds: tuple[int, ...], num_layers: int) -> Iterator[dict]:
    """Scores of every task, row and seed; seeds innermost, so that one program serves them all."""
    for name in names:
        tasks = {seed: TASKS[name](seed, num_layers) for seed in seeds}
        fits = {seed: methods(task, seed, num_steps) for seed, task in tasks.items()}
        for method, seed in product(fits[seeds[0]], seeds):
            begun = time.perf_counter()
            found = scores(tasks[seed], fits[seed][method]())
            seconds = time.perf_counter() - begun
            brief = f"accuracy {found['accuracy']:.3f}, NLL {found['NLL']:.3f}, {seconds:.0f} s"
            print(f"{name} {seed} {method}: {brief}", flush=True)
            yield {"task": name, "method": method, "seed": seed, "scores": found, "seconds": seconds}


def tables(lines: list[dict]) -> str:
    """A table a task, in Markdown: mean over seeds, and its standard error."""
    parts = []
    for task in dict.fromkeys(line["task"] for line in lines):
        mine = [line for line in lines if line["task"] == task]
        columns = list(mine[0]["scores"])
        parts += ["", f"| {task} | " + " | ".join(columns) + " |", "| --- |" + " --- |" * len(columns)]
        for method in dict.fromkeys(line["method"] for line in mine):
            of_method = [line["scores"] for line in mine if line["method"] == method]
            cells = [_cell([found[column] for found in of_method]) for column in columns]
            parts.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(parts)


def _cell(values: list[float | None]) -> str:
    if values[0] is None:
        return ""
    mean = f"{np.mean(values):.3f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1) / len(values) ** 0.5:.3f}"


def main() -> None:
    """Run it; print the tables; write JSON as it goes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention", description=__doc__)
    parser.add_argument("--only", choices=TASKS, help="one task; both by default")
    parser.add_argument("--quick", action="store_true", help="20 steps of one layer, one seed: does it run?")
    parser.add_argument("--tune", action="store_true", help="try settings on the validation split instead")
    parser.add_argument("--picture", type=Path, help="fit one model and draw its attention rows here instead")
    parser.add_argument("--out", type=Path, help="where the JSON goes; runs/attention[-OPTION...].json")
    options = parser.parse_args()
    parts = ["attention", "tune" * options.tune, "quick" * options.quick, options.only or ""]
    out = options.out or Path("runs", "-".join(filter(None, parts)) + ".json")
    flags = os.environ.get("XLA_FLAGS", "")  # small networks: chains take the cores, not single operations
    flags = f"--xla_backend_optimization_level=0 {flags}" if options.quick else flags
    os.environ["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen=false {flags}"
    num_steps, seeds, num_layers = (20, SEEDS[:1], 1) if options.quick else (NUM_STEPS, SEEDS, NUM_LAYERS)
    if options.picture:
        attention_picture.draw(options.picture, num_steps)
        return
    names = [options.only] if options.only else list(TASKS)
    lines: list[dict] = []
    for line in tune(names, num_steps) if options.tune else compare(names, num_steps, seeds, num_layers):
        lines.append(line)
        _write(out, lines, num_steps)
    if not options.tune:
        print(tables(lines))
    print({name: round(value) for name, value in _spent().items()})


def _spent() -> dict[str, float]:
    return {"seconds": time.perf_counter() - BEGUN, "processor_seconds": time.process_time()}


def _write(path: Path, lines: list[dict], num_steps: int) -> None:
    """All lines so far, so that a run that is stopped leaves them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {"versions": versions(), "steps": num_steps, "chosen": repr(CHOSEN), **_spent()}
    path.write_text(json.dumps({**about, "lines": lines}, indent=1))


if __name__ == "__main__":
    main()
