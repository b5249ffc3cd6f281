"""Posteriors as ArviZ sees them: an `xarray.DataTree` with named dimensions."""

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from ptx.amortised import plain
from ptx.dims import (
    Dims,
    as_host,
    exported_names,
    row_dim,
    site_dims,
    stacked_layers,
    target_dims,
    usable_dims,
)
from ptx.inference.prior import Prior
from ptx.posterior import Posterior
from ptx.prediction_inputs import check_draws
from ptx.predictive import Predictive
from ptx.predictive import log_likelihood as pointwise
from ptx.sites import observed_sites, observed_values
from ptx.store.arrays import Stored
from ptx.target import Target
from ptx.version import __version__

if TYPE_CHECKING:
    import xarray

SAMPLE_DIMS = ("chain", "draw")


class Group(NamedTuple):
    """Values by site with the names of their axes, whether they are draws, and what is known about them."""

    values: dict[str, np.ndarray]
    dims: dict[str, Dims]
    is_sampled: bool = True
    attributes: dict[str, Any] = {}  # noqa: RUF012  (a tuple's default, never changed)


def to_datatree(
    posterior: Posterior,
    *,
    predictive: Predictive | None = None,
    log_likelihood: bool | dict[str, np.ndarray] | None = None,
    prior: Posterior | None = None,
    prior_predictive: Predictive | None = None,
    coords: dict[str, Any] | None = None,
) -> "xarray.DataTree":
    """The posterior as an `xarray.DataTree` that ArviZ's functions take.

    Groups: `posterior` (values on their supports), `sample_stats`, `log_likelihood` (nats, one term a row: for
    sequences the sum over tokens, so that LOO counts sequences), `observed_data`, `constant_data` (the inputs); with
    `predictive` also `posterior_predictive` (simulated targets) and `posterior_outputs` (deterministic sites, and class
    probabilities as `<site>.probabilities`). Predictions from other inputs than the training's go to `predictions`,
    `predictions_outputs` and `predictions_constant_data`. Draws of the engine `Prior` go to `prior`,
    `sample_stats_prior`, `prior_predictive` and `prior_outputs` instead.

    Args:
        posterior: of any engine.
        predictive: from `predict(rng_key, posterior, inputs)`.
        log_likelihood: True computes it, and raises where it does not factor over rows; None (the default) computes it
            where it does; a dict, as `ptx.log_likelihood` returns it, is taken as it is; False leaves it out.
        prior: draws of the engine `Prior` for the same model, put beside the posterior.
        prior_predictive: from `predict(rng_key, prior, inputs)`.
        coords: labels along a dimension, by its name; 0, 1, ... elsewhere.

    Dimensions are `chain`, `draw` and then, by name, those of the network's weights (`target.dims`), of plates, `row`
    (or the plate's name) for what follows the rows, and `<site>_dim_<axis>` for the rest. "/" in a name becomes ".",
    and sites named `chain`, `draw` or `sample` get a trailing "_": xarray would take them for dimensions. The
    attributes are those of the run (JSON text where netCDF knows no such type), its findings included.

    Raises:
        ValueError: draws whose shape is not (chain, draw, ...); names that collide after renaming; `prior` of another
            engine or model; `coords` of another length or for no dimension.
    """
    check_draws(posterior)
    target, of_prior = posterior.target, isinstance(posterior.engine, Prior)
    groups = _run_groups(posterior, predictive, "prior" if of_prior else "posterior")
    if prior is not None or prior_predictive is not None:
        groups |= _run_groups(_checked_prior(posterior, prior), prior_predictive, "prior")
    densities = _densities(posterior, False if of_prior and log_likelihood is None else log_likelihood)
    if densities:
        groups["log_likelihood"] = Group(densities, site_dims(target))
    groups["observed_data"] = Group(observed_values(target), site_dims(target), is_sampled=False)
    groups["constant_data"] = _inputs_group(target, target.data.inputs)
    return _tree(groups, coords or {}, _run_attributes(posterior))


def _run_groups(posterior: Posterior, predictive: Predictive | None, of: str) -> dict[str, Group]:
    """Draws, statistics and predictions of one run."""
    attributes = _run_attributes(posterior)
    values = stacked_layers(posterior.target, posterior.constrained())
    groups = {of: Group(values, site_dims(posterior.target), attributes=attributes)}
    statistics = "sample_stats" if of == "posterior" else "sample_stats_prior"
    groups[statistics] = Group(posterior.statistics, {}, attributes=attributes)
    if predictive is None:
        return groups
    _require_same_draws(posterior, predictive)
    return groups | _predictive_groups(posterior.target, predictive, of)


