"""`open_run`: a stored run as a Posterior whose arrays stay on disk."""

from pathlib import Path
from typing import Any

from ptx.lowering import lower
from ptx.posterior import Posterior
from ptx.store import begin, data_file, fingerprint, layout, manifest, read


def open_run(path: str | Path, model: Any = None, data: Any = None) -> Posterior:
    """A stored run, finished or not, as a Posterior whose arrays stay on disk.

    Args:
        path: the directory given to `ptx.infer` as `store`; nothing in it is changed, and the run may be going on.
        model: the model of the run. Without it there are draws, parameters and statistics only, and `predict` and
            `log_likelihood` refuse.
        data: the data of the run; by default those that the run stored.

    A run that goes on, or was killed, shows what its last save holds. Files are compared with their checksums when they
    are read.

    Raises:
        FileNotFoundError: no run there. ValueError: damaged, of a newer format, or of another model or data, each
            difference named.
    """
    directory = Path(path)
    content, _, _, notes = read.load(directory, with_state=False)
    engine = manifest.engine_of(content)
    target = None
    if model is not None:
        rows = data_file.read(directory, content["data"]) if data is None else data
        target = lower(model, rows, amortised=not engine.is_sampler)
        parts = {"model": fingerprint.of_model(target), "data": fingerprint.of_data(target.data)}
        begin.require_same(directory, content, parts)
    of_draws, unconstrained, statistics = layout.groups(engine)
    parameters, draws = read.draws_of(directory, content, (of_draws, unconstrained), target)
    known = (content.get("attributes") or {}) if content["state"] != "running" else {}
    attributes = {
        "engine": repr(engine),
        "seed": content["rng_key"]["words"],
        "num_steps": content["steps"],
        "interrupted": content["state"] != "finished",
        "seconds": content["seconds"],
        "compile_seconds": content["compile_seconds"],
        **(content.get("versions") or {}),
        **known,
        "store": str(directory),
    }
    findings = tuple(content.get("findings") or ()) if known else ()
    if content["state"] == "running":
        findings += (
            f"{type(engine).__name__}: not finished: {content['steps']} of {engine.num_steps} steps were saved; "
            "ptx.resume goes on",
        )
    return Posterior(
        target,
        engine,
        draws,
        read.arrays_of(directory, content, statistics),
        read.arrays_of(directory, content, layout.HISTORY),
        attributes,
        (*(f"stored run: {note}" for note in notes), *findings),
        parameters,
    )
