"""Lowering a NumPyro program on data: what may be lowered, and the one look at the observed values."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ptx import densities, program
from ptx.amortised import Amortised
from ptx.compiled import compiled
from ptx.current import current
from ptx.data import as_data
from ptx.structure import structure
from ptx.target import Target


def lower(model: Callable, data: Any, amortised: bool = False) -> Target:
    """Lower `model(inputs, targets=None)` on data.

    With `amortised`, sites that carry their own posterior, infer={"amortised": q}, are drawn from q at each evaluation
    and count -KL(q, prior) a row (see `ptx.amortised.Amortised`); without, they are latents like any other, and q and
    its parameters, infer={"amortised_only": True}, are ignored.

    Runs the program abstractly at two numbers of rows, which shows the axis of each site that follows the rows, and
    once on the data, which checks observed values against their distributions' supports.

    Raises:
        ValueError: a discrete latent, a subsampling plate, `numpyro.param`, mutable state or random numbers inside the
            program; observed values outside their support (site, row and value named); targets that broadcast against
            the outputs; a model without observed sites.
        TypeError: a model that is no callable or not hashable.
    """
    data = as_data(data)
    if not callable(model):
        raise TypeError(f"model: expected a callable model(inputs, targets=None), got {type(model).__name__}")
    if hasattr(model, "check"):
        model.check(data.inputs, data.targets)
    _hashable(model)
    model = current(model)
    device_data = jax.tree.map(jnp.asarray, data)
    sites, terms = structure(model, device_data)
    if amortised and any(site.amortised for site in sites):
        model = Amortised(model)
        sites, terms = structure(model, device_data)
    dims = tuple((name, tuple(names)) for name, names in getattr(model, "dims", {}).items())
    target = Target(device_data, model, sites, terms, dims)
    _check_support(target)
    return target


def _check_support(target: Target) -> None:
    """Compare every observed value with its distribution's support, once, on the data."""
    for name, (ok, value) in compiled(_observed, (), target, quickly=True)(target).items():
        if not np.all(ok):
            where = tuple(int(i) for i in np.argwhere(~np.asarray(ok))[0])
            raise ValueError(
                f"site '{name}': the observed value {np.asarray(value)[where]} at index {where} is outside the support "
                f"of its distribution ({int(np.sum(~np.asarray(ok)))} such values); check labels, ranges and dtype"
            )


def _observed(target: Target) -> dict[str, tuple[Array, Array]]:
    """Which observed values lie in their support, and the values."""
    start = program.from_start(jax.random.key(0))
    trace, _ = program.run(target.model, target.data.inputs, target.data.targets, start)
    sites = (trace[term.name] for term in target.terms if term.is_observed)
    return {site["name"]: (densities.in_support(site), site["value"]) for site in sites}


def _hashable(model: Callable) -> None:
    try:
        hash(model)
    except TypeError:
        raise TypeError(
            "model: not hashable, so compiled code could not be found again; write a function, or a frozen dataclass "
            "whose fields are hashable"
        ) from None
