"""Every file of a run against its checksum, or against what the manifest says that it holds."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ptx.store import arrays, checkpoint, data_file, files, manifest, read
from ptx.store.layout import CHECKPOINTS, DRAWS

ATTEMPTS = 5  # at a run that is being written meanwhile


def damage(directory: Path) -> list[str]:
    """What is wrong with a run's files, one message each; empty where all are as they were written.

    Read are both manifests and their checkpoints, every file of draws, statistics, history and labels, the metadata of
    zarr and the stored data; the event log has no checksum. A run may go on meanwhile.

    Raises:
        FileNotFoundError: no run there.
    """
    read.require_run(directory)
    found: list[str] = []
    for _ in range(ATTEMPTS):
        before = _bytes(directory / manifest.MANIFEST)
        found = list(_damage(directory))
        if not found or _bytes(directory / manifest.MANIFEST) == before:
            break
    return found


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _damage(directory: Path) -> Iterator[str]:
    saves = []
    for name in (manifest.MANIFEST, manifest.PREVIOUS):
        path = directory / name
        try:
            content = read.checked(manifest.read(path), path)
        except FileNotFoundError:
            if name == manifest.MANIFEST or (saves and saves[0]["save"] > 1):
                yield f"{path}: missing"
        except (ValueError, OSError) as error:
            yield str(error)
        else:
            saves.append(content)
            yield from _checkpoint(directory, content["checkpoint"])
    if not saves:
        return
    content = saves[0]
    for group in dict.fromkeys(spec.group for spec in read.specs_of(content).values()):
        for stored in read.arrays_of(directory, content, group).values():
            yield from _chunks(stored)
    yield from _labels(directory / DRAWS, content)
    yield from _metadata(directory / DRAWS, content)
    yield from _data(directory, content)


def _checkpoint(directory: Path, recorded: dict[str, Any]) -> Iterator[str]:
    path = directory / CHECKPOINTS / recorded["file"]
    try:
        data = path.read_bytes()
        if files.sha256(data) != recorded.get("sha256"):
            yield f"{path}: damaged, its checksum differs"
        else:
            checkpoint.parse(data, str(path))
    except FileNotFoundError:
        yield f"{path}: missing"
    except (ValueError, OSError) as error:
        yield str(error)


def _chunks(stored: arrays.Stored) -> Iterator[str]:
    for index in range(_num_chunks(stored.count, stored.length)):
        try:
            arrays.read_chunk(stored.root, stored.spec, index, stored.num_chains, stored.length)
        except (ValueError, OSError) as error:
            yield str(error)


def _num_chunks(count: int, length: int) -> int:
    return -(-count // length)


class Node(NamedTuple):
    """An array in zarr: its path, entries along its growing axis, length of a chunk, metadata for a number of entries,
    and the file of a chunk."""

    path: str
    count: int
    length: int
    metadata: Callable[[int], bytes]
    chunk: Callable[[int], Path]


def _data_nodes(root: Path, content: dict[str, Any]) -> Iterator[Node]:
    for spec in read.specs_of(content).values():
        count, length = _extent(content, spec.dims[1])

        def metadata(count: int, spec: arrays.Spec = spec, length: int = length) -> bytes:
            return arrays.array_metadata(spec, content["num_chains"], count, length)

        def chunk(index: int, spec: arrays.Spec = spec) -> Path:
            return arrays.chunk_path(root, spec, index)

        yield Node(f"{spec.group}/{spec.variable}", count, length, metadata, chunk)


def _label_nodes(root: Path, content: dict[str, Any]) -> Iterator[Node]:
    dims = {(spec.group, dim): None for spec in read.specs_of(content).values() for dim in spec.dims[:2]}
    for group, dim in dims:
        count, length = _extent(content, dim)

        def metadata(count: int, dim: str = dim, length: int = length) -> bytes:
            return arrays.labels_metadata(dim, count, length)

        def chunk(index: int, place: Path = root / group / dim) -> Path:
            return place / "c" / str(index)

        yield Node(f"{group}/{dim}", count, length, metadata, chunk)


def _extent(content: dict[str, Any], dim: str) -> tuple[int, int]:
    """Entries of a dimension that readers may see, and how many a chunk has."""
    if dim == "chain":
        return content["num_chains"], content["num_chains"]
    return content["draws" if dim == "draw" else "visible_steps"], content["lengths"][dim]


def _labels(root: Path, content: dict[str, Any]) -> Iterator[str]:
    from google_crc32c import value

    for node in _label_nodes(root, content):
        for index in range(_num_chunks(node.count, node.length)):
            path, first = node.chunk(index), index * node.length
            wanted = np.arange(first, first + node.length, dtype="<i8").tobytes()
            found = _bytes(path)
            if found is None:
                yield f"{path}: missing"
            elif found != wanted + value(wanted).to_bytes(arrays.CHECKSUM_BYTES, "little"):
                yield f"{path}: damaged, it does not hold the labels from {first} on"


def _metadata(root: Path, content: dict[str, Any]) -> Iterator[str]:
    """Problems of every `zarr.json`. Of a run that was not concluded they may be ahead of the manifest, which is
    written after them; what they announce must then be there."""
    ahead = content["state"] == "running"
    nodes = {node.path: node for node in (*_data_nodes(root, content), *_label_nodes(root, content))}
    group: Any = json.loads(arrays.group_metadata({}))

    def is_right(path: str, found: Any) -> bool:
        node = nodes.get(path)
        if node is None:
            return found == group if path in groups else ahead
        if found == json.loads(node.metadata(node.count)):
            return True
        shape = found.get("shape") if isinstance(found, dict) else None
        counts = [n for n in shape if isinstance(n, int)] if isinstance(shape, list) else []
        more = [n for n in counts if n > node.count and found == json.loads(node.metadata(n))]
        return ahead and any(node.chunk((n - 1) // node.length).exists() for n in more)

    groups = {path.split("/")[0] for path in nodes}
    for path in (*nodes, *sorted(groups), ""):
        file = root / path / "zarr.json"
        try:
            found = files.read_json(file)
        except FileNotFoundError:
            yield f"{file}: missing"
        except (ValueError, OSError) as error:
            yield str(error)
        else:
            right = is_right(path, found) if path else _is_root(found, {*nodes, *groups}, is_right, ahead)
            if not right:
                yield f"{file}: damaged, it does not describe the arrays of the manifest"


def _is_root(found: Any, paths: set[str], is_right: Callable[[str, Any], bool], ahead: bool) -> bool:
    """Whether metadata are those of the root, which repeats those of all others."""
    try:
        inner = found["consolidated_metadata"]["metadata"]
        known = arrays.group_metadata(found["attributes"], {})
        empty = found | {"consolidated_metadata": found["consolidated_metadata"] | {"metadata": {}}}
        same = paths == set(inner) or (ahead and paths <= set(inner))
        named = found["attributes"] == {"inference_library": "ptx"}
        return named and same and empty == json.loads(known) and all(map(is_right, inner, inner.values()))
    except (AttributeError, KeyError, TypeError):
        return False


def _data(directory: Path, content: dict[str, Any]) -> Iterator[str]:
    if not content["data"].get("structure"):
        return  # of a kind that is not stored
    try:
        with jax.enable_x64(content["settings"].get("x64") is True):
            data_file.read(directory, content["data"])
    except (ValueError, TypeError, OSError) as error:
        yield str(error)
