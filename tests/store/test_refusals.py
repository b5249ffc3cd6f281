"""A stored run goes on with what it was made of, or is refused with what differs; and one process at a time."""

import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
import threading

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from store import faults, runs
from store.runs import DATA, ENGINES

import ptx
from ptx.store import files, manifest

pytestmark = pytest.mark.filterwarnings(runs.SHORT_WARM_UP)
ENGINE = ENGINES["SGLD"]


@pytest.fixture(autouse=True)
def often_saved(monkeypatch):
    runs.save_always(monkeypatch.setattr)


@pytest.fixture
def run(tmp_path):
    """The directory of a run that was cut off after some saves."""
    directory = tmp_path / "run"
    with faults.operations(40, faults.crash), pytest.raises(faults.Crash):
        runs.infer(ENGINE, directory)
    return directory


def regression(*, w_scale=2.0, scale=1.0, noise=0.3, name="noise/scale", size=3, truncated=False):
    """The model of the run with something else about it."""

    def scaled(inputs, targets=None):
        w = numpyro.sample("w", dist.Normal(0, w_scale).expand([size]).to_event(1))
        prior = dist.Uniform(0, 9.0) if truncated else dist.HalfNormal(scale)
        extra = numpyro.sample(name, prior)
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("y", dist.Normal(inputs @ w[:3], noise + extra), obs=targets)

    return scaled


def refused(directory, match, **changes):
    """Refused by `infer`, by `resume` and by `open_run`, as far as they take what differs; and nothing changes."""
    before = {path: path.read_bytes() for path in directory.rglob("*.json")}
    options = {"engine": ENGINE, "directory": directory, "model": runs.scaled, "data": DATA} | changes
    with pytest.raises(ValueError, match=match):
        runs.infer(options.pop("engine"), options.pop("directory"), **options)
    if changes and changes.keys() <= {"model", "data"}:
        for verb in (ptx.resume, ptx.open_run):
            with pytest.raises(ValueError, match=match):
                verb(directory, changes.get("model", runs.scaled), changes.get("data"))
    assert before == {path: path.read_bytes() for path in directory.rglob("*.json")}


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"scale": 1.001}, r"model\.log_prior\.noise/scale \(near\): "),
        ({"w_scale": 2.001}, r"model\.log_prior\.w \(near\): "),
        ({"noise": 0.301}, r"model\.log_likelihood\.y\.row 0 \(near\): "),
        ({"name": "scale"}, r"model\.sites\.noise/scale: missing; model\.sites\.scale: not there before"),
        ({"size": 4}, r"model\.sites\.w\.shape: \[3\], now \[4\]"),
        ({"truncated": True}, r"model\.sites\.noise/scale\.support: 'Positive.*, now 'Interval"),
    ],
)
def test_another_model_is_refused_by_the_part_that_differs(run, changes, match):
    refused(run, match, model=regression(**changes))


def test_the_same_model_written_again_goes_on(run):
    model = regression()
    model.__qualname__ = runs.scaled.__qualname__
    runs.require_same(runs.values(runs.resume(run, model=model)), runs.values(runs.infer(ENGINE)))


def test_other_data_are_refused(run):
    inputs, targets = DATA
    changed = inputs.copy()
    changed[3, 1] += 1e-4
    refused(run, r"data\.sha256", data=(changed, targets))
    refused(run, r"data\.sha256", data=(inputs[::-1], targets[::-1]))
    refused(run, r"data\.leaves.*float32 \[12, 3\].*, now .*\[11, 3\]", data=(inputs[:-1], targets[:-1]))


def test_another_key_is_refused(run):
    refused(run, r"rng_key\.words: \[0, 0\], now \[0, 1\]", seed=1)
    refused(run, r"rng_key\.implementation: .*, now .*rbg", seed=jax.random.key(0, impl="rbg"))


def test_x64_is_refused_and_named(run):
    with jax.enable_x64(True):
        refused(run, r"settings\.x64: False, now True")
        with pytest.raises(ValueError, match=r"settings\.x64: False, now True"):
            runs.resume(run)


