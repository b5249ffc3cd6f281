"""One fit of the demo: stored as it goes, and gone on with where it is there already."""

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ptx.demo import stored
from ptx.demo.tasks import Size, Task
from ptx.infer import infer
from ptx.inference import SVI
from ptx.posterior import Posterior
from ptx.store import read

Starts = dict[str, np.ndarray]  # site -> unconstrained values with a leading chain axis


class Place(NamedTuple):
    """Where results go, and what decides them."""

    console: Any
    folder: Path
    seed: int
    size: Size


def fit(
    key: jax.Array,
    place: Place,
    name: str,
    task: Task,
    engine: Any,
    init: Any,
    prior: str = stored.PRIORS[0],
) -> Posterior:
    """The fit by one engine, stored under its name; one that is there already goes on, or is taken as it is."""
    console, start = place.console, ", from the MAP point" if isinstance(engine, SVI) else ""
    console.print(f"[bold]{name}[/]{start}: {engine!r}", highlight=False)
    if not isinstance(init, Posterior):
        init = {site: values[: engine.num_chains] for site, values in init.items()}
    store = stored.folder_of(place.folder, place.seed, place.size, name)
    if read.exists(store):
        console.print("  found stored: it goes on from there")
    else:
        stored.record(store, task, place.seed, place.size, prior)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # findings: the report prints them
        try:
            posterior = infer(key, task.model, task.train, engine, init=init, store=store)
        except ValueError as error:
            raise ValueError(f"{error}; to begin anew, delete {store}, or give another folder") from error
    cost = posterior.attributes
    if cost["interrupted"] and not cost["stopped"]:
        raise KeyboardInterrupt
    running = cost["seconds"] - cost["compile_seconds"]
    console.print(
        f"  {cost['gradient_evaluations']:,} gradients in {running:.1f} s, after {cost['compile_seconds']:.1f} s of "
        "compiling"
    )
    return posterior
