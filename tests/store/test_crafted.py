"""Files made to do harm: nothing is executed, nothing is written elsewhere, memory is not filled; all are refused."""

import io
import os
import pickle
import shutil
import struct

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from store import faults, runs
from store.runs import ENGINES

import ptx
from ptx.store import files, layout, manifest, read

ENGINE = ENGINES["SGLD"]


@pytest.fixture(autouse=True)
def often_saved(monkeypatch):
    runs.save_always(monkeypatch.setattr)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    directory = tmp_path_factory.mktemp("template") / "run"
    with pytest.MonkeyPatch.context() as patch:
        runs.save_always(patch.setattr)
        with faults.operations(85, faults.crash), pytest.raises(faults.Crash):
            runs.infer(ENGINE, directory)
    (directory / manifest.PREVIOUS).unlink()  # so that there is no way back
    return directory


@pytest.fixture
def run(template, tmp_path):
    """The directory of an unfinished run, inside one that must have nothing else in it."""
    return shutil.copytree(template, tmp_path / "outer" / "run")


class Boom:
    """Leaves a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def harmful(path):
    """Bytes that execute something for a reader that lets them: a pickle, and an npz with a pickled object."""
    buffer = io.BytesIO()
    np.savez(buffer, w=np.array([Boom(path)], object))
    return pickle.dumps(Boom(path)), buffer.getvalue()


def forge(directory, **changes):
    """A manifest with other entries and a checksum that is right."""
    content = manifest.read(directory / manifest.MANIFEST)
    (directory / manifest.MANIFEST).write_bytes(manifest.dump(content | changes))


def read_all(directory):
    """Open the run and read its draws and statistics."""
    posterior = ptx.open_run(directory, runs.scaled)
    return [np.asarray(array) for array in (*posterior.draws.values(), *posterior.statistics.values())]


def require_refused(directory, error=ValueError, match=None, verbs=("open", "resume")):
    """Both verbs refuse, and beside the run there is no new file."""
    for verb in verbs:
        with pytest.raises(error, match=match):
            {"open": read_all, "resume": runs.resume}[verb](directory)
    assert sorted(path.name for path in directory.parent.iterdir()) == ["run"]


def test_a_pickle_is_not_a_run(run):
    chunk = next(iter((run / "draws.zarr/posterior/w/c").rglob("0"))) / "0/0"
    content = read.load(run).content
    checkpoint = f"{layout.CHECKPOINTS}/{content['checkpoint']['file']}"
    for name in (manifest.MANIFEST, checkpoint, layout.DATA, str(chunk.relative_to(run))):
        for harm in harmful(run.parent / "boom"):
            before = (run / name).read_bytes()
            (run / name).write_bytes(harm)
            require_refused(run, verbs=["resume"] if name == checkpoint else ["open", "resume"])
            (run / name).write_bytes(before)


def test_what_is_forged_without_a_change_is_a_run(run):
    """The control of the tests below: what is refused there is refused for the entry that was forged."""
    (run / files.LOCK).write_bytes(harmful(run.parent / "boom")[0])
    forge(run)
    assert not ptx.open_run(run, runs.scaled).draws["w"].check()
    runs.require_same(runs.values(runs.resume(run)), runs.values(runs.infer(ENGINE)))
    assert not (run.parent / "boom").exists()


def test_a_pickle_whose_checksum_is_right_is_no_checkpoint(run):
    for harm in harmful(run.parent / "boom"):
        (run / layout.CHECKPOINTS / "00000009.safetensors").write_bytes(harm)
        forge(run, checkpoint={"file": "00000009.safetensors", "sha256": files.sha256(harm)})
        require_refused(run, match="not a readable checkpoint", verbs=["resume"])


@pytest.mark.parametrize(
    "header",
    [
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 2**40) + b"{}",
        struct.pack("<Q", 200)
        + b'{"a":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}',
        struct.pack("<Q", 62) + b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}       ' + bytes(4),
        struct.pack("<Q", 2) + b"[]",
        b"",
    ],
)
def test_a_forged_header_of_a_checkpoint_is_refused(run, header):
    (run / layout.CHECKPOINTS / "00000009.safetensors").write_bytes(header)
    forge(run, checkpoint={"file": "00000009.safetensors", "sha256": files.sha256(header)})
    require_refused(run, match="no save is whole", verbs=["resume"])


@pytest.mark.parametrize(
    "bomb",
    [
        b"[" * 10**6,
        b'{"a":' * 10**5 + b"1" + b"}" * 10**5,
        b'{"format": "ptx run", "steps": ' + b"9" * 10**5 + b"}",
        b'{"format": "ptx run", "steps": 1e999}',
        b"\xff\xfe{}",
        b"null",
        b"[]",
        b"",
    ],
)
def test_json_bombs_are_refused(run, bomb):
    (run / manifest.MANIFEST).write_bytes(bomb)
    require_refused(run, match="no save is whole")


def test_json_nested_in_a_manifest_with_a_checksum_is_refused(run):
    nested = "[" * 900 + "]" * 900
    content = (run / manifest.MANIFEST).read_text()
    (run / manifest.MANIFEST).write_text(content.replace('"state": ', f'"deep": {nested}, "state": ', 1))
    require_refused(run, match="no save is whole")


def test_a_manifest_of_100_megabytes_is_not_read(run):
    with open(run / manifest.MANIFEST, "wb") as file:
        file.truncate(100 * 2**20)
    require_refused(run, match="at most 67,108,864 are read")


def test_a_manifest_that_is_no_file_is_refused(run):
    (run / manifest.MANIFEST).unlink()
    os.mkfifo(run / manifest.MANIFEST)
    require_refused(run, match="not a file")


@pytest.mark.parametrize(
    "engine",
    [
        {"name": "os.system", "fields": {"command": "mkdir boom"}},
        {"name": "numpy.load", "fields": {"file": "x"}},
        {"name": "__class__", "fields": {}},
        {"name": "_check", "fields": {}},
        {"name": "engine", "fields": {}},
        {"name": "autoguide", "fields": {}},
        {"name": ["SGLD"], "fields": {}},
        {"name": "SGLD", "fields": {"unknown": 1}},
        {"name": "SGLD", "fields": {"num_draws": "10"}},
        {"name": "SGLD", "fields": {"num_draws": -3, "num_chains": 2}},
        {"name": "SGLD", "fields": {"num_draws": 9, "num_chains": 10**9}},
        {"name": "SGLD", "fields": {"step_size": {"name": "os.system", "fields": {}}}},
        {"name": "SGLD", "fields": []},
        {"name": "Cosine", "fields": {"value": 1.0, "num_steps": 3}},
        {},
    ],
)
def test_an_engine_that_is_none_is_refused(run, engine):
    forge(run, engine=engine)
    require_refused(run, match="manifest: |no save is whole")


def array(name="posterior/w", group="posterior", variable="w", shape=(3,), dtype="float32", dims=None):
    dims = ["chain", "draw", *(f"d{i}" for i in range(len(shape)))] if dims is None else dims
    return [name, group, variable, list(shape), dtype, dims]


OUTSIDE = ("../../x", "/tmp/x", "..", ".", "a/../../x", "x\x00y", "", "c", "zarr.json", "w/../w")


@pytest.mark.parametrize("bad", OUTSIDE)
def test_a_variable_that_leads_out_of_the_run_is_refused(run, bad):
    forge(run, arrays=[array(variable=bad)])
    require_refused(run, match="is not what ptx wrote")


@pytest.mark.parametrize(
    "entry",
    [
        array(group="../posterior", name="../posterior/w"),
        array(group="checkpoints", name="checkpoints/w"),
        array(dtype="object"),
        array(dtype="O"),
        array(dtype="V8"),
        array(dtype="float32, float32"),
        array(shape=(-1,)),
        array(shape=(2**60,)),
        array(shape=(True,)),
        array(shape=(1,) * 70),
        array(dims=["chain", "draw"]),
        array(dims=["draw", "chain", "d0"]),
        array(name="posterior/v"),
        "posterior/w",
        None,
        [],
    ],
)
def test_an_array_that_ptx_would_not_write_is_refused(run, entry):
    forge(run, arrays=[entry])
    require_refused(run, match="is not what ptx wrote")


@pytest.mark.parametrize("bad", ["../data.safetensors", "/etc/passwd", "1.safetensors", None, 3, ["x"]])
def test_a_checkpoint_elsewhere_is_refused(run, bad):
    forge(run, checkpoint={"file": bad, "sha256": files.sha256((run / layout.DATA).read_bytes())})
    require_refused(run, match="checkpoint file .*is not what ptx wrote")


@pytest.mark.parametrize(
    "changes",
    [
        {"draws": -1},
        {"draws": 2**60},
        {"draws": True},
        {"draws": 10**12},
        {"draws": 1},
        {"num_chains": 10**9},
        {"num_chains": None},
        {"lengths": {"draw": 0, "step": 1}},
        {"lengths": {"draw": 10**9, "step": 15}},
        {"lengths": {}},
        {"steps": 1.5},
        {"visible_steps": 10**12},
        {"state": "asleep"},
        {"rng_key": {}},
        {"rng_key": {"implementation": "os.system", "words": [1, 2]}},
        {"rng_key": {"implementation": "threefry2x32", "words": ["a"]}},
        {"rng_key": {"implementation": "threefry2x32", "words": [2**70, 1]}},
        {"rng_key": {"implementation": "threefry2x32", "words": [[0]]}},
        {"attributes": 5},
        {"findings": "a"},
        {"versions": [1]},
        {"settings": {}},
        {"model": {}},
        {"arrays": {}},
    ],
)
def test_forged_numbers_are_refused(run, changes):
    forge(run, **changes)
    opens = changes.keys() & {"rng_key", "settings", "visible_steps"} or changes == {
        "draws": 1
    }  # fewer can be read
    require_refused(run, verbs=["resume"] if opens else ["open", "resume"])


@pytest.mark.parametrize(
    "structure",
    [
        "dict",
        {"inputs": {"dict": [1]}, "targets": None},
        {"inputs": {"array": 10**9, "dtype": "float32"}, "targets": None},
        {"inputs": {"array": 0, "dtype": "int4"}, "targets": None},
        {"inputs": {"list": 4}, "targets": None},
        {"inputs": {"eval": "1"}, "targets": None},
        {"inputs": 7},
        [],
    ],
)
def test_a_forged_structure_of_the_data_is_refused(run, structure):
    content = manifest.read(run / manifest.MANIFEST)
    forge(run, data=content["data"] | {"structure": structure})
    require_refused(run, match="data")


@pytest.mark.parametrize("name", ["lock", "events.jsonl"])
def test_a_link_in_place_of_a_file_is_not_followed(run, name, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(victim)
    with pytest.raises(OSError, match=name):
        runs.resume(run)
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("name", ["checkpoints", "draws.zarr", "draws.zarr/posterior/w/c"])
def test_a_link_in_place_of_a_directory_is_refused(run, name, tmp_path):
    victim = tmp_path / "victim"
    shutil.move(run / name, victim)
    (run / name).symlink_to(victim)
    before = runs.tree(victim, "")
    with pytest.raises(ValueError, match=f"{name}: a link"):
        runs.resume(run)
    assert runs.tree(victim, "") == before


def test_a_link_in_place_of_a_draw_file_is_replaced_and_not_written_through(tmp_path):
    run = tmp_path / "run"
    with faults.operations(45, faults.crash), pytest.raises(faults.Crash):
        runs.infer(ENGINE, run)
    whole = runs.values(runs.infer(ENGINE, tmp_path / "whole"))
    later = (path.relative_to(tmp_path / "whole") for path in sorted((tmp_path / "whole").rglob("c/0/*")))
    chunk = next(run / path for path in later if not (run / path).exists())  # not written yet
    victim = tmp_path / "victim"
    victim.write_text("mine")
    chunk.parent.mkdir(exist_ok=True)
    chunk.symlink_to(victim)
    runs.require_same(runs.values(runs.resume(run)), whole)
    assert victim.read_text() == "mine"
    assert not chunk.is_symlink()


NAMES = (
    "../../x",
    "/abs",
    "a/b",
    "..",
    ".",
    "chain",
    "draw",
    "step",
    "zarr.json",
    "c",
    "two words",
    "ä ∑",
    "x\x00y",
)


def named(*names):
    """A model whose sites have these names."""

    def model(inputs, targets=None):
        total = sum(numpyro.sample(name, dist.Normal(0, 1 + i)) for i, name in enumerate(names))
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("y", dist.Normal(jnp.asarray(inputs)[:, 0] * total, 1.0), obs=targets)

    return model


def test_any_name_of_a_site_stays_inside_the_run(tmp_path):
    model, directory = named(*NAMES), tmp_path / "outer" / "run"
    whole = runs.values(runs.infer(ENGINE, model=model))
    with faults.operations(85, faults.crash), pytest.raises(faults.Crash):
        runs.infer(ENGINE, directory, model=model)
    stored = runs.resume(directory, model=model)
    runs.require_same(runs.values(stored), whole)
    assert sorted(
        path.name for path in tmp_path.rglob("*") if path.parent in (tmp_path, directory.parent)
    ) == [
        "outer",
        "run",
    ]
    assert set(ptx.open_run(directory).draws) == set(NAMES)
    tree = ptx.to_datatree(ptx.open_run(directory, model))
    assert {"chain_", "draw_", "step", "..", "a.b"} <= set(tree["posterior"].data_vars)


def test_names_that_no_file_can_have_are_refused_before_the_run(tmp_path):
    for name, match in (("w" * 300, "longer than 200 bytes"), ("", "empty name")):
        with pytest.raises(ValueError, match=match):
            runs.infer(ENGINE, tmp_path / "run", model=named(name))
    with pytest.raises(ValueError, match=r"both be exported as 'a\.b'"):
        runs.infer(ENGINE, tmp_path / "run", model=named("a/b", "a.b"))
    with pytest.raises(ValueError, match="where case does not count"):
        runs.infer(ENGINE, tmp_path / "run", model=named("a", "A"))
    assert not read.exists(tmp_path / "run")