def test_a_run_in_float64_goes_on_in_float64(tmp_path):
    with jax.enable_x64(True):
        whole = runs.values(runs.infer(ENGINE))
        with faults.operations(40, faults.crash), pytest.raises(faults.Crash):
            runs.infer(ENGINE, tmp_path / "run")
        posterior = runs.resume(tmp_path / "run")
        runs.require_same(runs.values(posterior), whole)
        assert posterior.draws["w"].dtype == np.float64
    with pytest.raises(ValueError, match=r"settings\.x64: True, now False"):
        runs.resume(tmp_path / "run")


def test_a_run_of_another_generator_goes_on_by_itself(tmp_path):
    key = jax.random.key(7, impl="rbg")
    whole = runs.values(runs.infer(ENGINE, seed=key))
    with faults.operations(40, faults.crash), pytest.raises(faults.Crash):
        runs.infer(ENGINE, tmp_path / "run", seed=key)
    runs.require_same(runs.values(runs.resume(tmp_path / "run")), whole)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"step_size": 2e-3}, r"engine\.fields\.step_size: 0\.001, now 0\.002"),
        ({"batch_size": None}, r"engine\.fields\.batch_size: 5, now None"),
        ({"num_chains": 3}, r"engine\.fields\.num_chains: 2, now 3"),
        ({"num_draws": 20}, "running with num_draws=9, and only a finished one grows"),
        ({"num_draws": 5}, "only a finished one grows, to more draws; got num_draws=5"),
    ],
)
def test_other_settings_are_refused(run, changes, match):
    refused(run, match, engine=dataclasses.replace(ENGINE, **changes))


def test_another_engine_is_refused(run):
    refused(run, r"engine\.name: 'SGLD', now 'NUTS'", engine=ENGINES["NUTS"])


def test_another_layout_or_start_is_refused(run):
    refused(run, r"settings\.chains: 'one program a chain', now 'vectorised'", chain_layout="vectorised")
    start = {"w": np.zeros(3), "noise/scale": np.zeros(())}
    refused(run, r"settings\.init \(digest\): None, now '", init=start)


def test_other_layouts_of_single_chains_go_on(run):
    posterior = runs.infer(ENGINE, run, chain_layout="loop")
    runs.require_same(runs.values(posterior), runs.values(runs.infer(ENGINE)))


def test_vectorised_chains_and_given_starts_go_on(tmp_path):
    start = {"w": np.full(3, 0.1), "noise/scale": np.zeros(())}
    for name, options in (("v", {"chain_layout": "vectorised"}), ("s", {"init": start})):
        whole = runs.values(runs.infer(ENGINE, **options))
        with faults.operations(40, faults.crash), pytest.raises(faults.Crash):
            runs.infer(ENGINE, tmp_path / name, **options)
        runs.require_same(runs.values(runs.resume(tmp_path / name)), whole)