def _require_same_draws(posterior: Posterior, predictive: Predictive) -> None:
    """Refuse predictions that are not of this posterior's draws, as far as their axes tell."""
    if not isinstance(predictive, Predictive):
        raise TypeError(f"predictive: expected what ptx.predict returns, got {type(predictive).__name__}")
    lead = (posterior.num_chains, posterior.num_draws)
    for kind in (predictive.deterministic, predictive.probabilities, predictive.targets):
        for site, array in kind.items():
            if array.shape[:2] != lead:
                raise ValueError(
                    f"predictive: '{site}' has {array.shape[:2]} (chains, draws) and the posterior {lead}; "
                    "predict from the same posterior, with row_draws=1 or 'mean'"
                )


def _predictive_groups(target: Target, predictive: Predictive, of: str) -> dict[str, Group]:
    """Simulated targets, and all else that was predicted; with the inputs where they are not those of the training."""
    groups = {}
    name, outputs = f"{of}_predictive", f"{of}_outputs"
    if not _same(predictive.inputs, target.data.inputs):
        name = "predictions" if of == "posterior" else "prior_predictions"
        outputs = f"{name}_outputs"
        groups[f"{name}_constant_data"] = _inputs_group(target, predictive.inputs)

    def dims(site: str, ndim: int) -> Dims:
        known = site_dims(target).get(site) or target_dims(target, site, ndim)
        if len(known) == ndim:
            return known
        return (row_dim(target), *[None] * (ndim - 1)) if site in predictive.row_sites else (None,) * ndim

    def group(arrays: dict[str, np.ndarray], suffix: str = "", extra: tuple[str, ...] = ()) -> Group:
        lead = len(SAMPLE_DIMS) + len(extra)
        named = {site + suffix: (*dims(site, array.ndim - lead), *extra) for site, array in arrays.items()}
        return Group({site + suffix: array for site, array in arrays.items()}, named)

    # Plots of predictive checks want the observed sites and nothing else in their group.
    observed = {site.name for site in observed_sites(target)}
    targets = {site: array for site, array in predictive.targets.items() if site in observed}
    others = {site: array for site, array in predictive.targets.items() if site not in observed}
    rest = group({**predictive.deterministic, **others})
    probabilities = group(predictive.probabilities, ".probabilities", ("class",))
    everything = Group({**rest.values, **probabilities.values}, {**rest.dims, **probabilities.dims})
    return groups | {name: group(targets), outputs: everything}


def _checked_prior(posterior: Posterior, prior: Posterior | None) -> Posterior:
    if prior is None:
        raise ValueError("prior_predictive: pass the draws that it was predicted from too, as `prior`")
    if isinstance(posterior.engine, Prior) or not isinstance(prior.engine, Prior):
        raise ValueError(
            f"prior: expected draws of the engine Prior beside a posterior, got {type(prior.engine).__name__} beside "
            f"{type(posterior.engine).__name__}"
        )
    if plain(prior.target.model) != plain(posterior.target.model):
        raise ValueError(
            f"prior: drawn for another model, {prior.target.model!r}, than {posterior.target.model!r}"
        )
    check_draws(prior)
    return prior


def _densities(
    posterior: Posterior, log_likelihood: bool | dict[str, np.ndarray] | None
) -> dict[str, np.ndarray]:
    if log_likelihood is not None and not isinstance(log_likelihood, (bool, dict)):
        kind = type(log_likelihood).__name__
        raise TypeError(
            f"log_likelihood: expected True, False, None or what ptx.log_likelihood returns; got {kind}"
        )
    if isinstance(log_likelihood, dict):
        unknown = sorted(set(log_likelihood) - {term.name for term in posterior.target.terms})
        if unknown:
            raise ValueError(f"log_likelihood: {unknown} are no observed sites of the model")
        lead = (posterior.num_chains, posterior.num_draws, posterior.target.num_rows)
        for name, array in log_likelihood.items():
            if np.shape(array)[:3] != lead:
                raise ValueError(
                    f"log_likelihood: '{name}' has shape {np.shape(array)}; expected (chain, draw, row, ...), {lead}"
                )
        return log_likelihood
    wanted = posterior.target.factorizes if log_likelihood is None else log_likelihood
    return pointwise(posterior) if wanted else {}


def _inputs_group(target: Target, inputs: Any) -> Group:
    """The leaves of the inputs, named by their path."""
    leaves = jax.tree_util.tree_flatten_with_path(inputs)[0]
    names = [
        ".".join(["inputs", *(jax.tree_util.keystr((key,), simple=True) for key in path)])
        for path, _ in leaves
    ]
    values = {name: np.asarray(leaf) for name, (_, leaf) in zip(names, leaves, strict=True)}
    return Group(values, dict.fromkeys(values, (row_dim(target),)), is_sampled=False)


