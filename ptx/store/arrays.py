"""Zarr v3 arrays whose leading axes are (chain, draw) or (chain, step): written a chunk at a time, read lazily.

The format is zarr's own, so any reader of zarr opens it: one file for each chunk of `length` draws of all chains, its
values in C order and little-endian, followed by their CRC32C. Metadata grow with every commit; a file of a full chunk
is written once. What zarr-python would do on a missing chunk (fill it with NaN) and without fsync is done here instead.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

CHECKSUM_BYTES = 4
DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
)


class Spec(NamedTuple):
    """One array: where it lies, its shape at one chain and draw, its dtype and the names of all axes."""

    group: str
    variable: str
    shape: tuple[int, ...]
    dtype: str
    dims: tuple[str, ...]

    def chunk_bytes(self, num_chains: int, length: int) -> int:
        """Bytes of a chunk without its checksum."""
        return num_chains * length * math.prod(self.shape) * np.dtype(self.dtype).itemsize


def storable(values: np.ndarray) -> np.ndarray:
    """The values in a dtype that zarr has: floats of 16 bits become float32, which holds them exactly."""
    return values if values.dtype.name in DTYPES else values.astype(np.float32)


def group_metadata(attributes: dict[str, Any], inner: dict[str, bytes] | None = None) -> bytes:
    """`zarr.json` of a group; of the root one, with the metadata of all `inner` nodes by path, as zarr consolidates it.

    Readers that open the root see one state of all arrays, whenever they come.
    """
    content = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    if inner is not None:
        metadata = {path: json.loads(node) for path, node in inner.items()}
        content["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": metadata}
    return _json(content)


def array_metadata(spec: Spec, num_chains: int, count: int, length: int) -> bytes:
    """`zarr.json` of an array with `count` draws or steps, in chunks of `length`."""
    shape, chunk = (num_chains, count, *spec.shape), (num_chains, length, *spec.shape)
    return _array(shape, chunk, spec.dtype, spec.dims)


def labels_metadata(dim: str, count: int, length: int) -> bytes:
    """`zarr.json` of the labels 0, 1, ... of a dimension."""
    return _array((count,), (length,), "int64", (dim,))


def labels_file(root: Path, group: str, dim: str, index: int, length: int) -> dict[Path, bytes]:
    """Path and content of a chunk of the labels 0, 1, ... of a dimension; nothing where it is there already."""
    content = np.arange(index * length, (index + 1) * length, dtype="<i8").tobytes()
    path, content = root / group / dim / "c" / str(index), content + _checksum(content)
    return {} if path.exists() and path.read_bytes() == content else {path: content}


def _array(shape: tuple[int, ...], chunk: tuple[int, ...], dtype: str, dims: tuple[str, ...]) -> bytes:
    kind = np.dtype(dtype).kind
    fill: Any = "NaN" if kind == "f" else False if kind == "b" else 0
    return _json(
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": shape,
            "data_type": dtype,
            "chunk_grid": _named("regular", chunk_shape=chunk),
            "chunk_key_encoding": _named("default", separator="/"),
            "fill_value": fill,
            "codecs": [_named("bytes", endian="little"), {"name": "crc32c"}],
            "attributes": {},
            "dimension_names": dims,
        }
    )


def _named(name: str, **configuration: Any) -> dict[str, Any]:
    return {"name": name, "configuration": configuration}


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode()


def chunk_path(root: Path, spec: Spec, index: int) -> Path:
    """The file of a chunk along the axis of draws or steps; all chains and all of the site lie in it."""
    return root.joinpath(spec.group, spec.variable, "c", "0", str(index), *["0"] * len(spec.shape))


def chunk_file(root: Path, spec: Spec, index: int, rows: np.ndarray, length: int) -> dict[Path, bytes]:
    """Path and content of a chunk of (chain, draw, ...) values; zeros follow the draws of one that is not full."""
    padding = [(0, 0), (0, length - rows.shape[1]), *[(0, 0)] * len(spec.shape)]
    little = np.pad(rows, padding).astype(np.dtype(spec.dtype).newbyteorder("<"))
    content = little.tobytes()
    return {chunk_path(root, spec, index): content + _checksum(content)}


def read_chunk(root: Path, spec: Spec, index: int, num_chains: int, length: int) -> np.ndarray:
    """The values of a chunk.

    Raises:
        ValueError: the file is missing, too short, too long, or its checksum differs.
    """
    path, size = chunk_path(root, spec, index), spec.chunk_bytes(num_chains, length)
    try:
        found = path.stat().st_size  # before memory is taken for a size that the manifest claims
        content = path.read_bytes() if found == size + CHECKSUM_BYTES else b""
    except FileNotFoundError:
        raise ValueError(
            f"{path}: missing; these draws are lost, and the run cannot be used as it is"
        ) from None
    if found != size + CHECKSUM_BYTES:
        raise ValueError(
            f"{path}: damaged, {found} bytes instead of the {size + CHECKSUM_BYTES} that were written"
        )
    if _checksum(content[:size]) != content[size:]:
        raise ValueError(f"{path}: damaged, its checksum differs; these draws are not what was written")
    values = np.frombuffer(content[:size], np.dtype(spec.dtype).newbyteorder("<"))
    return values.reshape(num_chains, length, *spec.shape).astype(spec.dtype, copy=False)


def _checksum(content: bytes) -> bytes:
    from google_crc32c import value  # zarr's own checksum

    return value(content).to_bytes(CHECKSUM_BYTES, "little")


def _is_mask(entry: Any) -> bool:
    """Whether an index covers no axis, or several: a truth value, or an array of them with axes."""
    return not isinstance(entry, slice) and np.asarray(entry).dtype == bool and np.ndim(entry) != 1


@dataclass(frozen=True, eq=False)
class Stored:
    """An array on disk with axes (chain, draw or step, ...), of which one chunk at a time is read.

    `numpy.asarray` reads all of it; indexing by integers, slices or integer arrays on the leading axes reads the chunks
    that it needs. Every chunk read is compared with its checksum: ValueError names a damaged file.
    """

    root: Path
    spec: Spec
    num_chains: int
    count: int
    length: int

    @property
    def shape(self) -> tuple[int, ...]:
        """(chains, draws or steps, ...)."""
        return (self.num_chains, self.count, *self.spec.shape)

    @property
    def dtype(self) -> np.dtype:
        """As on disk."""
        return np.dtype(self.spec.dtype)

    @property
    def ndim(self) -> int:
        """Axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Values."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        return self.num_chains

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.rows(self._all()).astype(dtype or self.dtype, copy=False)

    def __getitem__(self, index: Any) -> np.ndarray:
        index = index if isinstance(index, tuple) else (index,)
        if any(entry is None or entry is Ellipsis or _is_mask(entry) for entry in index):
            return np.asarray(self)[index]
        chains, draws, *rest = (*index, slice(None), slice(None))[: max(2, len(index))]
        if isinstance(draws, slice):
            return self.rows(self._all()[draws])[(chains, slice(None), *rest)]
        wanted = self._all()[draws]  # refuses what is out of range
        kept, place = np.unique(wanted, return_inverse=True)
        return self.rows(kept)[(chains, place.reshape(np.shape(wanted)), *rest)]

    def rows(self, draws: np.ndarray) -> np.ndarray:
        """All chains at some draws."""
        out = np.empty((self.num_chains, len(draws), *self.spec.shape), self.dtype)
        for index in np.unique(draws // self.length):
            here = draws // self.length == index
            chunk = read_chunk(self.root, self.spec, int(index), self.num_chains, self.length)
            out[:, here] = chunk[:, draws[here] % self.length]
        return out

    def _all(self) -> np.ndarray:
        """0, 1, ..., count - 1, if the last of them is on disk: a forged count would take all memory."""
        if self.count:
            last = chunk_path(self.root, self.spec, (self.count - 1) // self.length)
            if not last.exists():
                raise ValueError(
                    f"{last}: missing; these draws are lost, and the run cannot be used as it is"
                )
        return np.arange(self.count)

    def check(self) -> None:
        """Read every chunk once; ValueError names the first damaged file."""
        for index in range(-(-self.count // self.length)):
            read_chunk(self.root, self.spec, index, self.num_chains, self.length)
