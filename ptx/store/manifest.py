"""The manifest of a run: one JSON file, written last, that says what the other files mean.

Nothing read from disk is evaluated: an engine is a name that `ptx.inference` exports with fields of plain values, and
file names are computed from site names, never read.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

from ptx import inference
from ptx.store import files

FORMAT, FORMAT_VERSION = "ptx run", 1
MANIFEST, PREVIOUS = "manifest.json", "manifest.previous.json"
_KINDS: dict[str, type | tuple[type, ...]] = {
    "engine": dict,
    "model": dict,
    "data": dict,
    "rng_key": dict,
    "settings": dict,
    "state": str,
    "arrays": list,
    "lengths": dict,
    "steps": int,
    "draws": int,
    "save": int,
    "checkpoint": dict,
    "seconds": (int, float),
    "compile_seconds": (int, float),
    "attributes": (dict, type(None)),
    "findings": (list, type(None)),
    "versions": (dict, type(None)),
}
STATES = ("running", "interrupted", "stopped", "finished")


def to_json(value: Any) -> Any:
    """An engine, a schedule or a plain value as JSON: records by name and fields, tuples as lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"name": type(value).__name__, "fields": fields}
    if isinstance(value, (tuple, list)):
        return [to_json(entry) for entry in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(
        f"store: a setting of type {type(value).__name__} ({value!r}) has no place in JSON; use plain values"
    )


def from_json(value: Any) -> Any:
    """Inverse of `to_json`: names are looked up in `ptx.inference.__all__`.

    Raises:
        ValueError: a name that is not exported, or fields that it does not take.
    """
    if isinstance(value, list):
        return tuple(from_json(entry) for entry in value)
    if not isinstance(value, dict):
        return value
    name, fields = value.get("name"), value.get("fields")
    exported: list[str] = vars(inference)["__all__"]
    if not isinstance(name, str) or name not in exported or not isinstance(fields, dict):
        raise ValueError(
            f"manifest: {name!r} is no engine or schedule of ptx.inference ({', '.join(exported)})"
        )
    try:
        return getattr(inference, name)(**{field: from_json(entry) for field, entry in fields.items()})
    except (TypeError, ValueError) as error:
        raise ValueError(f"manifest: {name} cannot be made with {sorted(fields)}: {error}") from error


def engine_of(content: dict[str, Any]) -> Any:
    """The engine of a run.

    Raises:
        ValueError: not one, or with another number of chains than the run has.
    """
    engine = from_json(content["engine"])
    if not hasattr(engine, "is_sampler") or engine.num_chains != content.get("num_chains"):
        raise ValueError(
            f"manifest: {engine!r} is no engine with {content.get('num_chains')!r} chains; this is not what ptx wrote"
        )
    return engine


def dump(content: dict[str, Any]) -> bytes:
    """The manifest's bytes; its own checksum included."""
    header = {"format": FORMAT, "format_version": FORMAT_VERSION}
    body = header | content | header  # first in the file, and not what an older ptx wrote
    return json.dumps(body | {"sha256": _digest(body)}, indent=1).encode()


def read(path: Path) -> dict[str, Any]:
    """A manifest that is whole and of a format that this version knows.

    Raises:
        ValueError: damaged, of another format or a newer version, or with entries of the wrong kind.
        FileNotFoundError: missing.
    """
    content = files.read_json(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{path}: not the manifest of a ptx run")
    digest = content.pop("sha256", None)
    try:
        is_whole = digest == _digest(content)
    except RecursionError as error:
        raise ValueError(f"{path}: nested too deeply for a manifest") from error
    if not is_whole:
        raise ValueError(f"{path}: damaged, its checksum differs")
    version = content.get("format_version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise NewerFormatError(
            f"{path}: format version {version}, and this ptx reads up to {FORMAT_VERSION}; use a newer ptx"
        )
    for name, kind in _KINDS.items():
        if not isinstance(content.get(name), kind):
            raise ValueError(f"{path}: entry {name!r} is missing or of the wrong kind")
    if content["state"] not in STATES:
        raise ValueError(f"{path}: unknown state {content['state']!r}")
    return content


class NewerFormatError(ValueError):
    """A run that a newer ptx wrote: no older manifest may be taken instead."""


def write(directory: Path, content: bytes, previous: bytes | None) -> None:
    """Replace the manifest, after the last valid one before it was kept as the previous one."""
    if previous is not None:
        files.write(directory / PREVIOUS, previous)
    files.write(directory / MANIFEST, content)


def _digest(body: dict[str, Any]) -> str:
    return files.sha256(json.dumps(body, sort_keys=True).encode())
