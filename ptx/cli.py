"""The command line, `ptx`; what a command needs is imported when it runs."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def main(args: list[str] | None = None) -> None:
    """Run the command that `args`, by default those of the process, name.

    Exit codes: 0; 1 where `ptx verify` finds damage; 2 for wrong arguments, a run that is not there or cannot be used;
    130 for a run that was stopped.
    """
    import tyro

    app = tyro.extras.SubcommandApp()
    for command in (demo, runs, show, verify, resume, version):
        app.command(command, name=command.__name__)  # pyright: ignore[reportCallIssue, reportArgumentType]
    config = (tyro.conf.PositionalRequiredArgs,)
    with _errors_as_text():
        app.cli(args=args, prog="ptx", description=DESCRIPTION, config=config)


DESCRIPTION = """Probabilistic programming for Bayesian transformers: one model, any inference engine.

`ptx demo --quick` shows what it does in one to two minutes; `ptx runs DIR` lists what is stored. Models of your own
are written in Python, see `help(ptx)`."""


def demo(out: Path = Path("runs/demo"), seed: int = 0, quick: bool = False) -> None:
    """Fit two small transformers on real data by four inference engines, and compare them.

    A vision transformer on 300 handwritten digits and a part-of-speech tagger on 200 sentences, each defined once and
    fitted by MAP, mean-field SVI, cyclical SGLD and NUTS. Prints a scoreboard (accuracy, calibration, convergence,
    cost), compares two priors on held-out digits, and writes scores, plots (summary.png first) and an ArviZ tree of
    each fit. Takes a few minutes on two cores, compiling included.

    Fits are stored as they go (below OUT/TASK/stores). Stopped by Ctrl-C or killed, the same command goes on where it
    was; fits that are finished are taken as they are. Other seeds and lengths are stored beside them.

    Args:
        out: Folder for the results; results of an earlier demo are replaced, its stored fits are kept.
        seed: Decides every subset and random number, so two runs give the same scores.
        quick: The digits alone, with shorter runs: one to two minutes.
    """
    _leave_cores_to_chains()
    from ptx.demo import demo as run

    run(out, seed=seed, quick=quick)


def runs(directory: Path) -> None:
    """List the stored runs in a directory and below it.

    A line for each: state, steps, draws of each chain, the time that the rest will take at the speed so far, how many
    findings there are, engine and path. The states: running (a process has it now), killed (it ended without a word;
    nothing saved is lost), interrupted (Ctrl-C or SIGTERM), stopped (it could not go on, see its findings), finished,
    damaged. Those killed, interrupted or stopped go on with `ptx.resume`, or `ptx resume` if a demo made them. Nothing
    is changed.

    Args:
        directory: Where to look, such as runs.
    """
    from ptx.runs import table

    print(table(directory))


def show(run: Path) -> None:
    """Describe a stored run: engine, model, sites, data, key, versions, how far it is, findings, last events.

    Args:
        run: The run's directory, which was given to `ptx.infer` as `store`.
    """
    from ptx.runs import description

    print(description(run))


def verify(run: Path) -> None:
    """Read every file of a stored run and name each that is damaged or missing; exit code 1 if any is.

    Compared with their checksums are both manifests, both checkpoints, every file of draws, statistics and history and
    the data; the metadata of zarr are compared with the manifest. The run may go on meanwhile. Where a checkpoint is
    damaged, the run goes on from the one before; damaged draws are refused, and their file is named.

    Args:
        run: The run's directory, which was given to `ptx.infer` as `store`.
    """
    from ptx.store.verify import damage

    found = damage(run)
    for problem in found:
        print(problem)
    if found:
        sys.exit(1)
    print(f"{run}: every file is as it was written")


def resume(run: Path) -> None:
    """Go on with an unfinished run of `ptx demo` to its end, as if it had never stopped.

    For other runs the model is not known here: use ptx.resume(path, model) in Python. The same `ptx demo` command goes
    on too, and writes the results.

    Args:
        run: The run's directory, which `ptx runs` lists.
    """
    _leave_cores_to_chains()
    from ptx.demo.stored import go_on

    posterior = go_on(run)
    state = "interrupted" if posterior.attributes["interrupted"] else "finished"
    print(f"{run}: {state}, {posterior.num_chains} x {posterior.num_draws} draws (chains x draws)")
    for finding in posterior.findings:
        print(f"finding: {finding}")
    if state == "interrupted":
        raise KeyboardInterrupt


def version() -> None:
    """Print the versions of ptx and of the packages it computes with."""
    from ptx.version import versions

    for name, number in versions().items():
        print(f"{name.removesuffix('_version')} {number}")


def _leave_cores_to_chains() -> None:
    """Chains take the cores. With operations as small as the demo's, XLA's own threads make a gradient several times
    slower. The flag counts because nothing has been computed yet; whatever the user set comes after it and wins."""
    os.environ["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen=false {os.environ.get('XLA_FLAGS', '')}".strip()


@contextmanager
def _errors_as_text() -> Iterator[None]:
    """What a user can do something about is a message, not a traceback."""
    try:
        yield
    except (OSError, ValueError) as error:
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        print(f"ptx: {text}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("ptx: stopped; the same command goes on from there", file=sys.stderr)
        sys.exit(130)
