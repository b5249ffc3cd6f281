"""The demo from end to end, at sizes that say nothing about the engines but all about the wiring."""

import io
import json
import sys
from contextlib import redirect_stdout

import numpy as np
import pytest

from ptx.cli import main
from ptx.datasets import digits
from ptx.demo import FULL, QUICK, Size, demo, stored, tasks
from ptx.demo.plots import log_true_class
from ptx.demo.prior_swap import verdict
from ptx.diagnostics import Difference, check_convergence
from ptx.infer import infer
from ptx.inference import MAP, SVI

infer_module = sys.modules["ptx.infer"]

TINY = Size(
    train_rows=20,
    test_rows=12,
    sentences=8,
    test_sentences=6,
    map_steps=20,
    svi_steps=20,
    sgld_thin=1,
    num_warmup=4,
    num_draws=8,
    max_tree_depth=2,
)
ENGINES = ("map", "mean-field_svi", "cyclical_sgld", "nuts")
PLOTS = ("reliability", "entropy", "traces", "ranks", "energy")
FILES = (
    {f"{name}.nc" for name in ENGINES}
    | {f"{name}.png" for name in PLOTS}
    | {"scoreboard.json", "scoreboard.csv"}
)


def scores(reports):
    """All that does not depend on the clock."""
    return {
        task: [(row.name, row.scores, row.convergence, row.findings) for row in report.rows]
        for task, report in reports.items()
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A demo that ran to its end: its folder, its reports and what it printed."""
    out, printed = tmp_path_factory.mktemp("whole"), io.StringIO()
    with redirect_stdout(printed):
        reports = demo(out, seed=3, quick=True, size=TINY)
    return out, reports, printed.getvalue()


def test_quick_demo_writes_what_it_says(whole):
    import xarray

    out, reports, printed = whole
    assert list(reports) == ["digits"]
    folder = out / "digits"
    assert {path.name for path in folder.iterdir()} == FILES | {"prior_swap.json", "stores"}
    for path in ("summary.png", "scoreboard.json", *ENGINES):
        assert path in printed
    assert (out / "summary.png").read_bytes().startswith(b"\x89PNG")
    kept = json.loads((folder / "scoreboard.json").read_text())
    assert [row["name"] for row in kept["rows"]] == ["MAP", "mean-field SVI", "cyclical SGLD", "NUTS"]
    assert kept["num_rows"] == 12
    swap = json.loads((folder / "prior_swap.json").read_text())
    assert len(swap["by_chain"]) == 2
    assert [each["name"] for each in swap["convergence"]] == ["Student t", "normal"]
    assert np.isfinite(swap["nats_per_row"]["standard_error"])
    with xarray.open_datatree(folder / "nuts.nc", engine="h5netcdf") as tree:
        assert tree["posterior"]["head.kernel"].dims == ("chain", "draw", "embed", "output")
        assert tree["posterior"].sizes["draw"] == 8
        assert tree["log_likelihood"]["targets"].shape == (2, 8, 20)
        assert tree["predictions"]["targets"].shape == (2, 8, 12)


def test_fits_that_are_finished_are_taken_as_they_are(whole, capsys):
    out, reports, _ = whole
    assert scores(demo(out, seed=3, quick=True, size=TINY)) == scores(reports)
    assert capsys.readouterr().out.count("found stored") == 5


def test_a_demo_that_was_stopped_goes_on_where_it_was(whole, tmp_path, monkeypatch, capsys):
    """Stopped in SVI, whose start depends on MAP; brought to its end by `ptx resume`, then by the demo itself."""
    run_steps = infer_module.run_steps

    def stopped_in_svi(run, kept, chunk_size, show, stop, save):
        if isinstance(run.engine, SVI):
            stop.set()
            chunk_size = 7
        return run_steps(run, kept, chunk_size, show, stop, save)

    with monkeypatch.context() as patch:
        patch.setattr(infer_module, "run_steps", stopped_in_svi)
        with pytest.raises(KeyboardInterrupt):
            demo(tmp_path, seed=3, quick=True, size=TINY)
    capsys.readouterr()
    main(["runs", str(tmp_path)])
    listed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [(cells[0], cells[1]) for cells in listed[1:]] == [("finished", "20/20"), ("interrupted", "7/20")]
    main(["resume", str(stored.folder_of(tmp_path / "digits", 3, TINY, "mean-field SVI"))])
    assert "finished, 2 x 8 draws" in capsys.readouterr().out
    out, reports, _ = whole
    assert scores(demo(tmp_path, seed=3, quick=True, size=TINY)) == scores(reports)
    swaps = [(each / "digits" / "prior_swap.json").read_text() for each in (out, tmp_path)]
    assert swaps[0] == swaps[1]


def test_stored_fits_of_another_demo_are_refused_with_their_folder(tmp_path, monkeypatch):
    store = stored.folder_of(tmp_path / "digits", 3, TINY, "MAP")
    infer(0, tasks.digits(3, TINY).model, tasks.digits(3, TINY).train, MAP(num_steps=3), store=store)
    with pytest.raises(ValueError, match=r"delete .*stores.*map, or give another folder"):
        demo(tmp_path, seed=3, quick=True, size=TINY)


@pytest.mark.slow
def test_the_whole_demo_adds_the_tagger(tmp_path):
    reports = demo(tmp_path, size=TINY)
    assert list(reports) == ["digits", "tagger"]
    assert {path.name for path in (tmp_path / "tagger").iterdir()} == FILES | {"stores"}
    assert reports["tagger"].num_positions > reports["tagger"].num_rows


@pytest.mark.parametrize("size", [FULL, QUICK])
def test_tasks_are_as_small_as_stated(size):
    task = tasks.digits(0, size)
    weights = sum(int(np.prod(weight.shape)) for weight in task.model.network.weights.values())
    assert task.train.num_rows == 300
    assert weights < 1000
    assert task.test.num_rows == digits(seed=0).test.num_rows
    tagger = tasks.tagger(0, size)
    assert tagger.train.num_rows == 200
    assert tagger.model.network.vocab_size == 500
    assert tagger.mask.shape == np.shape(tagger.test.targets)


def test_draws_have_one_shape_but_for_map():
    engines = tasks.engines(tasks.digits(0, TINY), TINY)
    shapes = {name: (engine.num_chains, engine.num_draws) for name, engine in engines.items()}
    assert shapes.pop("MAP") == (1, 1)
    assert set(shapes.values()) == {(2, 8)}


def test_traced_positions_count_and_hold_the_true_class():
    task = tasks.tagger(0, TINY)
    probs = np.random.default_rng(0).dirichlet(np.ones(17), size=(2, 5, *task.mask.shape)).astype(np.float32)
    found = log_true_class(task, probs)
    assert len(found) == 3
    for name, values in found.items():
        row, word = (int(part.split()[-1]) for part in name.split(", ")[1:])
        assert task.mask[row, word]
        assert name.startswith(f"log p({task.classes[task.test.targets[row, word]]})")
        assert values == pytest.approx(np.log(probs[:, :, row, word, task.test.targets[row, word]]))


AGREE = np.random.default_rng(0).normal(size=(2, 500))
APART = AGREE + np.array([[0.0], [9.0]])


@pytest.mark.parametrize(
    ("difference", "by_chain", "draws", "words"),
    [
        (0.1, (0.2, 0.05), AGREE, "The Student t prior"),
        (-0.1, (-0.2, -0.05), AGREE, "The normal prior"),
        (0.1, (0.2, 0.05), APART, "not converged"),
        (0.1, (0.3, -0.1), AGREE, "disagree"),
        (0.01, (0.02, 0.005), AGREE, "cannot tell"),
    ],
)
def test_the_verdict_claims_no_more_than_the_numbers(difference, by_chain, draws, words):
    def of(value):
        return Difference(0.0, 0.0, value, 0.02, 100)

    checks = check_convergence({"Student t": draws, "normal": AGREE})
    found = verdict(of(difference), [of(value) for value in by_chain], checks)
    assert words in found
    assert "not converged" not in found or words == "not converged"
