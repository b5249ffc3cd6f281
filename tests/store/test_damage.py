"""Damaged files: a save falls back to the one before it, draws are refused by name, and nothing else is hurt."""

import json
import re
import shutil
import signal
import warnings

import numpy as np
import pytest
from store import faults, runs
from store.runs import DATA, ENGINES

import ptx
from ptx.store import files, layout, manifest, read
from ptx.store.arrays import chunk_path

NAME = "SGLD"
KINDS = ("truncated", "emptied", "deleted", "flipped")
STATES = ("finished", "killed", "interrupted")
BACK = "went back to save"


@pytest.fixture(autouse=True)
def often_saved(monkeypatch):
    runs.save_always(monkeypatch.setattr)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The numbers of a run, and a directory with it finished, killed in the middle, and ended by Ctrl-C."""
    directory = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        runs.save_always(patch.setattr)
        with faults.operations() as counted:
            numbers = runs.values(runs.infer(ENGINES[NAME], directory / "finished"))
        with faults.operations(4 * counted.count // 5, faults.crash), pytest.raises(faults.Crash):
            runs.infer(ENGINES[NAME], directory / "killed", chunk_size=5)
        with runs.signalled(10, signal.SIGINT), pytest.warns(RuntimeWarning, match="interrupted"):
            runs.infer(ENGINES[NAME], directory / "interrupted", chunk_size=5)
    return numbers, directory


def written(directory):
    """Every file of the run by its path inside it, those that a killed process left half-written aside."""
    paths = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return [str(path.relative_to(directory)) for path in paths if not path.name.startswith(files.TEMPORARY)]


def damage(path, kind, rng):
    """Truncate, empty or delete a file, or flip one of its bits."""
    content = bytearray(path.read_bytes())
    if kind == "deleted":
        path.unlink()
    elif kind == "flipped" and content:
        content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        path.write_bytes(content)
    else:
        path.write_bytes(content[: rng.integers(max(1, len(content)))] if kind == "truncated" else b"")


def visible_chunks(directory):
    """The files of draws, statistics and history that the manifest counts, as paths inside the run."""
    content = read.load(directory, with_state=False).content
    groups = (*layout.DRAW_GROUPS, layout.HISTORY)
    arrays = [array for group in groups for array in read.arrays_of(directory, content, group).values()]
    paths = [
        chunk_path(array.root, array.spec, index)
        for array in arrays
        for index in range(-(-array.count // array.length))
    ]
    return {str(path.relative_to(directory)) for path in paths}


def damaged_copy(whole, state, name, kind, tmp_path):
    directory = tmp_path / f"{state} {kind} {name.replace('/', ' ')}"
    shutil.copytree(whole[1] / state, directory)
    damage(directory / name, kind, np.random.default_rng([len(name), KINDS.index(kind)]))
    return directory


def contents(directory):
    """The bytes of the run's files but the lock."""
    return {name: (directory / name).read_bytes() for name in written(directory) if name != files.LOCK}


def read_all(directory):
    """Open the run and read everything that it shows."""
    posterior = ptx.open_run(directory, runs.scaled)
    return runs.values(posterior), {name: np.asarray(v) for name, v in posterior.constrained().items()}


