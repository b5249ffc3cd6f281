"""The command line, `ptx`; what a command needs is imported when it runs."""

import os
from pathlib import Path


def main(args: list[str] | None = None) -> None:
    """Run the command that `args`, by default those of the process, name."""
    import tyro

    app = tyro.extras.SubcommandApp()
    app.command(demo, name="demo")  # pyright: ignore[reportCallIssue, reportArgumentType]
    app.command(version, name="version")  # pyright: ignore[reportCallIssue, reportArgumentType]
    app.cli(args=args, prog="ptx", description=DESCRIPTION)


DESCRIPTION = """Probabilistic programming for Bayesian transformers: one model, any inference engine.

`ptx demo --quick` shows what it does in a minute; models of your own are written in Python, see `help(ptx)`."""


def demo(out: Path = Path("runs/demo"), seed: int = 0, quick: bool = False) -> None:
    """Fit two small transformers on real data by four inference engines, and compare them.

    A vision transformer on 300 handwritten digits and a part-of-speech tagger on 200 sentences, each defined once and
    fitted by MAP, mean-field SVI, cyclical SGLD and NUTS. Prints a scoreboard (accuracy, calibration, convergence,
    cost), compares two priors on held-out digits, and writes scores, plots (summary.png first) and an ArviZ tree of
    each fit. Takes a few minutes on two cores, compiling included.

    Args:
        out: Folder for the results; files of an earlier run are replaced.
        seed: Decides every subset and random number, so two runs give the same scores.
        quick: The digits alone, with shorter runs: about a minute.
    """
    # Chains take the cores. With operations this small, XLA's own threads make a gradient several times slower. The
    # flag counts because nothing has been computed yet; whatever the user set comes after it and wins.
    os.environ["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen=false {os.environ.get('XLA_FLAGS', '')}".strip()
    from ptx.demo import demo as run

    run(out, seed=seed, quick=quick)


def version() -> None:
    """Print the versions of ptx and of the packages it computes with."""
    from ptx.version import versions

    for name, number in versions().items():
        print(f"{name.removesuffix('_version')} {number}")
