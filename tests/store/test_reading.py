"""What readers see: constrained parameters in zarr while the run goes on, whole draws only, full files that stay."""

import dataclasses
import itertools
import os
import signal
import warnings

import numpy as np
import pytest
from store import faults, runs
from store.runs import DATA, ENGINES

import ptx
from ptx.store import arrays
from ptx.store.arrays import Stored

ENGINE = ENGINES["SGLD"]
LONG = dataclasses.replace(ENGINE, num_draws=23)


@pytest.fixture(autouse=True)
def often_saved(monkeypatch):
    runs.save_always(monkeypatch.setattr)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A run in memory, and the same run on disk."""
    directory = tmp_path_factory.mktemp("pair") / "run"
    with pytest.MonkeyPatch.context() as patch:
        runs.save_always(patch.setattr)
        return runs.infer(LONG), runs.infer(LONG, directory)


def open_tree(directory):
    """As a user of ArviZ opens it; a warning is an error."""
    import xarray

    return xarray.open_datatree(directory / "draws.zarr", engine="zarr")


def test_parameters_are_stored_on_their_supports(pair):
    in_memory, stored = pair
    tree = open_tree(stored.draws["w"].root.parent)
    assert set(tree.children) == {"posterior", "unconstrained_posterior", "sample_stats", "history"}
    constrained = in_memory.constrained()
    assert (tree["posterior/noise.scale"].values > 0).all()
    np.testing.assert_allclose(tree["posterior/noise.scale"].values, constrained["noise/scale"], rtol=1e-6)
    assert np.array_equal(tree["posterior/w"].values, in_memory.draws["w"])
    assert list(tree["unconstrained_posterior"].data_vars) == ["noise.scale"]
    assert np.array_equal(tree["unconstrained_posterior/noise.scale"].values, in_memory.draws["noise/scale"])
    for name, values in in_memory.statistics.items():
        assert np.array_equal(tree[f"sample_stats/{name}"].values, values)
    for name, values in in_memory.history.items():
        assert np.array_equal(tree[f"history/{name}"].values, values)
    assert tree["posterior/w"].dims[:2] == ("chain", "draw")
    assert list(tree["posterior"].coords["draw"].values) == list(range(23))


def test_priors_are_stored_as_priors(tmp_path):
    stored = runs.infer(ENGINES["Prior"], tmp_path / "run")
    assert set(open_tree(tmp_path / "run").children) <= {
        "prior",
        "unconstrained_prior",
        "sample_stats_prior",
        "history",
    }
    assert "prior" in ptx.to_datatree(stored).children


def test_the_tree_opens_after_a_crash_at_any_operation_with_whole_draws(pair, tmp_path):
    in_memory, _ = pair
    constrained, seen = in_memory.constrained(), set()
    for at in itertools.count(20, 7):
        directory = tmp_path / str(at)
        try:
            with faults.operations(at, faults.crash):
                runs.infer(LONG, directory)
            break
        except faults.Crash:
            tree = open_tree(directory)
            if "posterior" not in tree.children:
                continue
            count = tree.sizes.get("draw", tree["posterior"].sizes["draw"])
            for name in ("w", "noise/scale"):
                rows = tree[f"posterior/{name.replace('/', '.')}"].values
                np.testing.assert_allclose(rows, constrained[name][:, :count], rtol=1e-6)
            manifest_count = ptx.open_run(directory).num_draws
            assert count >= manifest_count  # files come before the manifest
            posterior = ptx.open_run(directory, runs.scaled)
            if posterior.num_draws:
                opened = ptx.to_datatree(posterior, log_likelihood=False)
                assert opened["posterior"].sizes["draw"] == posterior.num_draws
            seen.add(count)
    assert len(seen) >= 3


def test_the_tree_opens_while_the_run_goes_on(tmp_path, monkeypatch):
    save, seen = runs.disk.Disk.save, []

    def look(self, *args):
        save(self, *args)
        seen.append(open_tree(tmp_path / "run").children.get("posterior"))

    monkeypatch.setattr(runs.disk.Disk, "save", look)
    whole = runs.values(runs.infer(LONG, tmp_path / "run", chunk_size=4))
    counts = [0 if group is None else group.sizes["draw"] for group in seen]
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert counts[-1] == 23
    assert len(set(counts)) > 4
    assert np.array_equal(seen[-1]["w"].values, whole["draws", "w"])


def stamps(directory):
    """Modification time, inode and bytes of every file of draws or steps, by its path in the zarr group."""
    paths = (path for path in (directory / "draws.zarr").rglob("*") if path.is_file())
    return {
        path.relative_to(directory / "draws.zarr").parts: (
            path.stat().st_mtime_ns,
            path.stat().st_ino,
            path.read_bytes(),
        )
        for path in paths
        if path.name != "zarr.json" and path.parent.parent.name != "chain"
    }


def test_files_of_full_chunks_are_never_written_again(tmp_path, monkeypatch):
    directory, seen = tmp_path / "run", []
    save = runs.disk.Disk.save

    def look(self, *args):
        save(self, *args)
        seen.append((self.counts.copy(), stamps(directory)))

    monkeypatch.setattr(runs.disk.Disk, "save", look)
    with runs.signalled(20, signal.SIGINT), pytest.warns(RuntimeWarning, match="interrupted"):
        runs.infer(LONG, directory, chunk_size=4)
    runs.resume(directory)
    runs.infer(dataclasses.replace(LONG, num_draws=31), directory)
    num_full = 0
    for (counts, before), (_, after) in itertools.pairwise(seen):
        for path, stamp in before.items():
            axis = "step" if path[0] == "history" else "draw"
            index = int(
                path[3] if path[1] == axis else path[4]
            )  # labels have one axis, other arrays chains first
            if index < counts[axis] // {"draw": 5, "step": 15}[axis]:
                num_full += 1
                assert after[path] == stamp, path
    assert num_full > 50


def test_an_opened_run_without_a_model_has_draws_and_statistics(pair):
    in_memory, stored = pair
    opened = ptx.open_run(stored.draws["w"].root.parent)
    runs.require_same(runs.values(opened), runs.values(in_memory))
    assert isinstance(opened.draws["w"], Stored)
    assert "2 chains x 23 draws of" in repr(opened)
    assert "w (3,)" in repr(opened)
    assert set(opened.constrained()) == {"w", "noise/scale"}
    for use in (
        lambda: ptx.predict(0, opened, DATA[0]),
        lambda: ptx.log_likelihood(opened),
        lambda: ptx.to_datatree(opened),
    ):
        with pytest.raises(ValueError, match=r"opened without its model; use ptx\.open_run\(path, model\)"):
            use()


def test_what_is_computed_from_a_stored_run_is_that_of_the_run_in_memory(pair, tmp_path):
    in_memory, stored = pair
    for posterior in (stored, ptx.open_run(stored.draws["w"].root.parent, runs.scaled)):
        here, there = (ptx.predict(3, each, DATA[0]) for each in (in_memory, posterior))
        assert np.array_equal(here.targets["y"], there.targets["y"])
        one, other = (ptx.log_likelihood(each)["y"] for each in (in_memory, posterior))
        assert np.array_equal(one, other)
        first, second = (ptx.to_datatree(each) for each in (in_memory, posterior))
        assert set(first.children) == set(second.children)
        for group in first.children:
            assert set(first[group].variables) == set(second[group].variables)
            for name, values in first[group].data_vars.items():
                assert values.dims == second[group][name].dims
                np.testing.assert_allclose(values.values, second[group][name].values, rtol=1e-6)
        start = [runs.infer(ENGINE, init=each).draws["w"] for each in (in_memory, posterior)]
        assert np.array_equal(*start)


@pytest.mark.filterwarnings(
    "ignore:Consolidated metadata is currently not part"
)  # by xarray, of what it writes
def test_trees_of_a_stored_run_are_saved_and_read_again(pair, tmp_path):
    import xarray

    tree = ptx.to_datatree(pair[1])
    tree.to_netcdf(tmp_path / "run.nc")
    tree.to_zarr(tmp_path / "run.zarr")
    for again in (
        xarray.open_datatree(tmp_path / "run.nc"),
        xarray.open_datatree(tmp_path / "run.zarr", engine="zarr"),
    ):
        for group in ("posterior", "sample_stats", "log_likelihood"):
            for name, values in tree[group].data_vars.items():
                assert np.array_equal(values.values, again[group][name].values)
        again.close()


CHAINS = (slice(None), 0, -1, np.int64(1), [1, 0], [], slice(None, None, -1), np.array([True, False]))
DRAWS = (
    slice(None),
    7,
    -1,
    np.array(4),
    slice(3, 19, 5),
    slice(None, None, -2),
    slice(30, 40),
    [22, 0, 0, -3],
    [],
    np.arange(23) % 3 == 0,
)
REST = (slice(None), 1, [2, 0])


def indices():
    """Indices that NumPy takes for an array of shape (2, 23, 3)."""
    yield from ((chains,) for chains in CHAINS)
    yield from itertools.product(CHAINS, DRAWS)
    yield from itertools.product(CHAINS, DRAWS, REST)
    yield from ((Ellipsis,), (Ellipsis, 1), (None,), (slice(None), None), (0, Ellipsis), (True,), ())
    yield (np.array([[0], [1]]), np.array([[0, 5, 22]]))
    yield (np.divmod(np.arange(46), 23),)[0]
    yield (np.arange(46).reshape(2, 23) % 5 == 0,)
    yield (slice(None), np.array([[0, 5], [22, 1]]))


def test_indexing_is_that_of_numpy(pair):
    stored = pair[1].draws["w"]
    array = np.asarray(pair[0].draws["w"])
    num_equal = 0
    for index in indices():
        try:
            expected = array[index]
        except IndexError:
            with pytest.raises(IndexError):
                stored[index]
            continue
        found = stored[index]
        assert np.shape(found) == np.shape(expected), index
        assert np.array_equal(found, expected), index
        num_equal += 1
    assert num_equal > 150
    for outside in (2, (0, 23), (0, -24), (slice(None), [0, 23]), (0, 0, 3), (0, 0, 0, 0), "w", 1.5):
        with pytest.raises(IndexError):
            array[outside]
        with pytest.raises(IndexError):
            stored[outside]
    assert [chain.shape for chain in stored] == [(23, 3)] * 2
    assert (stored.ndim, stored.size, len(stored)) == (array.ndim, array.size, len(array))
    mask = np.arange(46).reshape(2, 23) % 5 == 0
    for name, expected in pair[0].statistics.items():
        assert np.array_equal(pair[1].statistics[name][mask], expected[mask])


def test_few_draws_are_read_from_few_files(pair, monkeypatch):
    read, count = arrays.read_chunk, []
    monkeypatch.setattr(arrays, "read_chunk", lambda *args: count.append(args[2]) or read(*args))
    assert pair[1].draws["w"][:, 11].shape == (2, 3)
    assert count == [2]
    assert pair[1].draws["w"][0, 4:6].shape == (2, 3)
    assert count == [2, 0, 1]


@pytest.mark.filterwarnings("ignore:.*interrupted after:RuntimeWarning")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", ["SGLD", "MAP", "SVI", "CyclicalSGHMC"])
def test_a_signal_ends_the_chunk_saves_and_returns(name, number, tmp_path):
    engine, directory = ENGINES[name], tmp_path / "run"
    whole = runs.values(runs.infer(engine))
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with runs.signalled(13, number):
        posterior = runs.infer(engine, directory, chunk_size=4)
    assert handlers == [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    assert posterior.attributes["interrupted"]
    assert posterior.attributes["num_steps"] == 16
    assert any("interrupted after 16" in finding for finding in posterior.findings)
    for array in posterior.history.values():
        assert array.shape == (2, 16)
    found = runs.values(posterior)
    if engine.is_sampler:
        kept = posterior.num_draws
        assert 0 < kept < engine.num_draws
        assert np.array_equal(found["draws", "w"], whole["draws", "w"][:, :kept])
    else:
        assert found["draws", "w"].shape == whole["draws", "w"].shape
        assert not np.array_equal(found["draws", "w"], whole["draws", "w"])
    opened = ptx.open_run(directory)
    assert opened.attributes["interrupted"]
    assert any("interrupted after 16" in finding for finding in opened.findings)
    runs.require_same(runs.values(runs.resume(directory)), whole)
    assert not any("interrupted" in finding for finding in ptx.open_run(directory).findings)


def test_a_second_signal_stops_at_once(tmp_path):
    with runs.signalled(10, signal.SIGINT, times=2), pytest.raises(KeyboardInterrupt):
        runs.infer(ENGINE, tmp_path / "run", chunk_size=5)
    assert ptx.open_run(tmp_path / "run").attributes["num_steps"] == 5  # the last save
    assert "KeyboardInterrupt" in (tmp_path / "run" / "events.jsonl").read_text()
    runs.require_same(runs.values(runs.resume(tmp_path / "run")), runs.values(runs.infer(ENGINE)))


def test_findings_are_kept_with_the_run(tmp_path):
    engine = dataclasses.replace(ENGINES["NUTS"], num_warmup=0, step_size=1e6, max_tree_depth=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        posterior = runs.infer(engine, tmp_path / "run")
    assert any("never moved" in finding for finding in posterior.findings)
    assert ptx.open_run(tmp_path / "run").findings == posterior.findings
    assert ptx.open_run(tmp_path / "run").attributes["gradient_evaluations"] > 0


def test_a_store_can_be_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs.infer(ENGINE, "here/run")
    assert os.path.exists(tmp_path / "here/run/manifest.json")
    assert ptx.open_run("here/run").num_draws == 9
