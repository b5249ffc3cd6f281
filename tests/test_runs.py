"""What the command line says of stored runs, and whether it sees every damaged file."""

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys

import numpy as np
import pytest
from models_for_tests import constrained, regression, regression_data

import ptx
from ptx.cli import main
from ptx.demo import stored, tasks
from ptx.demo.tasks import FULL, QUICK
from ptx.inference import MAP, NUTS, SGLD, SVI
from ptx.runs import description, find_runs, last_events, plain, table
from ptx.store import disk, manifest
from ptx.store.holder import holder
from ptx.store.verify import damage

ENGINE = SGLD(num_draws=12, num_warmup=20, num_chains=2)


def fit(store, engine=ENGINE, model=constrained, **options):
    return ptx.infer(0, model, regression_data(), engine, store=store, progress=False, **options)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run with constrained and unconstrained sites; tests copy it."""
    store = tmp_path_factory.mktemp("finished") / "run"
    fit(store)
    return store


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


@pytest.fixture
def killed(run):
    """The run as `kill -9` would have left it, were it in the middle."""
    content = manifest.read(run / manifest.MANIFEST)
    content |= {"state": "running", "steps": 26, "draws": 6}
    (run / manifest.MANIFEST).write_bytes(manifest.dump(content))
    return run


def leave_lock(run, pid, host=None):
    content = {"host": host or socket.gethostname(), "pid": pid}
    (run / "lock").write_text(json.dumps(content))


def dead_pid():
    process = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    return int(process.stdout)


def row(directory, name):
    """The cells of one run in the list."""
    lines = [line.split() for line in table(directory).splitlines()[1:]]
    return next(cells for cells in lines if cells[-1] == name)


def test_runs_are_listed_with_state_steps_draws_and_findings(tmp_path):
    fit(tmp_path / "a" / "nuts", NUTS(num_draws=12, num_warmup=20, num_chains=2), regression)
    fit(tmp_path / "b", MAP(num_steps=5), regression)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "manifest.json").write_text('{"name": "a web page"}')
    head, *rows = table(tmp_path).splitlines()
    assert head.split() == ["state", "steps", "draws", "ETA", "findings", "engine", "run"]
    assert [row.split() for row in rows] == [
        ["finished", "32/32", "12/12", "-", "0", "NUTS", "a/nuts"],
        ["finished", "5/5", "1/1", "-", "0", "MAP", "b"],
    ]
    assert table(tmp_path / "b").splitlines()[1].split()[-1] == "b"


def test_no_runs_and_no_directory_are_told_apart(tmp_path):
    assert "no runs" in table(tmp_path)
    with pytest.raises(FileNotFoundError, match="no such directory"):
        table(tmp_path / "none")


def test_links_are_not_followed_and_runs_hold_no_runs(run):
    shutil.copytree(run, run / "inner")
    os.symlink(run, run.parent / "link")
    assert list(find_runs(run.parent)) == [run]


def test_a_killed_run_is_told_from_a_running_one(killed):
    assert row(killed.parent, "run")[0] == "killed"
    leave_lock(killed, dead_pid())
    assert row(killed.parent, "run")[0] == "killed"
    leave_lock(killed, os.getpid())  # alive, but without the lock: the process number was given to another
    assert row(killed.parent, "run")[0] == "killed"
    with open(killed / "lock", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert row(killed.parent, "run")[0] == "running"
        assert f"process {os.getpid()}" in description(killed)
    leave_lock(killed, os.getpid(), "another-host")
    assert "another-host" in holder(killed)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"host": 1}', '{"host": "HOST", "pid": "x"}', '{"host": "HOST", "pid": -1}']
)
def test_a_lock_that_says_nothing_holds_nothing(run, content):
    (run / "lock").write_text(content.replace("HOST", socket.gethostname()))
    assert holder(run) is None


def test_time_left_is_that_of_the_missing_steps(killed):
    content = manifest.read(killed / manifest.MANIFEST)
    content |= {"seconds": 262.0, "compile_seconds": 2.0}  # 10 s a step, 6 of 32 are missing
    (killed / manifest.MANIFEST).write_bytes(manifest.dump(content))
    assert row(killed.parent, "run")[:5] == ["killed", "26/32", "6/12", "1:00", "n/a"]
    assert "about 1:00 left" in description(killed)


def test_an_interrupted_run_is_listed_as_one(tmp_path, monkeypatch):
    infer_module = sys.modules["ptx.infer"]
    run_steps = infer_module.run_steps

    def stopped(run, kept, chunk_size, show, stop, save):
        stop.set()
        return run_steps(run, kept, chunk_size, show, stop, save)

    monkeypatch.setattr(infer_module, "run_steps", stopped)
    with pytest.warns(RuntimeWarning, match="interrupted"):
        fit(tmp_path / "run", chunk_size=8)
    assert row(tmp_path, "run")[:3] == ["interrupted", "8/32", "0/12"]
    assert int(row(tmp_path, "run")[4]) >= 1


def test_description_names_what_a_reader_asks_for(run):
    text = description(run)
    for words in (
        "finished",
        repr(ENGINE),
        "constrained",
        "weights: [3], Simplex",
        "float32 [20, 3]",
        "[0, 0]",
    ):
        assert words in text
    for words in (
        "ptx 0",
        "32 of 32 in each of 2 chains",
        "12 of 12 of each chain",
        "findings  none",
        "start",
    ):
        assert words in text


def test_a_damaged_run_is_listed_as_one_and_described_by_its_last_whole_save(run):
    (run / manifest.MANIFEST).write_text("{")
    assert "went back to save" in description(run)
    (run / manifest.PREVIOUS).write_text("{")
    assert table(run.parent).splitlines()[1].startswith("damaged")
    with pytest.raises(ValueError, match="no save is whole"):
        description(run)


def test_events_are_read_from_the_end_and_cut_off_lines_left_out(run):
    with open(run / "events.jsonl", "a") as file:
        file.write("".join(json.dumps({"time": "t", "event": "save", "n": n}) + "\n" for n in range(10**4)))
        file.write('{"time": "t", "event": "cut')
    assert last_events(run)[-1] == "t save n=9999"
    assert len(last_events(run)) == 5


def test_nothing_stored_can_steer_the_terminal(killed):
    content = manifest.read(killed / manifest.MANIFEST)
    content["model"] |= {"name": "\x1b]0;owned\x07"}
    (killed / manifest.MANIFEST).write_bytes(manifest.dump(content))
    assert "\x1b" not in description(killed)
    assert plain("a\x1b[31m\nb") == "a?[31m?b"


def files_of(run):
    """Every file that verification promises to read."""
    return [
        path.relative_to(run)
        for path in sorted(run.rglob("*"))
        if path.is_file() and path.name not in ("events.jsonl", "lock")
    ]


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("harm", [flip, cut, os.unlink])
def test_every_file_that_is_harmed_is_named(run, harm):
    assert damage(run) == []
    names = files_of(run)
    assert len(names) > 30
    for name in names:
        before = (run / name).read_bytes()
        harm(run / name)
        found = damage(run)
        assert found, name
        assert any(str(run / name) in problem for problem in found if name.name != "data.safetensors") or (
            name.name == "data.safetensors" and any("data" in problem for problem in found)
        ), (name, found)
        (run / name).write_bytes(before)
    assert damage(run) == []


def test_all_damaged_files_are_named_at_once(run):
    chunks = [path for path in (run / "draws.zarr").rglob("*") if path.parent.name == "0" and path.is_file()][
        :3
    ]
    for path in chunks:
        flip(path)
    found = "\n".join(damage(run))
    for path in chunks:
        assert str(path) in found


@pytest.mark.parametrize("entry", ["shape", "data_type", "codecs", "dimension_names"])
def test_metadata_that_say_something_else_are_damage(run, entry):
    path = run / "draws.zarr" / "posterior" / "scale" / "zarr.json"
    content = json.loads(path.read_text())
    content[entry] = [2, 13] if entry == "shape" else []
    path.write_text(json.dumps(content))
    assert [str(path) in problem for problem in damage(run)] == [True]


def test_a_run_that_is_going_on_verifies(tmp_path, monkeypatch):
    """Looked at after every save of a run with small chunks, and between metadata and manifest."""
    monkeypatch.setattr(disk.Disk, "due", lambda self: True)
    monkeypatch.setattr("ptx.store.layout.MOST_ROWS", 4)
    seen = []
    write = manifest.write

    def looked_at(directory, *args):
        if (directory / manifest.MANIFEST).exists():
            seen.append(damage(directory))
        write(directory, *args)
        seen.append(damage(directory))

    monkeypatch.setattr(manifest, "write", looked_at)
    fit(tmp_path / "run", chunk_size=5)
    assert len(seen) == 19  # twice each for 7 chunks, the end and what was found; once for the start
    assert not any(seen), seen


def test_engines_without_history_or_draws_of_their_own_verify(tmp_path):
    fit(tmp_path / "svi", SVI(num_steps=5, num_draws=3))
    assert damage(tmp_path / "svi") == []


def test_data_of_64_bits_are_compared_as_they_are(tmp_path):
    import jax

    inputs, targets = regression_data()
    with jax.enable_x64(True):
        ptx.infer(0, regression, (inputs, targets), ENGINE, store=tmp_path / "run", progress=False)
    assert damage(tmp_path / "run") == []


def test_the_record_of_a_demo_run_rebuilds_its_model(run):
    task = tasks.digits(5, QUICK)
    stored.record(run, task, 5, QUICK, "as defined")
    again = stored.recorded(run)
    assert again.model == task.model
    assert np.array_equal(again.train.inputs, task.train.inputs)
    stored.record(run, task, 5, QUICK, "Student t")
    assert stored.recorded(run).model.prior == tasks.OTHER_DIGITS_PRIOR


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        {"task": "os.system"},
        {"seed": -1},
        {"seed": True},
        {"prior": "flat"},
        {"size": {}},
        {"size": QUICK._asdict() | {"num_draws": 10**12}},
        {"size": QUICK._asdict() | {"more": 1}},
        {"task": ["digits"]},
    ],
)
def test_a_record_that_no_demo_wrote_is_refused(run, content):
    whole = {"task": "digits", "seed": 0, "size": QUICK._asdict(), "prior": "as defined"}
    content = whole | content if isinstance(content, dict) and content else content
    (run / "demo.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"expected task .*got"):
        stored.recorded(run)


def test_demos_of_other_seeds_and_sizes_lie_beside_each_other(tmp_path):
    sizes = (FULL, QUICK, QUICK._replace(num_draws=8), QUICK._replace(num_draws=9))
    places = {stored.folder_of(tmp_path, seed, size, "cyclical SGLD") for seed in (0, 1) for size in sizes}
    assert len(places) == 8
    assert all(place.name == "cyclical_sgld" for place in places)


def test_exit_codes_and_messages(run, tmp_path, capsys):
    def code(*args):
        with pytest.raises(SystemExit) as ended:
            main([str(arg) for arg in args])
        return ended.value.code

    main(["verify", str(run)])
    assert "every file is as it was written" in capsys.readouterr().out
    flip(run / "data.safetensors")
    assert code("verify", run) == 1
    assert "data" in capsys.readouterr().out
    for command in ("show", "verify", "resume", "runs"):
        assert code(command, tmp_path / "none") == 2
        printed = capsys.readouterr().err
        assert printed.startswith(f"ptx: {tmp_path / 'none'}: no ")
        assert "Traceback" not in printed
    assert code("resume", run) == 2
    assert f"ptx.resume('{run}', model)" in capsys.readouterr().err
