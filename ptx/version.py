"""The version of ptx, written here and nowhere else, and those of the packages a run depends on."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version

__version__ = "0.1.0"


@cache
def _installed() -> tuple[tuple[str, str], ...]:
    found = [("ptx_version", __version__)]
    for package in ("jax", "jaxlib", "numpyro", "blackjax", "optax", "numpy"):
        try:
            found.append((f"{package}_version", version(package)))
        except PackageNotFoundError:
            continue
    return tuple(found)


def versions() -> dict[str, str]:
    """Package versions, by `<package>_version`."""
    return dict(_installed())
