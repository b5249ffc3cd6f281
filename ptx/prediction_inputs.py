"""What predictions accept, checked at the door: a posterior's draws, inputs and data like those of the training."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ptx.data import Data, as_data
from ptx.lowering import lower
from ptx.posterior import Posterior
from ptx.target import Target


def flat_draws(posterior: Posterior) -> dict[str, Any]:
    """Chain, draw and position of every draw, one after the other.

    Raises:
        ValueError: draws missing, or not of shape (chain, draw, *unconstrained shape of the site).
    """
    check_draws(posterior)
    chains, draws = posterior.num_chains, posterior.num_draws
    chain, draw = np.divmod(np.arange(chains * draws), draws)
    position = {name: Flat(values) for name, values in posterior.draws.items()}
    return {"chain": chain, "draw": draw, "position": position}


class Flat:
    """An array of axes (chain, draw, ...) seen as (chain * draw, ...); an array on disk is read where it is indexed."""

    def __init__(self, values: Any) -> None:
        self.values = values
        self.shape = (values.shape[0] * values.shape[1], *values.shape[2:])
        self.dtype = values.dtype

    def __getitem__(self, entries: Any) -> np.ndarray:
        return self.values[np.divmod(np.arange(self.shape[0])[entries], self.values.shape[1])]


class Repeated:
    """An array of axes (draw, ...), each entry `times` times in succession."""

    def __init__(self, values: Flat, times: int) -> None:
        self.values, self.times = values, times
        self.shape = (values.shape[0] * times, *values.shape[1:])
        self.dtype = values.dtype

    def __getitem__(self, entries: Any) -> np.ndarray:
        return self.values[np.arange(self.shape[0])[entries] // self.times]


def repeated(
    draws: dict[str, Any], target: Target, num_draws: int, row_draws: Any
) -> tuple[dict[str, Any], int]:
    """Each draw `row_draws` times ("mean": once), numbered on; and how many a chain has then.

    Raises:
        TypeError, ValueError: no positive integer and not "mean"; a target whose rows have no posterior of their own.
    """
    if row_draws != "mean" and (not isinstance(row_draws, (int, np.integer)) or isinstance(row_draws, bool)):
        raise TypeError(f"row_draws: expected a positive integer or 'mean', got {row_draws!r}")
    if row_draws == 1:
        return draws, num_draws
    if not target.is_amortised:
        raise ValueError(
            f"row_draws={row_draws!r}: this posterior has no latents that carry their own posterior (attention rows "
            "fitted by MAP or SVI); leave it out"
        )
    if row_draws == "mean":
        return draws, num_draws
    if row_draws < 1:
        raise ValueError(f"row_draws: expected a positive integer or 'mean', got {row_draws!r}")
    times = int(row_draws)
    number = np.repeat(draws["draw"], times) * times + np.tile(np.arange(times), len(draws["draw"]))
    position = {name: Repeated(values, times) for name, values in draws["position"].items()}
    return {
        "chain": np.repeat(draws["chain"], times),
        "draw": number,
        "position": position,
    }, num_draws * times


def check_draws(posterior: Posterior) -> None:
    """Raise unless the posterior holds (chain, draw, *unconstrained shape) for every site of its target."""
    if not isinstance(posterior, Posterior):
        raise TypeError(f"posterior: expected what ptx.infer returns, got {type(posterior).__name__}")
    if posterior.target is None:
        raise ValueError(
            "posterior: a stored run that was opened without its model; use ptx.open_run(path, model); "
            "predictions, log likelihoods and ArviZ trees need it"
        )
    names = {site.name for site in posterior.target.sites}
    if set(posterior.draws) != names or posterior.num_draws == 0:
        raise ValueError(
            f"posterior: {posterior.num_draws} draws a chain of {sorted(posterior.draws) or 'no site'}, and the model "
            f"has the latent sites {sorted(names)}; run ptx.infer, or ptx.resume, until there is one"
        )
    lead = (posterior.num_chains, posterior.num_draws)
    for site in posterior.target.sites:
        expected, found = (*lead, *site.unconstrained_shape), np.shape(posterior.draws[site.name])
        if found != expected:
            raise ValueError(
                f"posterior: the draws of site '{site.name}' have shape {found}; expected {expected}: (chain, draw, "
                "*unconstrained shape)"
            )


def checked_inputs(target: Target, inputs: Any) -> tuple[Any, int]:
    """Inputs on the host, and how many rows they have.

    Raises:
        ValueError, TypeError: not finite, no rows, another structure, shape or kind of number than in training, or
            refused by the model's own check.
    """
    if isinstance(inputs, (Data, Posterior)):
        raise TypeError(
            f"inputs: expected the inputs alone, such as data.inputs; got {type(inputs).__name__}"
        )
    trained, structure = jax.tree.flatten(target.data.inputs)
    found = jax.tree.structure(inputs)
    if found != structure:
        raise ValueError(f"inputs: expected the structure of the training inputs, {structure}; got {found}")
    if not trained:
        return inputs, target.num_rows
    data = Data(inputs)
    leaves = jax.tree_util.tree_flatten_with_path(data.inputs)[0]
    names = ["inputs" + jax.tree_util.keystr(path) for path, _ in leaves]
    alike = [_alike(name, leaf, t) for name, (_, leaf), t in zip(names, leaves, trained, strict=True)]
    inputs = jax.tree.unflatten(structure, alike)
    if hasattr(target.model, "check"):
        target.model.check(inputs)
    return inputs, data.num_rows


def _alike(name: str, leaf: np.ndarray, trained: Any) -> np.ndarray:
    """The leaf, if it has the trailing shape and the kind of number of the training data's."""
    if leaf.shape[1:] != trained.shape[1:]:
        raise ValueError(
            f"{name}: got shape {leaf.shape}, and the model was trained on shape {trained.shape}; all axes but the "
            "first, the rows, must agree"
        )
    got, expected = (_kind(values.dtype) for values in (leaf, trained))
    if got == "integer" and expected == "real":
        return leaf.astype(trained.dtype)
    if got != expected:
        raise TypeError(
            f"{name}: got {leaf.dtype} values, and the model was trained on {trained.dtype}; cast them"
        )
    return leaf


