"""A disk that is full, or read-only: found before the run where it can be; afterwards the last save is intact."""

import dataclasses
import errno
import re
import shutil
from collections import namedtuple

import pytest
from store import faults, runs
from store.runs import ENGINES

import ptx
from ptx.store import files, read

NAME = "SVI"
ENGINE = ENGINES[NAME]
# Whether the disk stays full, and how far apart the operations that fail are.
SWEEPS = [
    (True, 5),
    (False, 9),
    *(pytest.param(*sweep, marks=pytest.mark.slow) for sweep in [(True, 1), (False, 2)]),
]


@pytest.fixture(autouse=True)
def often_saved(monkeypatch):
    runs.save_always(monkeypatch.setattr)


@pytest.fixture(scope="module")
def whole():
    return runs.values(runs.infer(ENGINE))


def test_no_room_is_found_before_anything_is_sampled(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**6, 10**6 - 1000, 1000))
    monkeypatch.setattr(runs.disk.Disk, "add", lambda *_: pytest.fail("sampled"))
    with pytest.raises(OSError, match=r"needs about [0-9,]+ bytes in .*run, and 1,000 are free") as error:
        runs.infer(ENGINE, tmp_path / "run")
    assert error.value.errno == errno.ENOSPC
    assert not read.exists(tmp_path / "run")
    monkeypatch.undo()
    assert runs.infer(ENGINE, tmp_path / "run").num_draws == ENGINE.num_draws


def first_error(directory, at, forever):
    """What the run raises when the disk is full at an operation; None when it could do without what was lost."""
    try:
        with faults.operations(at, faults.no_space, forever=forever):
            runs.infer(ENGINE, directory)
    except OSError as error:
        return error
    return None


@pytest.mark.parametrize(("forever", "apart"), SWEEPS)
def test_a_disk_that_fills_up_at_any_operation_loses_nothing(forever, apart, whole, tmp_path):
    """The disk stays full until the run has ended, or has room again for what is written after the failure."""
    with faults.operations() as counted:
        runs.infer(ENGINE, tmp_path / "counted")
    stopped = 0
    for at in range(0, counted.count, apart):
        directory = tmp_path / f"{at}"
        error = first_error(directory, at, forever)
        if error is not None:
            stopped += 1
            assert error.errno == errno.ENOSPC
            assert str(directory) in str(error)
            assert re.search(r"cannot write [0-9,]+ bytes to /", str(error)), error
        if read.exists(directory):
            assert read.load(directory).notes == ()
        assert not list(directory.rglob(f"{files.TEMPORARY}*"))
        runs.require_same(runs.values(runs.go_on(directory, ENGINE)), whole)
    assert stopped > counted.count // apart // 2


def test_room_for_more_draws_is_looked_for_before_a_run_grows(tmp_path, monkeypatch):
    sampler = ENGINES["SGLD"]
    runs.infer(sampler, tmp_path / "run")
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**6, 10**6 - 1000, 1000))
    with pytest.raises(OSError, match=r"needs about [0-9,]+ bytes in .*run, and 1,000 are free"):
        runs.infer(dataclasses.replace(sampler, num_draws=10**6), tmp_path / "run")
    assert ptx.open_run(tmp_path / "run").num_draws == sampler.num_draws


def test_data_of_another_kind_are_not_overwritten(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "data.safetensors").write_bytes(b"mine")
    with pytest.raises(FileExistsError, match=r"data\.safetensors: holds other data"):
        runs.infer(ENGINE, tmp_path / "run")
    assert (tmp_path / "run" / "data.safetensors").read_bytes() == b"mine"


def test_the_error_is_in_the_event_log_when_there_is_room_for_it(tmp_path):
    with faults.operations(20, faults.no_space, forever=False), pytest.raises(OSError, match="No space"):
        runs.infer(ENGINE, tmp_path / "run")
    assert "No space left on device" in (tmp_path / "run" / "events.jsonl").read_text()


def test_a_place_that_cannot_be_written_is_found_before_sampling(tmp_path, monkeypatch):
    monkeypatch.setattr(runs.disk.Disk, "add", lambda *_: pytest.fail("sampled"))
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file" / "run", tmp_path / "file"):
        with pytest.raises(OSError, match=f"cannot write .* bytes to {place}"):
            runs.infer(ENGINE, place)
    with pytest.raises(OSError, match="cannot write 0 bytes to /proc/ptx/lock"):
        runs.infer(ENGINE, "/proc/ptx")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_finished_run_opens_where_nothing_can_be_written(whole, tmp_path):
    runs.infer(ENGINE, tmp_path / "run")
    with faults.operations(0, faults.no_space):
        runs.require_same(runs.values(ptx.open_run(tmp_path / "run", runs.scaled)), whole)
