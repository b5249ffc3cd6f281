"""Imports that stay in one place. Import contracts see modules of ptx; these see names inside other packages."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PTX = Path(__file__).parents[1] / "ptx"

# What may be imported only in the files and folders named.
PLACES = {
    "numpyro.handlers": ("program.py", "models/"),
    "arviz": (),  # another API on Python 3.11 than on newer ones
    "arviz_base": ("diagnostics/", "store.py"),
    "arviz_stats": ("diagnostics/", "store.py"),
    "arviz_plots": ("diagnostics/",),
    "blackjax": ("inference/",),
    "ptx": ("cli.py",),
}


def imported_names(source: str) -> Iterator[str]:
    """Dotted names that a source imports; `from a import b` gives a.b."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_of(name: str, package: str) -> bool:
    """Whether importing `name` reaches into `package`. The root of ptx is reached by a name that is no module of it."""
    if package != "ptx":
        return name == package or name.startswith(package + ".")
    first = name.removeprefix("ptx").removeprefix(".").split(".")[0]
    inside = (PTX / f"{first}.py").exists() or (PTX / first / "__init__.py").exists()
    return (name == "ptx" or name.startswith("ptx.")) and not (first and inside)


@pytest.mark.parametrize("package", PLACES)
def test_imports_stay_in_their_place(package):
    allowed = ("__init__.py", *PLACES[package])
    files = [path for path in PTX.rglob("*.py") if not path.relative_to(PTX).as_posix().startswith(allowed)]
    assert len(files) > 5
    strays = [
        str(path) for path in files if any(is_of(name, package) for name in imported_names(path.read_text()))
    ]
    assert not strays, f"{package} is imported in {strays}; it belongs in {PLACES[package] or 'no file'}"


@pytest.mark.parametrize(
    ("line", "package", "found"),
    [
        ("from numpyro import handlers", "numpyro.handlers", True),
        ("import numpyro.handlers as h", "numpyro.handlers", True),
        ("from numpyro.handlers import seed", "numpyro.handlers", True),
        ("import numpyro.distributions as dist", "numpyro.handlers", False),
        ("import arviz_base", "arviz", False),
        ("def f():\n    import arviz", "arviz", True),
        ("import ptx", "ptx", True),
        ("from ptx import infer_all", "ptx", True),
        ("from ptx import target", "ptx", False),
        ("from ptx.target import Target", "ptx", False),
    ],
)
def test_strays_are_seen(line, package, found):
    assert any(is_of(name, package) for name in imported_names(line)) == found
