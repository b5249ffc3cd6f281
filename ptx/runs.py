"""What is known of stored runs without their models: lists and descriptions, for the command line."""

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ptx.progress_text import duration
from ptx.store import files, manifest, read
from ptx.store.holder import holder
from ptx.store.layout import CHECKPOINTS, DRAWS, EVENTS

LAST_EVENTS = 5
EVENT_BYTES = 2**16


class Summary(NamedTuple):
    """One line of a list of runs."""

    state: str
    steps: str
    draws: str
    eta: str
    findings: str
    engine: str
    path: str


def find_runs(directory: Path) -> Iterator[Path]:
    """The run directories at and below a directory, by name; links are not followed."""
    for place, inner, names in os.walk(directory):
        inner.sort()
        looks_like_run = CHECKPOINTS in inner or DRAWS in inner
        if {manifest.MANIFEST, manifest.PREVIOUS} & {*names} and (looks_like_run or _is_ours(Path(place))):
            inner.clear()  # no run lies inside another
            yield Path(place)


def _is_ours(directory: Path) -> bool:
    try:
        content = files.read_json(directory / manifest.MANIFEST)
    except (ValueError, OSError):
        return False
    return isinstance(content, dict) and content.get("format") == manifest.FORMAT


def table(directory: Path) -> str:
    """The runs at and below a directory, a line each.

    Raises:
        FileNotFoundError: no such directory.
    """
    if not directory.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"{directory}: no such directory")
    rows = [summary(path, directory) for path in find_runs(directory)]
    if not rows:
        return f"no runs in {directory} or below it"
    head = Summary("state", "steps", "draws", "ETA", "findings", "engine", "run")
    lines = [head, *rows]
    widths = [max(len(cells[column]) for cells in lines) for column in range(len(head) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(cells, widths, strict=False)), cells.path])
        for cells in lines
    )


def summary(directory: Path, below: Path) -> Summary:
    """What a list says of one run; a run that cannot be read is "damaged"."""
    name = plain(directory.resolve().name if directory == below else str(directory.relative_to(below)))
    try:
        content = read.load(directory, with_state=False).content
        engine = manifest.engine_of(content)
    except (ValueError, OSError) as error:
        return Summary("damaged", "n/a", "n/a", "n/a", "n/a", "n/a", f"{name} ({plain(str(error))[:200]})")
    found = content.get("findings") if content["state"] != "running" else None  # they are made at the end
    return Summary(
        state_of(directory, content).split(" (")[0],
        f"{content['steps']}/{engine.num_steps}",
        f"{content['draws']}/{engine.num_draws}",
        time_left(content, engine),
        str(len(found)) if isinstance(found, list) else "n/a",
        type(engine).__name__,
        name,
    )


def state_of(directory: Path, content: dict[str, Any]) -> str:
    """running (a process has the lock), killed (nobody has it, and no end was written), or the recorded end."""
    who = holder(directory)
    if who is not None:
        return f"running ({plain(who)})"
    return "killed" if content["state"] == "running" else content["state"]


def time_left(content: dict[str, Any], engine: Any) -> str:
    """The time that the missing steps take at the mean speed so far."""
    if content["state"] == "finished":
        return "-"
    spent, done = content["seconds"] - content["compile_seconds"], content["steps"]
    if done < 1 or not spent > 0:
        return "n/a"
    return duration(spent / done * max(0, engine.num_steps - done))


def description(directory: Path) -> str:
    """What a run is, how far it is and what was found, in lines.

    Raises:
        FileNotFoundError: no run there. ValueError: damaged, or of a newer format.
    """
    saved = read.load(directory, with_state=False)
    content, engine = saved.content, manifest.engine_of(saved.content)
    model, data = content["model"], content["data"]
    versions, settings = content.get("versions") or {}, content["settings"]
    lines = {
        "run": [str(directory)],
        "state": [state_of(directory, content)],
        "engine": [repr(engine)],
        "model": [str(model.get("name"))],
        "sites": [_site(*item) for item in _items(model.get("sites"))],
        "data": [
            *(f"{name}: {leaf}" for name, leaf in _items(data.get("leaves"))),
            f"sha256 {data.get('sha256')}",
        ],
        "key": [f"{content['rng_key'].get('words')}, {content['rng_key'].get('implementation')}"],
        "settings": [", ".join(f"{name} {value}" for name, value in settings.items() if value is not None)],
        "versions": [", ".join(f"{n.removesuffix('_version')} {value}" for n, value in _items(versions))],
        "steps": [f"{content['steps']} of {engine.num_steps} in each of {content['num_chains']} chains"],
        "draws": [f"{content['draws']} of {engine.num_draws} of each chain"],
        "time": [_time(content, engine)],
        "findings": _findings(content),
        "damage": list(saved.notes),
        "events": last_events(directory),
    }
    return "\n".join(
        f"{heading if i == 0 else '':<9} {plain(text)}"
        for heading, texts in lines.items()
        for i, text in enumerate(texts)
    )


def _items(value: Any) -> Any:
    return value.items() if isinstance(value, dict) else ()


def _site(name: str, site: Any) -> str:
    shape, support = (site.get(key) for key in ("shape", "support")) if isinstance(site, dict) else ("?", "?")
    return f"{name}: {shape}, {support}"


def _time(content: dict[str, Any], engine: Any) -> str:
    text = f"{content['seconds']:.1f} s, {content['compile_seconds']:.1f} s of them before the first step"
    left = time_left(content, engine)
    return f"{text}; about {left} left" if left not in ("-", "n/a") else text


def _findings(content: dict[str, Any]) -> list[str]:
    found = content.get("findings")
    if content["state"] == "running" or not isinstance(found, list):
        return ["not known before the end"]
    return [str(finding) for finding in found] or ["none"]


def last_events(directory: Path) -> list[str]:
    """The last lines of the event log, as text; a line that a crash cut off is left out."""
    try:
        with open(directory / EVENTS, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - EVENT_BYTES))
            written = file.read(EVENT_BYTES).splitlines()
    except OSError:
        return []
    found = []
    for text in written:
        try:
            event = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            details = [
                f"{name}={value}" for name, value in event.items() if name not in ("time", "event", "engine")
            ]
            found.append(" ".join([str(event.get("time")), str(event.get("event")), *details]))
    return found[-LAST_EVENTS:]


def plain(text: str) -> str:
    """The text without characters that would steer a terminal: a run may have been made by others."""
    return "".join(char if char.isprintable() else "?" for char in text)