def test_a_newer_format_is_refused_though_an_older_save_is_there(run, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(manifest, "FORMAT_VERSION", 2)
        runs.resume(run)
        shutil.copy(run / manifest.MANIFEST, run / "newer")
    before = (run / manifest.PREVIOUS).read_bytes()
    for verb in (ptx.open_run, runs.resume):
        with pytest.raises(ValueError, match="format version 2, and this ptx reads up to 1; use a newer ptx"):
            verb(run)
    assert (run / manifest.PREVIOUS).read_bytes() == before


def test_no_run_is_an_error_that_says_so(tmp_path):
    for verb in (ptx.open_run, runs.resume):
        with pytest.raises(FileNotFoundError, match="no run is stored there"):
            verb(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


HOLD = """import sys
from ptx.store import files
with files.locked(files.Path(sys.argv[1])):
    print('held', flush=True)
    input()
"""


def test_a_second_process_is_refused_with_host_and_pid(run):
    command = [sys.executable, "-c", HOLD, str(run)]
    path = os.pathsep.join([str(runs.ROOT), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    ) as process:
        assert process.stdout.readline() == "held\n"
        who = f"in use by process {process.pid} on {socket.gethostname()}"
        for attempt in (lambda: runs.resume(run), lambda: runs.infer(ENGINE, run)):
            with pytest.raises(BlockingIOError, match=who):
                attempt()
        assert ptx.open_run(run).num_chains == 2  # readers need no lock
        process.stdin.write("\n")
        process.stdin.close()
        process.wait()
    runs.require_same(runs.values(runs.resume(run)), runs.values(runs.infer(ENGINE)))


def test_a_second_thread_is_refused(run):
    with files.locked(run):
        found = []

        def attempt():
            try:
                runs.resume(run)
            except BlockingIOError as error:
                found.append(str(error))

        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()
    assert f"in use by process {os.getpid()} on" in found[0]


def test_the_lock_of_a_dead_process_is_taken_over_and_that_of_another_host_is_not(run):
    lock = run / files.LOCK
    lock.write_text(json.dumps({"host": "elsewhere.example", "pid": 12}))
    with pytest.raises(
        BlockingIOError, match=r"process 12 on elsewhere\.example.*if it is gone, delete .*lock"
    ):
        runs.resume(run)
    lock.write_text(json.dumps({"host": socket.gethostname(), "pid": 2**22 + 1}))
    runs.resume(run)
    assert lock.read_bytes() == b""


EXTENDED = {
    "Prior": {"num_draws": 23},
    "NUTS": {"num_draws": 23},
    "NUTS dense": {"num_draws": 12},
    "SGLD": {"num_draws": 17},
    "SGHMC": {"num_draws": 17},
    "CyclicalSGLD": {"num_draws": 16, "num_cycles": 4},
    "CyclicalSGHMC": {"num_draws": 24, "num_cycles": 6},
}


@pytest.mark.parametrize("name", EXTENDED)
def test_an_extended_run_is_the_longer_run(name, tmp_path):
    longer = dataclasses.replace(ENGINES[name], **EXTENDED[name])
    whole = runs.values(runs.infer(longer))
    short = runs.values(runs.infer(ENGINES[name], tmp_path / "run"))
    runs.require_same(runs.values(runs.infer(longer, tmp_path / "run")), whole)
    assert not np.array_equal(short["draws", "w"], whole["draws", "w"])
    runs.infer(longer, tmp_path / "at once")
    assert runs.tree(tmp_path / "run") == runs.tree(tmp_path / "at once")
    with pytest.raises(ValueError, match="only a finished one grows, to more draws"):
        runs.infer(ENGINES[name], tmp_path / "run")


def test_an_extension_that_is_killed_goes_on(tmp_path):
    longer = dataclasses.replace(ENGINE, num_draws=30)
    runs.infer(ENGINE, tmp_path / "run")
    with faults.operations(70, faults.crash), pytest.raises(faults.Crash):
        runs.infer(longer, tmp_path / "run")
    assert "not finished" in str(ptx.open_run(tmp_path / "run").findings)
    runs.require_same(runs.values(runs.resume(tmp_path / "run")), runs.values(runs.infer(longer)))


def everything(directory):
    """The bytes of all files but the event log."""
    return {name: content for name, content in runs.tree(directory, "").items() if "events" not in name}


def test_a_finished_run_is_returned_as_it_is(tmp_path):
    whole = runs.values(runs.infer(ENGINE, tmp_path / "run"))
    before = everything(tmp_path)
    for again in (runs.infer(ENGINE, tmp_path / "run"), runs.resume(tmp_path / "run")):
        runs.require_same(runs.values(again), whole)
        assert not again.attributes["interrupted"]
    assert everything(tmp_path) == before


@pytest.mark.parametrize("name", ["MAP", "SVI"])
def test_optimisers_are_not_extended(name, tmp_path):
    runs.infer(ENGINES[name], tmp_path / "run")
    field = "num_steps" if name == "MAP" else "num_draws"
    longer = dataclasses.replace(ENGINES[name], **{field: 30})
    with pytest.raises(
        ValueError, match=rf"engine\.fields\.{field}: .* only num_draws of a sampler may grow"
    ):
        runs.infer(longer, tmp_path / "run")


def test_a_cyclical_sampler_grows_by_whole_cycles(tmp_path):
    engine = ENGINES["CyclicalSGLD"]
    runs.infer(engine, tmp_path / "run")
    with pytest.raises(ValueError, match="whole cycles"):
        runs.infer(dataclasses.replace(engine, num_draws=24), tmp_path / "run")
    with pytest.raises(ValueError, match=r"engine\.fields\.num_cycles: 3, now 2"):
        runs.infer(dataclasses.replace(engine, num_cycles=2), tmp_path / "run")
