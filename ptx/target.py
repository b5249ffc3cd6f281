"""Target: a NumPyro program lowered on data to pure functions of the unconstrained position."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro.distributions import Beta, Dirichlet

from ptx import densities, program
from ptx.compiled import call
from ptx.data import Data
from ptx.structure import Site, Term

Position = dict[str, Float[Array, "..."]]


class Halves(NamedTuple):
    """log prior (a scalar, log-Jacobian included), row-wise and whole log-likelihood terms by site, in nats."""

    log_prior: Float[Array, ""]
    by_row: dict[str, Float[Array, "rows"]]
    whole: dict[str, Float[Array, ""]]


@partial(
    jax.tree_util.register_dataclass, data_fields=["data"], meta_fields=["model", "sites", "terms", "dims"]
)
@dataclass(frozen=True, eq=False)
class Target:
    """The model on data, as pure functions of a position (a dict of unconstrained values keyed by site).

        log_density(u) = log_prior(u) + N / B * sum_n log_likelihood(u, batch)_n

    with `u` unconstrained, `log_prior(u) = sum_site log p(T(u)) + log |det T'(u)|`, both halves sums in nats, and B of
    the N rows in the batch (B = N by default). The prior half holds latent sites, their log-Jacobians and every
    `numpyro.factor` without a row axis; the likelihood half holds observed sites and factors that follow the rows.

    A Target is a JAX pytree: the data are its leaves, everything else is static and hashable, so a compiled function
    of a target serves every data set of the same shape. Make one with `ptx.lower`.
    """

    data: Data
    model: Callable
    sites: tuple[Site, ...]
    terms: tuple[Term, ...]
    dims: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def num_rows(self) -> int:
        """N, the rows of the data."""
        return self.data.num_rows

    @property
    def amortised_axes(self) -> tuple[tuple[str, int], ...]:
        """Row axes of the latents that are drawn from posteriors of their own."""
        return tuple(
            (term.name, term.row_axis) for term in self.terms if term.amortised and term.row_axis is not None
        )

    @property
    def is_amortised(self) -> bool:
        """Whether latents are drawn from posteriors of their own, so that densities with a key are random bounds."""
        return any(term.amortised for term in self.terms)

    @property
    def factorizes(self) -> bool:
        """Whether every likelihood term is a sum over rows, as minibatches and pointwise scores need."""
        return all(term.row_axis is not None or not term.is_observed for term in self.terms)

    def halves(self, position: Position, batch: Data | None = None, rng_key: Any = None) -> Halves:
        """Both halves from one run of the program; the likelihood is unscaled, site by site.

        Latents that the model's own posterior integrates (`lower(..., amortised=True)`) are drawn with `rng_key`, or
        put at their posterior mean, and appear among the row-wise terms as -KL(q, prior).
        """
        rows = self.data if batch is None else batch
        assign = program.from_position(position)
        trace, latents = program.run(self.model, rows.inputs, rows.targets, assign, row_key=rng_key)
        log_prior = jnp.zeros(())
        for latent in latents.values():
            log_prior += program.latent_log_density(latent)
        by_row, whole = {}, {}
        for term in self.terms:
            log_prob = densities.log_prob(trace[term.name])
            if term.row_axis is not None:
                rows_first = jnp.moveaxis(log_prob, term.row_axis, 0)
                by_row[term.name] = jax.vmap(densities.total)(rows_first)
            elif term.is_factor:
                log_prior += densities.total(log_prob)
            else:
                whole[term.name] = densities.total(log_prob)
        return Halves(log_prior, by_row, whole)

    def log_prior(self, position: Position) -> Float[Array, ""]:
        """log p(T(u)) + log |det T'(u)| in nats, summed over latent sites and factors without a row axis."""
        return self.halves(position).log_prior

    def log_likelihood(
        self, position: Position, batch: Data | None = None, rng_key: Array | None = None
    ) -> Float[Array, "rows"]:
        """log p(targets_n | T(u), inputs_n) in nats, one entry a row, unscaled.

        Where the likelihood does not factor over rows (`factorizes` is False) the result has one entry, the total.
        Lowered with amortised latents this is log p(targets_n | T(u), z_n, inputs_n) - KL(q_n, prior_n) at a draw z_n
        of q_n, whose expectation is a lower bound; without `rng_key` z_n is q_n's mean, and it is no bound.
        """
        _, by_row, whole = self.halves(position, batch, rng_key)
        pointwise = sum(by_row.values(), jnp.zeros(()))
        if self.factorizes and by_row:
            return pointwise
        return jnp.reshape(jnp.sum(pointwise) + sum(whole.values(), jnp.zeros(())), (1,))

    def log_density(
        self,
        position: Position,
        batch: Data | None = None,
        rng_key: Array | None = None,
        kl_weight: Any = 1.0,
    ) -> Float[Array, ""]:
        """log_prior + N/B * sum(log_likelihood) in nats: the only place where a minibatch is scaled.

        Of amortised latents (see `halves`) the KL counts `kl_weight` times, once a row; at a weight of 1 and with a key
        the result is, in expectation, a lower bound of the log density.

        Raises ValueError, naming the site, for a batch of a likelihood that does not factor over rows.
        """
        if batch is not None:
            self.require_rows("a minibatch")
        log_prior, by_row, whole = self.halves(position, batch, rng_key)
        weights = {term.name: kl_weight if term.amortised else 1.0 for term in self.terms}
        log_likelihood = sum((weights[name] * jnp.sum(rows) for name, rows in by_row.items()), jnp.zeros(()))
        if batch is not None:
            log_likelihood *= self.num_rows / batch.num_rows
        of_all = sum((weights[name] * value for name, value in whole.items()), jnp.zeros(()))
        return log_prior + log_likelihood + of_all

    def flatten(self, position: Position) -> Float[Array, "size"]:
        """The position as one vector, sites in the order of their names."""
        return jnp.concatenate([jnp.ravel(position[name]) for name in sorted(position)])

    def unflatten(self, vector: Float[Array, "size"]) -> Position:
        """Inverse of `flatten`."""
        sites = sorted(self.sites, key=lambda site: site.name)
        ends = np.cumsum([math.prod(site.unconstrained_shape) for site in sites])
        parts = jnp.split(vector, ends[:-1])
        return {
            site.name: part.reshape(site.unconstrained_shape) for site, part in zip(sites, parts, strict=True)
        }

    def constrain(self, position: Position) -> dict[str, Array]:
        """Values of the latent sites on their supports."""
        return call(_constrain, self, position)

    def unconstrain(self, values: dict[str, Any]) -> Position:
        """The position of given values on the supports; inverse of `constrain`."""
        return call(_unconstrain, self, values)

    def sample_prior(self, rng_key: Array) -> Position:
        """A position drawn from the prior. Raises ValueError where a site has an improper prior."""
        self.require_proper("a draw from the prior")
        return call(_sample_prior, self, rng_key)

    def initial_position(self, rng_key: Array) -> Position:
        """A place to start: prior draws for network weights, uniform(-2, 2) unconstrained for other sites."""
        return call(_initial_position, self, rng_key)

    def concentrations(self, position: Position) -> dict[str, tuple[Float[Array, ""], Float[Array, ""]]]:
        """The smallest concentration of each Dirichlet and Beta site at this position: towards 0, and towards 1.

        Entries of a Dirichlet approach 1 only as others approach 0, so theirs is infinite.
        """
        _, latents = program.run(
            self.model, self.data.inputs, self.data.targets, program.from_position(position)
        )
        found = {
            name: densities.base(latent.message["fn"])
            for name, latent in latents.items()
            if latent.log_density is None  # log-gamma coordinates serve at any concentration
        }
        smallest = {}
        for name, fn in found.items():
            if isinstance(fn, Dirichlet):
                smallest[name] = jnp.min(fn.concentration), jnp.inf * jnp.ones(())
            elif isinstance(fn, Beta):
                sides: Any = (fn.concentration1, fn.concentration0)
                smallest[name] = jnp.min(sides[0]), jnp.min(sides[1])
        return smallest

    def require_proper(self, purpose: str) -> None:
        """Raise ValueError, naming the site, unless every prior is proper."""
        for site in self.sites:
            if not site.proper:
                raise ValueError(
                    f"site '{site.name}': its prior is improper (flat), and {purpose} needs a proper one; give the "
                    "site a distribution that integrates to one"
                )

    def require_rows(self, purpose: str) -> None:
        """Raise ValueError, naming the site, unless the likelihood factors over rows and no latent belongs to a row."""
        for term in self.terms:
            if term.row_axis is None and term.is_observed:
                raise ValueError(
                    f"site '{term.name}': its log density does not factor over the rows of the data, and {purpose} "
                    "needs one term a row; use batch_size=None, or write the site inside a plate over the leading axis"
                )
        for site in self.sites:
            if site.row_axis is not None:
                raise ValueError(
                    f"site '{site.name}': a latent that belongs to the rows (its axis {site.row_axis} has their "
                    f"length), and {purpose} needs latents shared by all rows; use batch_size=None"
                )


def _constrain(target: Target, position: Position) -> dict[str, Array]:
    trace, _ = program.run(
        target.model, target.data.inputs, target.data.targets, program.from_position(position)
    )
    return {site.name: trace[site.name]["value"] for site in target.sites}


def _unconstrain(target: Target, values: dict[str, Any]) -> Position:
    return _assigned(target, program.from_values(values))


def _sample_prior(target: Target, rng_key: Array) -> Position:
    return _assigned(target, program.from_prior(rng_key))


def _initial_position(target: Target, rng_key: Array) -> Position:
    return _assigned(target, program.from_start(rng_key))


def _assigned(target: Target, assign: program.Assign) -> Position:
    """The position that a rule gives to the latent sites."""
    _, latents = program.run(target.model, target.data.inputs, target.data.targets, assign)
    return {name: latent.unconstrained for name, latent in latents.items()}
