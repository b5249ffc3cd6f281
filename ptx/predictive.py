"""What draws say of data: outputs, class probabilities, simulated targets, pointwise log densities."""

import warnings
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ptx.at_draw import log_densities, predicted_values, reproducible_values
from ptx.inference.prior import Prior
from ptx.posterior import Posterior
from ptx.prediction_inputs import (
    checked_data,
    checked_inputs,
    flat_draws,
    repeated,
    require_term_a_row,
    warn_nonfinite,
)
from ptx.sites import Predicted, fresh_sites, observed_sites, predicted_sites
from ptx.start import as_key
from ptx.structure import Site
from ptx.sweep import Limits, rows_agree, sweep
from ptx.target import Target

MAX_BYTES = 2**26  # on CPU larger chunks leave the cache and take twice the time
KINDS = ("deterministic", "probabilities", "targets")


@dataclass(frozen=True, eq=False)
class Predictive:
    """Predictions at every draw of a posterior, on the host; site -> array of shape (chain, draw, row, ...).

    Attributes:
        deterministic: values of deterministic sites, such as `outputs`. A site that does not follow the rows (a
            `sigma` computed from `log_sigma`) has no row axis: (chain, draw, ...).
        probabilities: class probabilities of each categorical or Bernoulli site, at each draw, classes on the last
            axis; for a Bernoulli site these are the probabilities of 0 and 1.
        targets: simulated values of every observed site, one independent draw for each (chain, draw, row).
        inputs: what was predicted from.
        num_rows: rows predicted.
        row_sites: sites that have a row axis.
    """

    deterministic: dict[str, np.ndarray]
    probabilities: dict[str, np.ndarray]
    targets: dict[str, np.ndarray]
    inputs: Any
    num_rows: int
    row_sites: frozenset[str]

    @property
    def outputs(self) -> np.ndarray:
        """The deterministic site `outputs`, which the models of ptx have. Raises ValueError where there is none."""
        if "outputs" not in self.deterministic:
            raise ValueError(
                f"no deterministic site 'outputs' was predicted; there are {sorted(self.deterministic)}"
            )
        return self.deterministic["outputs"]

    def mean_probabilities(self, site: str | None = None) -> Float[np.ndarray, "row *entry classes"]:
        """mean over chains and draws s of p(class | row, draw s), accumulated in float64.

        Probabilities are averaged, never logits: the mean of softmax((4, 0)) and softmax((-2, 0)) is 0.551, where the
        softmax of the mean logits is 0.731.

        Raises:
            ValueError: no such site, or several and none named.
        """
        if site is None and len(self.probabilities) == 1:
            (site,) = self.probabilities
        if site not in self.probabilities:
            raise ValueError(
                f"site: expected one with class probabilities, {sorted(self.probabilities)}; got {site!r}"
            )
        return self.probabilities[site].mean(axis=(0, 1), dtype=np.float64)


def predict(
    rng_key: Any,
    posterior: Posterior,
    inputs: Any,
    *,
    sites: Collection[str] | None = None,
    simulated: bool = True,
    row_draws: int | Literal["mean"] = 1,
    draw_chunk: int | None = None,
    row_chunk: int | None = None,
    max_bytes: int = MAX_BYTES,
) -> Predictive:
    """Run the model without targets at every draw of a posterior (of `Prior`: the prior predictive).

    Args:
        rng_key: a JAX key or an integer seed, for simulated targets and for attention rows that are drawn here.
        posterior: of any engine.
        inputs: shaped like the training inputs, but for the number of rows.
        sites: deterministic and observed sites to keep; all by default but `attention.probs`, the attention rows, which
            are many. What is left out is not computed.
        simulated: draw targets; without it `targets` is empty.
        row_draws: of a fit by MAP or SVI with latents that carry their own posterior (attention rows): how many draws
            of them each draw of the posterior gets, so that there are num_draws x row_draws draws a chain; "mean" puts
            them at their posterior mean. Probabilities of several draws are averaged, as those of any draws are.
        draw_chunk: draws evaluated at a time; by default what fits into `max_bytes`, by an upper bound from the
            program's own array sizes. It changes no number beyond rounding.
        row_chunk: rows evaluated at a time; the same.
        max_bytes: device memory for one chunk.

    Where the likelihood has one term a row, every row is predicted by itself, with a key that depends on (rng_key,
    chain, draw, row) alone: what is drawn for a row depends on no other row and on no chunk. A program whose rows hang
    together (one multivariate normal, a mean over rows; noticed by comparing some rows together and one by one, at
    three positions) is run on all rows at once, in chunks of draws.

    A sampler's attention rows are known for the training inputs alone, as a whole and in their order. Any other inputs
    get rows from the prior given the other latents, with a warning: for new rows that is their exact posterior, as no
    target speaks of them; rows of the training among them lose what their targets said.

    Cost: one forward pass a draw and row. Warns where values are not finite.

    Raises:
        ValueError, TypeError: inputs that are not finite, have no rows or another shape than in training; an unknown
            site; a posterior without draws.
        MemoryError: the results do not fit into host memory; keep fewer `sites`.
    """
    rng_key, limits = as_key(rng_key), Limits(draw_chunk, row_chunk, max_bytes)
    limits.check()
    target, draws = posterior.target, flat_draws(posterior)
    draws, num_draws = repeated(draws, target, posterior.num_draws, row_draws)
    inputs, num_rows = checked_inputs(target, inputs)
    fresh = fresh_sites(target, inputs)
    if fresh and not isinstance(posterior.engine, Prior):
        warnings.warn(
            f"predict: {', '.join(fresh)} are drawn from their prior: the posterior knows them for the training inputs "
            "alone, in their order",
            RuntimeWarning,
            stacklevel=2,
        )
    found, observed = predicted_sites(target, inputs, num_rows, fresh), observed_sites(target)
    kept = _kept(found, sites)
    draws["position"] = {name: values for name, values in draws["position"].items() if name not in fresh}
    rows = tuple((site.name, site.row_axis) for site in _of_rows(target) if site.name not in fresh)
    static = (target.model, observed, found, rows)
    batch = {"row": np.arange(num_rows), "inputs": inputs}
    axes = target.amortised_axes + tuple(
        (site.name, site.row_axis) for site in _of_rows(target) if site.name in fresh
    )
    separable = found.separable and all(
        _agree((*static, how), rng_key, place, batch) for how in {(), axes} for place in _some_places(draws)
    )
    by_row, by_draw = sweep(
        predicted_values,
        (*static, kept, simulated, row_draws == "mean"),
        rng_key,
        draws,
        batch,
        separable,
        limits,
    )
    values = {**by_row, **by_draw}
    warn_nonfinite("predict", values)
    lead = posterior.num_chains, num_draws
    shaped = {name: array.reshape(*lead, *array.shape[1:]) for name, array in values.items()}
    kinds = {kind: {site: array for (of, site), array in shaped.items() if of == kind} for kind in KINDS}
    return Predictive(
        **kinds, inputs=inputs, num_rows=num_rows, row_sites=frozenset(site for _, site in by_row)
    )


