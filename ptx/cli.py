"""The command line, `ptx`."""

from pathlib import Path
from typing import Annotated


def main(args: list[str] | None = None) -> None:
    """Run the command that `args` (by default those of the process) name."""
    import tyro

    app = tyro.extras.SubcommandApp()
    app.command(name="demo")(demo)
    app.command(name="version")(version)
    app.cli(args=args, prog="ptx", description="Probabilistic programming for Bayesian transformers.")


def demo(out: Path = Path("runs/demo"), seed: int = 0, quick: bool = False) -> None:
    """Fit small transformers on real data by several engines, and write what came out."""
    from ptx.demo import demo as run

    run(out, seed=seed, quick=quick)


def version() -> None:
    """Print the versions of ptx and of what it runs on."""
    from ptx.version import versions

    for name, number in versions().items():
        print(f"{name.removesuffix('_version')} {number}")
