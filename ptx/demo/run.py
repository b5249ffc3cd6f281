"""The demo, stage by stage: fit, score, plot, keep; it says what it does and ends with the files it wrote."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ptx.demo import plots, tasks
from ptx.demo.fit import Place, Starts, fit
from ptx.demo.picture import summary
from ptx.demo.prior_swap import swap_prior
from ptx.demo.tasks import FULL, QUICK, Size, Task
from ptx.diagnostics.arviz import to_datatree
from ptx.diagnostics.report import Report, report
from ptx.inference import SVI
from ptx.lowering import lower
from ptx.posterior import Posterior
from ptx.predictive import Predictive, predict
from ptx.start import as_key


def demo(
    out: str | Path = "runs/demo", *, seed: int = 0, quick: bool = False, size: Size | None = None
) -> dict[str, Report]:
    """Fit two small transformers on real data by four engines each, and write what came out.

    A vision transformer on digits and (unless `quick`) a part-of-speech tagger, each model defined once and fitted by
    MAP, mean-field SVI, cyclical SGLD and NUTS on the same rows; a scoreboard, plots, an ArviZ tree for each fit,
    and one other prior, compared by the log predictive density of the test rows.

    Every fit is stored as it goes, in a folder `stores` that has a part for each seed and size. Started again with
    the same ones, the demo goes on where it was stopped, and takes fits that are finished as they are.

    Args:
        out: folder for the files; made if need be, files of the same names are replaced, stored fits are not.
        seed: decides the split, the subsets and every random number; two runs give the same scores.
        quick: the digits alone, with shorter runs.
        size: rows and lengths of runs, other than those of `quick`.

    Returns:
        The report of each task, by name.

    Raises:
        KeyboardInterrupt: Ctrl-C or SIGTERM, after the present fit was saved.
        ValueError: a stored fit is damaged, or was made by a demo of other models or engines.
    """
    from rich.console import Console

    rng_key, console, out = as_key(seed), Console(), Path(out)
    size = size or (QUICK if quick else FULL)
    makers = [tasks.digits] if quick else [tasks.digits, tasks.tagger]
    reports = {}
    for index, make in enumerate(makers):
        task = make(seed, size)
        folder = out / task.name
        folder.mkdir(parents=True, exist_ok=True)
        place = Place(console, folder, seed, size)
        reports[task.name] = _task(jax.random.fold_in(rng_key, index), place, task)
    _list_files(console, out)
    return reports


def _task(rng_key: jax.Array, place: Place, task: Task) -> Report:
    """One model, four engines, and for the digits the other prior."""
    console, folder = place.console, place.folder
    _describe(console, task)
    posteriors: dict[str, Posterior] = {}
    engines = tasks.engines(task, place.size)
    # Every engine starts from the same places, and so does the other prior: what differs is what is compared.
    begun = _starts(jax.random.fold_in(rng_key, 300), task)
    for index, (name, engine) in enumerate(engines.items()):
        init = posteriors["MAP"] if isinstance(engine, SVI) else begun
        posteriors[name] = fit(jax.random.fold_in(rng_key, index), place, name, task, engine, init)
    console.print(
        "\n[bold]Predicting[/] the test part at every draw; probabilities are averaged, never logits."
    )
    keys = {name: jax.random.fold_in(rng_key, 100 + index) for index, name in enumerate(engines)}
    predictions = {
        name: predict(keys[name], posterior, task.test.inputs, sites=("targets",))
        for name, posterior in posteriors.items()
    }
    table = report(rng_key, posteriors, task.test, predictions=predictions)
    console.print(table, "")
    table.to_json(folder / "scoreboard.json")
    table.to_csv(folder / "scoreboard.csv")
    if task.name == "digits":
        swap_prior(jax.random.fold_in(rng_key, 200), place, task, posteriors["NUTS"], begun)
    console.print("[bold]Keeping[/] an ArviZ tree of each fit, and plots.")
    trees = _keep_trees(posteriors, predictions, folder)
    plots.keep(task, predictions, trees["NUTS"], folder)
    if task.name == "digits":
        probabilities = {name: each.probabilities["targets"] for name, each in predictions.items()}
        plots.save(summary(task, probabilities, table), folder.parent / "summary.png")
    return table


def _starts(rng_key: jax.Array, task: Task) -> Starts:
    """A start for each chain: network weights are drawn from the prior."""
    target = lower(task.model, task.train)
    positions = [
        target.initial_position(jax.random.fold_in(rng_key, chain)) for chain in range(tasks.NUM_CHAINS)
    ]
    return jax.tree.map(lambda *values: np.stack(values), *positions)


def _describe(console: Any, task: Task) -> None:
    network = task.model.network
    count = sum(size for size in map(_size, network.weights.values()))
    console.rule(f"[bold]{task.title}")
    console.print(
        f"{task.train.num_rows} {task.unit} to learn from, {task.test.num_rows} to be tested on, {len(task.classes)} "
        f"classes; {count:,} weights at {len(network.weights)} sites. The model, defined once for all engines:"
    )
    console.print(f"  network     {network!r}\n  prior       {task.model.prior!r}", highlight=False)
    console.print(f"  likelihood  {task.model.likelihood!r}\n", highlight=False)
    console.print(f"Chains start at draws from the prior, the same {tasks.NUM_CHAINS} for every engine.")


def _size(weight: Any) -> int:
    size = 1
    for length in weight.shape:
        size *= length
    return size


def _keep_trees(
    posteriors: dict[str, Posterior], predictions: dict[str, Predictive], folder: Path
) -> dict[str, Any]:
    trees = {}
    for name, posterior in posteriors.items():
        simulated = replace(
            predictions[name], probabilities={}
        )  # of every draw, row and class: too much to keep
        trees[name] = to_datatree(posterior, predictive=simulated)
        trees[name].to_netcdf(folder / f"{name.lower().replace(' ', '_')}.nc", engine="h5netcdf")
    return trees


def _list_files(console: Any, out: Path) -> None:
    from rich.markup import escape

    console.rule("[bold]files written")
    console.print(f"under {escape(str(out))}:", highlight=False, soft_wrap=True)
    for path in sorted(
        path for path in out.rglob("*") if path.is_file() and "stores" not in path.relative_to(out).parts
    ):
        size = f"{path.stat().st_size / 1024:,.0f} kB"
        console.print(f"  {path.relative_to(out)}  [dim]{size}[/]", highlight=False)
    console.print(f"and the fits themselves; to list them: ptx runs {escape(str(out))}", soft_wrap=True)