def log_likelihood(
    posterior: Posterior,
    data: Any = None,
    per: Literal["row", "token"] = "row",
    *,
    draw_chunk: int | None = None,
    row_chunk: int | None = None,
    max_bytes: int = MAX_BYTES,
) -> dict[str, Float[np.ndarray, "chain draw row ..."]]:
    """log p(target_n | draw s) in nats, for each observed site and factor that follows the rows, not scaled by N/B.

    Args:
        posterior: of any engine.
        data: `ptx.Data` or a pair (inputs, targets); the training data by default.
        per: "row" gives one term a row, of shape (chain, draw, row), the sum over all that a row holds: for a sequence
            the sum over its tokens, so that LOO counts sequences. "token" keeps the second axis of the targets: (chain,
            draw, row, token), exactly 0 where the model masks a position out; over tokens it sums to "row".
        draw_chunk: as in `predict`.
        row_chunk: as in `predict`.
        max_bytes: as in `predict`.

    Latents that carry their own posterior (attention rows fitted by MAP or SVI) are drawn from it, one draw for each
    draw of the posterior and row, always the same; their KL is no part of this.

    Sums are accumulated in float32 or wider. Warns where values are NaN or infinite.

    Raises:
        ValueError: a likelihood that does not factor over rows (the site is named); `per="token"` where a site has one
            term a row; data that do not fit the model or its training data.
    """
    limits = Limits(draw_chunk, row_chunk, max_bytes)
    limits.check()
    if per not in ("row", "token"):
        raise ValueError(f"per: expected 'row' or 'token', got {per!r}")
    draws = flat_draws(posterior)
    target = checked_data(posterior.target, data)
    require_term_a_row(target)
    terms = tuple(
        (term.name, term.row_axis)
        for term in target.terms
        if term.row_axis is not None and not term.amortised
    )
    rows = tuple((site.name, site.row_axis) for site in _of_rows(target))
    static = (target.model, terms, rows, per)
    hows: tuple[Any, ...] = ("mean", target.amortised_axes) if target.is_amortised else ("mean",)
    batch = {
        "row": np.arange(target.num_rows),
        "data": jax.tree.map(np.asarray, (target.data.inputs, target.data.targets)),
    }
    separable = all(
        rows_agree(log_densities, (*static, how), None, place, batch)
        for how in hows
        for place in _some_places(draws)
    )
    values, _ = sweep(log_densities, (*static, "draw"), None, draws, batch, separable, limits)
    warn_nonfinite("log_likelihood", values)
    return {name: posterior_shaped(posterior, array) for name, array in values.items()}


def _of_rows(target: Target) -> list[Site]:
    return [site for site in target.sites if site.row_axis is not None]


def posterior_shaped(posterior: Posterior, array: np.ndarray) -> np.ndarray:
    """Split the leading axis of draws into (chain, draw)."""
    return array.reshape(posterior.num_chains, posterior.num_draws, *array.shape[1:])


def _agree(static: tuple, rng_key: jax.Array, draw: Any, batch: Any) -> bool:
    try:
        return rows_agree(reproducible_values, static, rng_key, draw, batch)
    except NotImplementedError:  # a support of the user's own has no `feasible_like`: nothing to compare at
        return False


def _some_places(draws: Any) -> list[Any]:
    """The first draw, the last, and a random position: rows that agree at one may still hang together elsewhere."""
    rng = np.random.default_rng(0)
    first, last = (jax.tree.map(lambda leaf, i=i: jnp.asarray(leaf[i]), draws) for i in (0, -1))
    position = {
        name: jnp.asarray(rng.normal(size=leaf.shape[1:]), leaf.dtype)
        for name, leaf in draws["position"].items()
    }
    return [first, last, {**first, "position": position}]


def _kept(found: Predicted, sites: Collection[str] | None) -> tuple[str, ...]:
    names = found.deterministic + found.drawn
    if sites is None:
        return tuple(name for name in names if name != "attention.probs")
    if isinstance(sites, str) or not set(sites) <= set(names):
        raise ValueError(f"sites: expected a collection of names out of {sorted(names)}, got {sites!r}")
    return tuple(name for name in names if name in sites)
