"""A run on disk while it goes on: draws leave for zarr chunk by chunk, the rest of the state is saved whole."""

import math
import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ptx.compiled import compiled
from ptx.kept import Arrays, Rows
from ptx.posterior import constrain_draws, is_identity
from ptx.store import arrays, checkpoint, files, layout, manifest
from ptx.store.arrays import Spec, storable
from ptx.store.layout import CHECKPOINT, CHECKPOINTS, DRAWS, EVENTS
from ptx.store.read import Saved, arrays_of, draws_of, pending, specs_of
from ptx.target import Target

SAVE_SECONDS = 10.0  # between two saves, or 100 times what the last one took


class Disk:
    """Where a run's draws go, and its state.

    `add` takes what a chunk of steps gave; full store chunks become files, which are never written again, by a thread
    of its own while the next steps run. `save` makes everything so far durable: it waits for those, writes a file of
    the draws that fill no chunk yet, the checkpoint with the state and the same draws, then the manifest, which alone
    says what counts.
    """

    def __init__(self, directory: Path, target: Target, engine: Any, content: dict[str, Any]) -> None:
        self.directory, self.target, self.engine = directory, target, engine
        self.content = content
        self.written: bytes | None = None  # the last manifest that was written or found valid
        self.specs: dict[str, Spec] = {}
        self.pending: dict[str, Rows] = {"draw": {}, "step": {}}
        self.counts = {"draw": 0, "step": 0}  # rows in full chunks
        self.saved_at, self.save_seconds = -math.inf, 0.0
        self.writer = ThreadPoolExecutor(1, "ptx-store")
        self.writing: Future[None] | None = None

    @property
    def root(self) -> Path:
        """The zarr group."""
        return self.directory / DRAWS

    @property
    def num_draws(self) -> int:
        """Draws of each chain so far."""
        return self._visible("draw")

    @property
    def num_steps(self) -> int:
        """Steps of each chain so far."""
        return self.content["steps"]

    @property
    def is_concluded(self) -> bool:
        """Whether the run came to its end, `conclude` included; one killed just before that ends again."""
        return self.content["state"] == "finished" and self.content.get("attributes") is not None

    def load(self, saved: Saved) -> None:
        """Go on from a save: whole chunks count, the other draws come from the checkpoint."""
        self.written = saved.written
        self.specs = specs_of(self.content)
        for axis, done in (("draw", self.content["draws"]), ("step", self.content["steps"])):
            rows = pending(saved.tensors, axis)
            self.pending[axis] = rows
            self.counts[axis] = done - _length(rows) if rows else 0  # an engine without info has no history
            if self.counts[axis] % self.content["lengths"][axis] or self.counts[axis] < 0:
                raise ValueError(
                    f"checkpoint: {_length(rows)} rows by {axis} beside {done} do not fill whole chunks; this is not "
                    "what ptx wrote"
                )

    def event(self, event: str, **details: Any) -> None:
        """Add a line to the event log."""
        record = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "event": event, **details}
        files.append_line(self.directory / EVENTS, record)

    def add(self, positions: Rows, history: Rows, count: int) -> None:
        """Take kept positions (chain, draw, ...) and the info (chain, step) of `count` steps."""
        first = self.num_steps
        self.content["steps"] = first + count
        rows = {f"draw/{name}": values for name, values in positions.items()}
        if self.engine.is_sampler and count:
            kept = np.broadcast_to(self.engine.keeps(np.arange(first, first + count)), count)
            rows |= {f"stat/{name}": values[:, kept] for name, values in history.items()}
        self._push("draw", {name: storable(values) for name, values in rows.items()})
        self._push("step", {name: storable(values) for name, values in history.items()})

    def _push(self, axis: str, rows: Rows) -> None:
        pending, length = self.pending[axis], self.content["lengths"][axis]
        for name, values in rows.items():
            pending[name] = np.concatenate([pending[name], values], axis=1) if name in pending else values
        while _length(pending) >= length:
            contents = self._chunk(axis, {name: values[:, :length] for name, values in pending.items()})
            self.settle()
            self.writing = self.writer.submit(files.write_all, contents)
            self.counts[axis] += length
            pending = {name: values[:, length:] for name, values in pending.items()}
        self.pending[axis] = {name: values.copy() for name, values in pending.items()}

    def settle(self) -> None:
        """Wait until the last full chunk is on disk.

        Raises:
            OSError: it could not be written.
        """
        writing, self.writing = self.writing, None
        if writing:
            writing.result()

    def _chunk(self, axis: str, rows: Rows) -> dict[Path, bytes]:
        length = self.content["lengths"][axis]
        index = self.counts[axis] // length
        contents: dict[Path, bytes] = {}
        for group, values in self._groups(axis, rows).items():
            for name, spec in layout.specs(self.target, group, values, axis).items():
                self.specs[f"{group}/{name}"] = spec
                contents |= arrays.chunk_file(self.root, spec, index, values[name], length)
            contents |= self._labels(group, axis, index)
        return contents

    def _labels(self, group: str, axis: str, index: int) -> dict[Path, bytes]:
        labels = arrays.labels_file(self.root, group, axis, index, self.content["lengths"][axis])
        return labels | arrays.labels_file(self.root, group, "chain", 0, self.engine.num_chains)

    def repair(self) -> None:
        """Write labels and metadata again where they are not as they were written; they follow from the manifest."""
        for group, axis in {(spec.group, spec.dims[1]) for spec in self.specs.values()}:
            for index in range(-(-self._visible(axis) // self.content["lengths"][axis])):
                contents = self._labels(group, axis, index)
                if contents:
                    files.write_all(contents)
        self.write_metadata()

    def _groups(self, axis: str, rows: Rows) -> dict[str, Rows]:
        """Rows by zarr group: parameters on their supports, what they were made of, and statistics."""
        if axis == "step":
            return {layout.HISTORY: rows}
        of_draws, unconstrained, of_statistics = layout.groups(self.engine)
        split = lambda kind: {n.removeprefix(kind): v for n, v in rows.items() if n.startswith(kind)}  # noqa: E731
        draws, found = split("draw/"), {of_statistics: split("stat/")}
        changed = [site.name for site in self.target.sites if not is_identity(site.support)]
        found[of_draws] = draws | (self._constrained(draws, changed) if changed else {})
        found[unconstrained] = {name: draws[name] for name in changed}
        return {group: values for group, values in found.items() if values}

    def _constrained(self, draws: Rows, changed: list[str]) -> Rows:
        """Values on the supports, computed at one shape, so that a draw's do not depend on how many came with it."""
        length = self.content["lengths"]["draw"]
        chains = []
        for chain in range(self.engine.num_chains):
            entries = np.minimum(np.arange(length), _length(draws) - 1)
            batch = {name: jax.numpy.asarray(values[chain, entries]) for name, values in draws.items()}
            values = compiled(constrain_draws, (), self.target, batch)(self.target, batch)
            chains.append({name: storable(np.asarray(values[name]))[: _length(draws)] for name in changed})
        return {name: np.stack([chain[name] for chain in chains]) for name in changed}

    def due(self) -> bool:
        """Whether it is time to save: not more than about 1 % of the time goes into it."""
        return time.monotonic() - self.saved_at >= max(SAVE_SECONDS, 100 * self.save_seconds)

    def save(self, states: list[Any], state: str, seconds: dict[str, float]) -> None:
        """Make everything so far durable; `state` is one of running, interrupted, stopped, finished.

        Raises:
            OSError: with path and bytes; the last save stays valid.
        """
        begun = time.monotonic()
        self.settle()
        for axis in ("draw", "step"):
            if _length(self.pending[axis]):  # fills no chunk; the file is replaced by one that begins with it
                files.write_all(self._chunk(axis, self.pending[axis]))
        self.write_metadata()
        tensors: Rows = {}
        for lane, value in enumerate(states):
            tensors |= checkpoint.state_tensors(f"state/{lane}", value)
        for axis, rows in self.pending.items():
            tensors |= {f"pending/{axis}/{name}": values for name, values in rows.items()}
        number = self.content["save"] + 1
        name, data = f"{number:08d}.safetensors", checkpoint.dump(tensors)
        files.write(self.directory / CHECKPOINTS / name, data)
        self.content |= seconds
        self.content |= {"state": state, "save": number, "draws": self.num_draws}
        self.content["visible_steps"] = self._visible("step")
        self.content["checkpoint"] = {"file": name, "sha256": files.sha256(data)}
        self.content["arrays"] = [[name, *spec] for name, spec in self.specs.items()]
        self._write_manifest()
        self._prune(number)
        self.saved_at = time.monotonic()
        self.save_seconds = self.saved_at - begun

    def _visible(self, axis: str) -> int:
        return self.counts[axis] + _length(self.pending[axis])

    def write_metadata(self) -> None:
        """`zarr.json` of every array and group, for the draws that readers may see; the root, which has all, last."""
        chains = self.engine.num_chains
        inner: dict[str, bytes] = {}
        for _, spec in sorted(self.specs.items()):
            axis, group = spec.dims[1], spec.group
            count, length = self._visible(axis), self.content["lengths"][axis]
            inner[group] = arrays.group_metadata({})
            inner[f"{group}/{spec.variable}"] = arrays.array_metadata(spec, chains, count, length)
            inner[f"{group}/{axis}"] = arrays.labels_metadata(axis, count, length)
            inner[f"{group}/chain"] = arrays.labels_metadata("chain", chains, chains)
        root = arrays.group_metadata({"inference_library": "ptx"}, inner)
        changed = {
            file: content for path, content in inner.items() if _differs(file := self._zarr(path), content)
        }
        if changed:
            files.write_all(changed)
        if _differs(self._zarr(""), root):
            files.write(self._zarr(""), root)

    def _zarr(self, path: str) -> Path:
        return self.root / path / "zarr.json"

    def _prune(self, number: int) -> None:
        """Remove checkpoints before the previous one: usually one, more after a crash just before this."""
        for name in os.listdir(self.directory / CHECKPOINTS):
            if CHECKPOINT.fullmatch(name) and int(name.split(".")[0]) < number - 1:
                files.remove(self.directory / CHECKPOINTS / name)

    def arrays(self) -> Arrays:
        """All of it, to be read lazily; after the last save."""
        of_draws, unconstrained, of_statistics = layout.groups(self.engine)
        groups = (of_draws, unconstrained)
        parameters, draws = draws_of(self.directory, self.content, groups, self.target)
        statistics = arrays_of(self.directory, self.content, of_statistics)
        return Arrays(draws, statistics, arrays_of(self.directory, self.content, layout.HISTORY), parameters)

    def conclude(self, attributes: dict[str, Any], findings: tuple[str, ...]) -> None:
        """Keep what a reader must know beside the draws."""
        self.content |= {"attributes": attributes, "findings": list(findings)}
        # The same save again: the previous manifest stays that of the save before, to go back to.
        manifest.write(self.directory, manifest.dump(self.content), None)
        self.event(self.content["state"], step=self.num_steps, findings=list(findings))

    def _write_manifest(self) -> None:
        content = manifest.dump(self.content)
        manifest.write(self.directory, content, self.written)
        self.written = content


def _differs(file: Path, content: bytes) -> bool:
    return not file.exists() or file.read_bytes() != content


def _length(rows: Rows) -> int:
    return next((values.shape[1] for values in rows.values()), 0)