def _same(inputs: Any, others: Any) -> bool:
    pairs = zip(jax.tree.leaves(inputs), jax.tree.leaves(others), strict=True)
    return all(np.array_equal(np.asarray(a, b.dtype), b) for a, b in pairs)


def _run_attributes(posterior: Posterior) -> dict[str, Any]:
    return {**posterior.attributes, "findings": list(posterior.findings)}


def _tree(groups: dict[str, Group], coords: dict[str, Any], attributes: dict[str, Any]) -> "xarray.DataTree":
    import xarray

    datasets = {name: _dataset(group, coords) for name, group in groups.items() if group.values}
    unknown = set(coords) - {str(dim) for dataset in datasets.values() for dim in dataset.dims}
    if unknown:
        raise ValueError(f"coords: no dimension is called {sorted(unknown)}")
    tree = xarray.DataTree.from_dict(datasets)
    tree.attrs = _attributes(attributes)
    return tree


def _dataset(group: Group, coords: dict[str, Any]) -> "xarray.Dataset":
    from arviz_base import dict_to_dataset

    if any(isinstance(array, Stored) for array in group.values.values()):
        return _stored_dataset(group, coords)
    exported = exported_names(group.values)
    sample_dims = SAMPLE_DIMS if group.is_sampled else ()
    values = {exported[name]: as_host(array) for name, array in group.values.items()}
    named = {exported[name]: dims for name, dims in group.dims.items() if name in exported}
    dims: dict[Any, Any] = usable_dims(values, named, len(sample_dims))
    _check_coords(values, dims, coords, len(sample_dims))
    # An ensemble has more chains than draws, which ArviZ would warn of; shapes are checked already.
    dataset = dict_to_dataset(
        values, dims=dims, coords=coords, sample_dims=list(sample_dims), check_conventions=False
    )
    attributes = dict(group.attributes)
    if exported.keys() != set(exported.values()):
        attributes["renamed"] = {old: new for old, new in exported.items() if old != new}
    dataset.attrs |= _attributes(attributes)
    dataset.attrs.pop("sample_dims", None)  # netCDF refuses the empty list
    if group.is_sampled:
        dataset.attrs["sample_dims"] = list(sample_dims)
    return dataset


def _stored_dataset(group: Group, coords: dict[str, Any]) -> "xarray.Dataset":
    """The group as the stored run has it: compared with its checksums here, loaded where it is used."""
    import xarray

    exported = exported_names(group.values)
    arrays: dict[str, Any] = dict(group.values)
    for array in arrays.values():
        array.check()
    one = next(iter(arrays.values()))
    dataset = xarray.open_dataset(one.root, group=one.spec.group, engine="zarr", consolidated=True)
    dataset = dataset[[array.spec.variable for array in arrays.values()]].isel(draw=slice(0, one.count))
    dataset = dataset.rename({a.spec.variable: exported[name] for name, a in arrays.items()}).drop_encoding()
    values = {exported[name]: array for name, array in arrays.items()}
    _check_coords(values, {exported[n]: list(a.spec.dims[2:]) for n, a in arrays.items()}, coords, 2)
    # As ArviZ does for arrays in memory, every axis has labels.
    numbered = {dim: np.arange(size) for dim, size in dataset.sizes.items() if dim not in dataset.coords}
    dataset = dataset.assign_coords(numbered)
    dataset = dataset.assign_coords({dim: labels for dim, labels in coords.items() if dim in dataset.dims})
    dataset.attrs = _attributes(dict(group.attributes)) | {"sample_dims": list(SAMPLE_DIMS)}
    return dataset


def _check_coords(
    values: dict[str, Any], dims: dict[str, list[str]], coords: dict[str, Any], lead: int
) -> None:
    for name, array in values.items():
        for dim, length in zip(dims[name], array.shape[lead:], strict=True):
            if dim in coords and len(coords[dim]) != length:
                raise ValueError(
                    f"coords: '{dim}' has {len(coords[dim])} labels, and that axis of '{name}' has length {length}"
                )


def _attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes as netCDF takes them, and who made the tree."""
    plain = {
        name: value.item() if isinstance(value, np.generic) else value for name, value in attributes.items()
    }
    kept = {
        name: value
        if isinstance(value, (str, int, float)) and not isinstance(value, bool)
        else json.dumps(value, default=str)
        for name, value in plain.items()
    }
    return {**kept, "inference_library": "ptx", "inference_library_version": __version__}
