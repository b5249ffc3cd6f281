"""A run that is killed at any instant goes on, and gives what it would have given."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from store import faults, killed, runs
from store.runs import ENGINES

from ptx.store import files

pytestmark = pytest.mark.filterwarnings(runs.SHORT_WARM_UP)
# At how many operations a run crashes, 4 where not named; in the slow part, how far apart they are.
SOME = {"MAP": 16, "SVI": 12, "NUTS": 12, "SGLD": 12}
APART = {"MAP": 1, "NUTS": 2, "SGLD": 2}


@pytest.fixture(autouse=True)
def often_saved(monkeypatch):
    runs.save_always(monkeypatch.setattr)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """By engine: the numbers of a run in memory, the draw files of a stored one, and how many operations it took."""
    cache = {}

    def get(name):
        if name not in cache:
            directory = tmp_path_factory.mktemp("whole") / "run"
            in_memory = runs.values(runs.infer(ENGINES[name]))
            with faults.operations() as counted:
                stored = runs.values(runs.infer(ENGINES[name], directory))
            runs.require_same(stored, in_memory)
            cache[name] = in_memory, runs.tree(directory), counted.count
        return cache[name]

    return get


def crashes(directory, name, at):
    """Run or resume until operation `at`; whether it came to that."""
    try:
        with faults.operations(at, faults.crash):
            runs.go_on(directory, ENGINES[name])
    except faults.Crash:
        return True
    return False


def require_whole(directory, name, expected):
    """Resumed, the run has the numbers of the uninterrupted one, and its files, byte for byte; nothing else is left."""
    numbers, draw_files, _ = expected
    posterior = runs.go_on(directory, ENGINES[name])
    runs.require_same(runs.values(posterior), numbers)
    assert runs.tree(directory) == draw_files
    assert not list(directory.rglob(f"{files.TEMPORARY}*"))
    assert len(list((directory / "checkpoints").iterdir())) <= 2
    assert not posterior.attributes["interrupted"]


def some_operations(name, count, whole):
    rng = np.random.default_rng(sorted(ENGINES).index(name))
    return sorted(rng.choice(whole(name)[2], count, replace=False))


@pytest.mark.parametrize("name", ENGINES)
def test_a_crash_at_any_file_operation_changes_nothing(name, whole, tmp_path):
    for at in some_operations(name, SOME.get(name, 4), whole):
        directory = tmp_path / str(at)
        assert crashes(directory, name, at), at
        require_whole(directory, name, whole(name))
    assert not crashes(tmp_path / "end", name, whole(name)[2])


@pytest.mark.slow
@pytest.mark.parametrize("name", ENGINES)
def test_a_crash_at_every_few_file_operations_changes_nothing_for_every_engine(name, whole, tmp_path):
    apart = APART.get(name, 4)
    for at in range(list(ENGINES).index(name) % apart, whole(name)[2], apart):
        assert crashes(tmp_path / str(at), name, at), at
        require_whole(tmp_path / str(at), name, whole(name))


@pytest.mark.parametrize("name", ["NUTS", "SVI"])
def test_crash_after_crash_changes_nothing(name, whole, tmp_path):
    """Every process gets a few operations further than the last save, or none."""
    rng = np.random.default_rng(3)
    num_crashes = 0
    while crashes(tmp_path / "run", name, int(rng.integers(1, 90))):
        num_crashes += 1
        assert num_crashes < 500
    assert num_crashes > 2
    require_whole(tmp_path / "run", name, whole(name))


def test_a_save_that_does_not_count_is_not_taken(whole, tmp_path):
    """The control of these tests: a run that goes on from another state is noticed."""
    numbers, *_ = whole("SGLD")
    posterior = runs.infer(ENGINES["SGLD"], tmp_path / "other", seed=1)
    with pytest.raises(AssertionError):
        runs.require_same(runs.values(posterior), numbers)


def killed_process(directory, name, when, at):
    """The return code of a process of its own that runs or resumes, and kills itself."""
    paths = [str(runs.ROOT / "tests"), str(runs.ROOT), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, killed.__file__, str(directory), name, when, str(at)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


@pytest.mark.parametrize("name", ["NUTS dense", "CyclicalSGHMC", "SVI"])
def test_kill_minus_9_loses_nothing(name, whole, tmp_path):
    seed = list(ENGINES).index(name)
    at = int(np.random.default_rng(seed).integers(whole(name)[2]))
    directory = tmp_path / "run"
    assert killed_process(directory, name, "operation", at) == -signal.SIGKILL
    assert (directory / files.LOCK).read_bytes()  # nobody cleaned up
    require_whole(directory, name, whole(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", ENGINES)
def test_twenty_random_kills_lose_nothing(name, whole, tmp_path):
    rng = np.random.default_rng(list(ENGINES).index(name))
    run = 0
    for kill in range(20):
        directory = tmp_path / str(run)
        when = ("operation", int(rng.integers(1, 80))) if kill % 2 else ("seconds", rng.uniform(0, 1.5))
        if killed_process(directory, name, *when) == 0:  # came to its end first
            require_whole(directory, name, whole(name))
            run += 1
    require_whole(tmp_path / str(run), name, whole(name))