def resumed(directory, **options):
    """The resumed run, and what was warned of."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", RuntimeWarning)
        posterior = runs.resume(directory, **options)
    return posterior, " ".join(str(warning.message) for warning in seen)


def check_damage(whole, state, name, kind, tmp_path):
    """The run gives the numbers of the whole one, or refuses and names the file; both only where they should."""
    directory = damaged_copy(whole, state, name, kind, tmp_path)
    changed = not (directory / name).exists() or (
        (directory / name).read_bytes() != (whole[1] / state / name).read_bytes()
    )
    if name in visible_chunks(whole[1] / state) and changed:
        before = contents(directory)
        for attempt in (runs.resume, read_all):
            with pytest.raises(ValueError, match=re.escape(name)):
                attempt(directory)
        assert contents(directory) == before
        return
    if name == layout.DATA and changed:
        with pytest.raises(ValueError, match="data"):
            runs.resume(directory)
        with pytest.raises(ValueError, match="data"):
            ptx.open_run(directory, runs.scaled)
        posterior, _ = resumed(directory, data=DATA)
        runs.require_same(runs.values(posterior), whole[0])
        return
    posterior, warned = resumed(directory)
    runs.require_same(runs.values(posterior), whole[0])
    assert runs.tree(directory) == runs.tree(whole[1] / "finished")
    content = read.load(whole[1] / state, with_state=False).content
    if changed and name == f"{layout.CHECKPOINTS}/{content['checkpoint']['file']}":
        assert BACK in warned
        assert name in warned
        assert any(BACK in finding for finding in posterior.findings)
    elif name != manifest.MANIFEST:
        assert BACK not in warned


@pytest.mark.parametrize("state", STATES)
def test_damage_to_any_file_is_repaired_passed_over_or_named(state, whole, tmp_path):
    """Every second file, and one kind of damage to each; all of both in the slow part."""
    for i, name in enumerate(written(whole[1] / state)[STATES.index(state) % 2 :: 2]):
        check_damage(whole, state, name, KINDS[i % len(KINDS)], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("state", STATES)
def test_any_damage_to_any_file_is_repaired_passed_over_or_named(state, kind, whole, tmp_path):
    for name in written(whole[1] / state):
        check_damage(whole, state, name, kind, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("state", STATES)
def test_a_damaged_manifest_goes_back_to_the_save_before(state, kind, whole, tmp_path):
    directory = damaged_copy(whole, state, manifest.MANIFEST, kind, tmp_path)
    assert any(BACK in finding for finding in ptx.open_run(directory).findings)
    posterior, warned = resumed(directory)
    assert BACK in warned
    assert manifest.MANIFEST in warned
    runs.require_same(runs.values(posterior), whole[0])
    assert not read.load(directory).notes


def test_a_flip_of_the_version_is_damage_and_not_a_newer_format(whole, tmp_path):
    directory = shutil.copytree(whole[1] / "finished", tmp_path / "run")
    path = directory / manifest.MANIFEST
    path.write_bytes(path.read_bytes().replace(b'"format_version": 1', b'"format_version": 3'))
    posterior, warned = resumed(directory)
    assert BACK in warned
    runs.require_same(runs.values(posterior), whole[0])


def test_two_damaged_saves_are_refused_with_both_files(whole, tmp_path):
    directory = shutil.copytree(whole[1] / "killed", tmp_path / "run")
    for path in (directory / layout.CHECKPOINTS).iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    before = contents(directory)
    with pytest.raises(ValueError, match=r"no save is whole.*\.safetensors.*\.safetensors"):
        runs.resume(directory)
    assert contents(directory) == before


def test_damaged_draws_are_refused_wherever_they_are_used(whole, tmp_path):
    directory = shutil.copytree(whole[1] / "finished", tmp_path / "run")
    damaged = directory / "draws.zarr/posterior/w/c/0/1/0"
    damage(damaged, "flipped", np.random.default_rng(0))
    posterior = ptx.open_run(directory, runs.scaled)
    assert np.isfinite(posterior.draws["w"][:, :5]).all()  # the first chunk is whole
    for use in (
        lambda: posterior.draws["w"][:, -1],
        lambda: np.asarray(posterior.draws["w"]),
        lambda: posterior.constrained()["w"].check(),
        lambda: ptx.to_datatree(posterior),
        lambda: ptx.predict(0, posterior, DATA[0]),
        lambda: ptx.log_likelihood(posterior),
        lambda: runs.infer(ENGINES[NAME], directory),
    ):
        with pytest.raises(ValueError, match="posterior/w/c/0/1/0: damaged"):
            use()


def test_files_of_others_stay(whole, tmp_path):
    directory = shutil.copytree(whole[1] / "killed", tmp_path / "run")
    mine = [
        "notes.txt",
        "checkpoints/mine.safetensors",
        "checkpoints/1.safetensors",
        "draws.zarr/extra/zarr.json",
        "draws.zarr/posterior/w/c/0/notes",
    ]
    for name in mine:
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text("mine")
    posterior = runs.resume(directory)
    runs.require_same(runs.values(posterior), whole[0])
    assert [(directory / name).read_text() for name in mine] == ["mine"] * len(mine)


def test_draws_without_a_manifest_are_not_overwritten(whole, tmp_path):
    directory = shutil.copytree(whole[1] / "finished", tmp_path / "run")
    for name in (manifest.MANIFEST, manifest.PREVIOUS):
        (directory / name).unlink()
    before = runs.tree(directory)
    with pytest.raises(FileExistsError, match=r"draws\.zarr: holds draws.*another directory"):
        runs.infer(ENGINES[NAME], directory)
    with pytest.raises(FileNotFoundError, match="no run is stored there"):
        runs.resume(directory)
    assert runs.tree(directory) == before


def test_a_line_of_the_event_log_that_was_cut_off_hurts_no_other(whole, tmp_path):
    directory = shutil.copytree(whole[1] / "killed", tmp_path / "run")
    log = directory / layout.EVENTS
    log.write_bytes(log.read_bytes()[:-5])
    runs.resume(directory)
    events = []
    for line in log.read_text().splitlines():
        try:
            events.append(json.loads(line)["event"])
        except ValueError:
            events.append("cut off")
    assert events == ["cut off", "resume", "finished"]
