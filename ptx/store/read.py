"""What is read from a run directory: checked before it is believed, and never executed."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ptx.store import checkpoint, files, layout, manifest
from ptx.store.arrays import DTYPES, Spec, Stored
from ptx.store.layout import CHECKPOINT, CHECKPOINTS, DRAWS
from ptx.target import Target

MOST_AXES = 32


class Saved(NamedTuple):
    """A manifest with the bytes it was read from, the tensors of its checkpoint, and what had to be passed over."""

    content: dict[str, Any]
    written: bytes
    tensors: dict[str, np.ndarray]
    notes: tuple[str, ...]


def exists(directory: Path) -> bool:
    """Whether the directory holds a run."""
    return any((directory / name).exists() for name in (manifest.MANIFEST, manifest.PREVIOUS))


def require_run(directory: Path) -> None:
    """Raise FileNotFoundError where there is no run."""
    if not exists(directory):
        raise FileNotFoundError(f"{directory}: no run is stored there (it has no {manifest.MANIFEST})")


def load(directory: Path, with_state: bool = True) -> Saved:
    """The last save that is whole: of the manifest, or, where it or its checkpoint is damaged, of the previous one.

    Raises:
        FileNotFoundError: no run there. ValueError: neither save is whole, or a newer format.
    """
    require_run(directory)
    notes = []
    for name in (manifest.MANIFEST, manifest.PREVIOUS):
        path = directory / name
        try:
            content = checked(manifest.read(path), path)
            tensors = _tensors(directory, content) if with_state else {}
        except manifest.NewerFormatError:
            raise
        except FileNotFoundError as error:
            notes.append(f"{error.filename or path}: missing")
        except (ValueError, OSError) as error:
            notes.append(str(error))
        else:
            if notes:
                notes = [
                    f"{'; '.join(notes)}; went back to save {content['save']} at step {content['steps']}"
                ]
            return Saved(content, path.read_bytes(), tensors, tuple(notes))
    raise ValueError(f"{directory}: no save is whole: {'; '.join(notes)}")


def _tensors(directory: Path, content: dict[str, Any]) -> dict[str, np.ndarray]:
    path = directory / CHECKPOINTS / content["checkpoint"]["file"]
    data = path.read_bytes()
    if files.sha256(data) != content["checkpoint"]["sha256"]:
        raise ValueError(f"{path}: damaged, its checksum differs")
    return checkpoint.parse(data, str(path))


def checked(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """The manifest, if every entry that a file name or a size is made of is what ptx itself would write.

    Raises:
        ValueError: with the entry.
    """

    def require(ok: bool, what: str) -> None:
        if not ok:
            raise ValueError(f"{path}: {what}; this is not what ptx wrote")

    require(
        isinstance(content["checkpoint"].get("file"), str)
        and bool(CHECKPOINT.fullmatch(content["checkpoint"]["file"])),
        f"checkpoint file {content['checkpoint'].get('file')!r}",
    )
    for name in ("steps", "draws", "save", "visible_steps", "num_chains"):
        value = content.get(name)
        require(
            isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53, f"{name} {value!r}"
        )
    for axis in ("draw", "step"):
        length = content["lengths"].get(axis)
        require(isinstance(length, int) and 1 <= length <= layout.MOST_ROWS, f"chunk length {length!r}")
    for entry in content["arrays"]:
        require(_is_array(entry), f"array {str(entry)[:200]}")
    return content


def _is_array(entry: Any) -> bool:
    """Whether an entry [group/site, group, variable, shape, dtype, dims] names a file inside the run."""
    if not (isinstance(entry, list) and len(entry) == 6 and all(isinstance(text, str) for text in entry[:3])):
        return False
    name, group, variable, shape, dtype, dims = entry
    known = (*layout.DRAW_GROUPS, *layout.PRIOR_GROUPS, layout.HISTORY)
    if group not in known or not name.startswith(f"{group}/") or dtype not in DTYPES:
        return False
    if layout.variables([name.removeprefix(f"{group}/")]) != {name.removeprefix(f"{group}/"): variable}:
        return False
    sizes = isinstance(shape, list) and len(shape) <= MOST_AXES
    sizes = sizes and all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 2**40 for n in shape)
    named = (
        isinstance(dims, list) and len(dims) == len(shape) + 2 and all(isinstance(dim, str) for dim in dims)
    )
    return (
        sizes and named and dims[0] == "chain" and dims[1] == ("step" if group == layout.HISTORY else "draw")
    )


def specs_of(content: dict[str, Any]) -> dict[str, Spec]:
    """The arrays of a run, by `group/site`."""
    return {
        name: Spec(group, variable, tuple(shape), dtype, tuple(dims))
        for name, group, variable, shape, dtype, dims in content["arrays"]
    }


def arrays_of(directory: Path, content: dict[str, Any], group: str) -> dict[str, Stored]:
    """The arrays of a group by site or statistic, as far as the manifest says that they are whole."""
    found = {}
    for name, spec in specs_of(content).items():
        if spec.group == group:
            axis = spec.dims[1]
            count = content["draws"] if axis == "draw" else content["visible_steps"]
            length = content["lengths"][axis]
            stored = Stored(directory / DRAWS, spec, content["num_chains"], count, length)
            found[name.removeprefix(f"{group}/")] = stored
    return found


def draws_of(
    directory: Path, content: dict[str, Any], groups: tuple[str, str], target: Target | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters and unconstrained draws by site; where there is none yet, arrays of no draw."""
    parameters: dict[str, Any] = arrays_of(directory, content, groups[0])
    draws = parameters | arrays_of(directory, content, groups[1])
    if not draws and target is not None:
        lead = (content["num_chains"], 0)
        parameters = {site.name: np.empty((*lead, *site.shape), np.float32) for site in target.sites}
        draws = {site.name: np.empty((*lead, *site.unconstrained_shape), np.float32) for site in target.sites}
    return parameters, draws


def pending(tensors: dict[str, np.ndarray], axis: str) -> dict[str, np.ndarray]:
    """Rows of the checkpoint that fill no chunk yet."""
    prefix = f"pending/{axis}/"
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
