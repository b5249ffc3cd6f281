"""The demo's runs on disk: where each lies, and what rebuilds its model."""

import json
import warnings
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from ptx.demo import tasks
from ptx.demo.tasks import FULL, QUICK, Size, Task
from ptx.infer import resume
from ptx.posterior import Posterior
from ptx.store import files, read

RECORD = "demo.json"
MAKERS = {"digits": tasks.digits, "tagger": tasks.tagger}
PRIORS = ("as defined", "Student t")
MOST = 10**7  # of any number in a Size


def folder_of(folder: Path, seed: int, size: Size, name: str) -> Path:
    """Where a run lies: demos of other seeds and sizes beside each other, so that none is in another's way."""
    known = {FULL: "full", QUICK: "quick"}
    kind = known.get(size) or f"size-{zlib.crc32(repr(tuple(size)).encode()):08x}"
    return folder / "stores" / f"{kind}-seed-{seed}" / name.lower().replace(" ", "_")


def record(directory: Path, task: Task, seed: int, size: Size, prior: str) -> None:
    """Write what rebuilds the model of a run, as a JSON file of plain values in its directory."""
    content = {"task": task.name, "seed": seed, "size": size._asdict(), "prior": prior}
    files.write(directory / RECORD, json.dumps(content, indent=1).encode())


def recorded(directory: Path) -> Task:
    """The task of a run that `record` wrote.

    Raises:
        FileNotFoundError: no run there. ValueError: no demo made it, or the file is not what `record` writes.
    """
    read.require_run(directory)
    path = directory / RECORD
    if not path.exists():
        raise ValueError(
            f"{directory}: no demo made this run, so its model is not known here; in Python, with the model at hand: "
            f"ptx.resume({str(directory)!r}, model)"
        )
    content = files.read_json(path)
    content = content if isinstance(content, dict) else {}
    entries: Any = (content.get(key) for key in ("task", "seed", "size", "prior"))
    name, seed, sizes, prior = entries
    fields = sizes if isinstance(sizes, dict) else {}
    ok = isinstance(name, str) and name in MAKERS and prior in PRIORS and _is_integer(seed, 0, 2**32 - 1)
    ok = ok and set(fields) == set(Size._fields) and all(_is_integer(n, 1, MOST) for n in fields.values())
    if not ok:
        raise ValueError(
            f"{path}: expected task ({', '.join(MAKERS)}), seed, size ({', '.join(Size._fields)}) and prior "
            f"({', '.join(PRIORS)}), got {str(content)[:300]}"
        )
    task = MAKERS[name](seed, Size(**fields))
    return other_prior(task) if prior == PRIORS[1] else task


def other_prior(task: Task) -> Task:
    """The digits under the prior that the demo compares with."""
    return task._replace(model=replace(task.model, prior=tasks.OTHER_DIGITS_PRIOR))


def _is_integer(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def go_on(directory: Path) -> Posterior:
    """Bring a run of the demo to its end.

    Raises:
        As `recorded` and `ptx.resume`.
    """
    task = recorded(directory)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # findings: the caller prints them
        return resume(directory, task.model, task.train)