def _kind(dtype: Any) -> str:
    if jnp.issubdtype(dtype, jnp.bool_):
        return "bool"
    return "integer" if jnp.issubdtype(dtype, jnp.integer) else "real"


def checked_data(target: Target, data: Any) -> Target:
    """The posterior's target, on other data where some are given.

    Raises:
        ValueError, TypeError: as `checked_inputs` and `lower`; a latent that belongs to the training rows.
    """
    if data is None:
        return target
    data = as_data(data)
    inputs, _ = checked_inputs(target, data.inputs)
    other = lower(target.model, Data(inputs, data.targets))
    for site, trained in zip(other.sites, target.sites, strict=True):
        if site.row_axis is not None or site.unconstrained_shape != trained.unconstrained_shape:
            raise ValueError(
                f"site '{site.name}': a latent that belongs to the rows of the training data; leave out `data`"
            )
    return other


def require_term_a_row(target: Target) -> None:
    """Raise ValueError, naming the site, where a log density does not factor over the rows."""
    for term in target.terms:
        if term.row_axis is None and term.is_observed:
            raise ValueError(
                f"site '{term.name}': its log density does not factor over the rows of the data, so no row has "
                "its own; write the site inside a plate over the leading axis, or score simulated targets instead"
            )


def warn_nonfinite(what: str, values: dict[Any, np.ndarray]) -> None:
    """Warn, by site, of values that are NaN or infinite."""
    for name, array in values.items():
        bad = ~np.isfinite(array)
        if bad.any():
            at = tuple(int(i) for i in np.argwhere(bad)[0])
            site = name if isinstance(name, str) else name[-1]
            warnings.warn(
                f"{what}: site '{site}' has {int(bad.sum())} of {bad.size} values that are not finite, the first "
                f"({array[at]}) at draw {at[0]}" + (f", row {at[1]}" if len(at) > 1 else ""),
                RuntimeWarning,
                stacklevel=3,
            )
