"""The data of a run as one safetensors file, with the structure of inputs and targets as JSON."""

from pathlib import Path
from typing import Any

import numpy as np

from ptx.data import Data
from ptx.store import checkpoint, files, fingerprint
from ptx.store.layout import DATA


def write(directory: Path, data: Data) -> Any:
    """Write the arrays; return their structure, or None where it is not made of dicts, lists and tuples alone.

    Raises:
        FileExistsError: a file of that name holds something else.
    """
    leaves: list[np.ndarray] = []
    try:
        structure = {"inputs": _encode(data.inputs, leaves), "targets": _encode(data.targets, leaves)}
    except TypeError:
        return None
    path, content = directory / DATA, checkpoint.dump({str(i): leaf for i, leaf in enumerate(leaves)})
    if path.exists() and path.read_bytes() != content:
        raise FileExistsError(
            f"{path}: holds other data, and no run is stored there; choose another directory"
        )
    files.write(path, content)
    return structure


def read(directory: Path, recorded: dict[str, Any]) -> Data:
    """The data, compared with their fingerprint.

    Raises:
        ValueError: not stored, or damaged.
    """
    path = directory / DATA
    if not recorded.get("structure") or not path.exists():
        raise ValueError(f"{directory}: its data are not stored there; pass them as data=")
    tensors = checkpoint.parse(path.read_bytes(), str(path))
    try:
        fields = {name: _decode(recorded["structure"][name], tensors) for name in ("inputs", "targets")}
        data = Data(**fields)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: damaged ({error})") from error
    if fingerprint.of_data(data)["sha256"] != recorded.get("sha256"):
        raise ValueError(f"{path}: damaged, its values are not those that the run was made with")
    return data


def _encode(value: Any, leaves: list[np.ndarray]) -> Any:
    if value is None:
        return None
    if type(value) is dict and all(isinstance(key, str) for key in value):
        return {"dict": {key: _encode(entry, leaves) for key, entry in value.items()}}
    if type(value) in (list, tuple):
        return {type(value).__name__: [_encode(entry, leaves) for entry in value]}
    if not hasattr(value, "dtype"):
        raise TypeError("no plain structure")
    leaves.append(np.asarray(value))
    return {"array": len(leaves) - 1, "dtype": leaves[-1].dtype.name}


def _decode(value: Any, tensors: dict[str, np.ndarray]) -> Any:
    if value is None:
        return None
    if "dict" in value:
        return {key: _decode(entry, tensors) for key, entry in value["dict"].items()}
    for kind in (list, tuple):
        if kind.__name__ in value:
            return kind(_decode(entry, tensors) for entry in value[kind.__name__])
    return checkpoint.with_dtype(tensors[str(value["array"])], value["dtype"])
