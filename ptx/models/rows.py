"""Distributions of attention rows: over the allowed keys alone, in shapes that broadcast."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float
from numpyro.distributions import constraints
from numpyro.distributions.kl import kl_divergence

from ptx.dirichlet import dirichlet
from ptx.gamma_functions import dirichlet_kl_term, lgamma
from ptx.written import written

Shape = tuple[int, ...]
EULER = 0.5772156649015329


class DirichletRows(dist.Distribution):
    """Dirichlet(concentration) over the entries of the last axis that `where` allows; the others are exactly 0.

    A row with one allowed entry is the point mass there, one with none is all zeros; both have log density and KL 0.

    Args:
        concentration: broadcasts to `shape`; not looked at where excluded.
        shape: (*batch, entries) of a draw.
        where: allowed entries, of that shape; None allows all.
        total: sum of the allowed concentrations where it is known without adding them up; broadcasts to (*batch, 1).
    """

    support: Any = constraints.simplex
    arg_constraints: ClassVar[dict[str, Any]] = {"concentration": constraints.positive}
    reparametrized_params: ClassVar[list[str]] = ["concentration"]
    pytree_data_fields = ("concentration", "where", "_total")

    def __init__(
        self,
        concentration: Float[Array, "..."],
        shape: Shape,
        where: Bool[Array, "..."] | None = None,
        total: Float[Array, "..."] | None = None,
    ) -> None:
        self.concentration = jnp.asarray(concentration)
        self.where = where
        self._total = None if total is None else jnp.asarray(total)
        super().__init__(shape[:-1], shape[-1:], validate_args=False)

    def sample(self, key: Any, sample_shape: Shape = ()) -> Array:
        """Draws by the implicit gradient of `ptx.dirichlet`."""
        return dirichlet(key, jnp.broadcast_to(self.concentration, self.shape(sample_shape)), self.where)

    def log_prob(self, value: Array) -> Array:
        """sum_k (a_k - 1) log p_k + log Gamma(sum a) - sum log Gamma(a_k), over the allowed entries, in nats."""
        terms = (self.concentration - 1) * jnp.log(
            value if self.where is None else jnp.where(self.where, value, 1)
        )
        normaliser = lgamma(self.total()) - self._sum(lgamma(self.concentration))
        return jnp.sum(terms if self.where is None else jnp.where(self.where, terms, 0), -1) + normaliser

    def total(self) -> Array:
        """Sum of the allowed concentrations; 1 where there is none."""
        if self._total is not None:
            return self._total.reshape(self._total.shape[:-1])  # the last axis has length 1
        total = self._sum(self.concentration)
        return total if self.where is None else jnp.where(total > 0, total, 1)

    def _sum(self, entries: Array) -> Array:
        """Over the allowed entries of the last axis, which `entries` may have as 1."""
        if self.where is None:
            repeated = self.event_shape[0] if entries.ndim == 0 or entries.shape[-1] == 1 else 1
            return repeated * (entries if entries.ndim == 0 else written(jnp.sum(entries, -1)))
        return written(jnp.sum(jnp.where(self.where, entries, 0), -1))

    @property
    def mean(self) -> Array:
        """a_k / sum a."""
        allowed = True if self.where is None else self.where
        mean = jnp.where(allowed, self.concentration, 0) / self.total()[..., None]
        return jnp.broadcast_to(mean, self.shape())


class EntryRows(dist.Distribution):
    """Independent entries from `base`; `where` says which of them count in the KL, and so in a bound.

    Entries that do not count are there all the same, with the law of `base`: as latents they are proper, and what is
    made of the row leaves them out.
    """

    pytree_data_fields = ("base", "where")
    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(
        self, base: dist.Distribution, shape: Shape, where: Bool[Array, "..."] | None = None
    ) -> None:
        self.base, self.where = base, where
        super().__init__(shape[:-1], shape[-1:], validate_args=False)

    @property
    def support(self) -> Any:
        """That of `base`, entry by entry."""
        support: Any = self.base.support
        return constraints.independent(support, 1)

    def sample(self, key: Any, sample_shape: Shape = ()) -> Array:
        """Draws of the entries."""
        shape = self.shape(sample_shape)
        base = self.base if self.base.batch_shape == shape else self.base.expand(shape)
        return jnp.asarray(base.sample(key))

    def log_prob(self, value: Array) -> Array:
        """Summed over all entries, in nats."""
        return jnp.sum(jnp.asarray(self.base.log_prob(value)), -1)

    @property
    def mean(self) -> Array:
        """Of each entry."""
        return jnp.broadcast_to(self.base.mean, self.shape())


class Weibull(dist.Weibull):
    """NumPyro's, known by the logarithm of its scale, and drawn as e^(log scale + log(E) / k) with E ~ Exponential(1):
    on CPU a power costs ten times as much."""

    def __init__(self, log_scale: Array, concentration: Array) -> None:
        self.log_scale = jnp.asarray(log_scale)
        super().__init__(jnp.exp(self.log_scale), concentration, validate_args=False)

    def sample(self, key: Any, sample_shape: Shape = ()) -> Array:
        """Draws of shape `sample_shape + batch_shape`."""
        shape = tuple(sample_shape) + self.batch_shape
        symmetric = jax.random.uniform(key, shape, self.log_scale.dtype, -1.0, 1.0)
        exponential = jnp.maximum(-jnp.log(0.5 - 0.5 * symmetric), jnp.finfo(symmetric.dtype).tiny)
        return jnp.exp(self.log_scale + jnp.log(exponential) / jnp.asarray(self.concentration))

    @property
    def mean(self) -> Array:
        """scale Gamma(1 + 1 / k)."""
        return jnp.exp(self.log_scale + written(lgamma(1 + 1 / jnp.asarray(self.concentration))))


class GumbelRows(EntryRows):
    """Independent Gumbel(loc, 1) logits, known only through the softmax of them at some temperature."""

    def __init__(self, loc: Array, shape: Shape, where: Bool[Array, "..."] | None = None) -> None:
        self.loc = jnp.asarray(loc)
        super().__init__(dist.Gumbel(self.loc, 1.0), shape, where)

    def kl_at(self, value: Array, prior: "GumbelRows") -> Array:
        """log q(p) - log prior(p) of p = softmax(value / tau), whose mean under q is the KL; in nats a row.

        With locations a of q and b of the prior over the n keys that count, the densities of the relaxed choice
        (Maddison et al. 2017) give sum_k (a_k - b_k) - n (logsumexp(a - z) - logsumexp(b - z)), whatever tau is. The
        KL of the logits themselves would grow as e^(b - a) where a key is ruled out.
        """
        where = True if self.where is None else self.where
        a, b = (jnp.broadcast_to(rows.loc, self.shape()) for rows in (self, prior))
        count = jnp.sum(jnp.broadcast_to(where, self.shape()), -1)
        sums = [_logsumexp(jnp.where(where, loc - value, -jnp.inf)) for loc in (a, b)]
        return jnp.sum(jnp.where(where, a - b, 0), -1) - count * (sums[0] - sums[1])


def _logsumexp(entries: Array) -> Array:
    """0 where all are -inf, with derivative 0."""
    highest = jnp.max(jax.lax.stop_gradient(entries), -1, keepdims=True)
    highest = jnp.where(jnp.isfinite(highest), highest, 0)
    total = written(jnp.sum(written(jnp.exp(entries - written(highest))), -1))
    return jnp.log(jnp.where(total > 0, total, 1)) + highest[..., 0]


def _kl_dirichlet(q: DirichletRows, p: DirichletRows) -> Array:
    """sum_k t(a_k, b_k) - t(sum a, sum b) with t = `dirichlet_kl_term`, in nats a row; 0 for a point mass."""
    a, b = q.concentration, p.concentration
    if q.where is not None:
        a = jnp.where(q.where, a, 1)  # excluded entries of any value leave no nan in the derivative
    entries = dirichlet_kl_term(a, b)
    within = jnp.sum(entries if q.where is None else jnp.where(q.where, entries, 0), -1)
    several = q.event_shape[0] > 1 if q.where is None else jnp.sum(q.where, -1) > 1
    return jnp.where(several, within - dirichlet_kl_term(q.total(), p.total()), 0)


def _kl_entries(q: EntryRows, p: EntryRows) -> Array:
    """Summed over the entries that count, in nats a row."""
    entries = _kl_entry(q.base, p.base)
    entries = jnp.broadcast_to(entries, q.shape())
    return jnp.sum(entries if q.where is None else jnp.where(q.where, entries, 0), -1)


def _kl_entry(q: dist.Distribution, p: dist.Distribution) -> Array:
    """In closed form: NumPyro's, and that of the logarithms of log-normals. Weibull and Gamma are written out (as
    NumPyro does) so that what is one number for all entries is computed once."""
    if isinstance(q, Weibull) and isinstance(p, dist.Gamma):
        k, a, rate = (jnp.asarray(each) for each in (q.concentration, p.concentration, p.rate))
        shared = written(EULER * a / k + jnp.log(k) - EULER - 1 + lgamma(a))
        return shared - a * (q.log_scale + jnp.log(rate)) + rate * q.mean
    if isinstance(q, dist.LogNormal) and isinstance(p, dist.LogNormal):
        return jnp.asarray(kl_divergence(dist.Normal(q.loc, q.scale), dist.Normal(p.loc, p.scale)))
    return jnp.asarray(kl_divergence(q, p))


kl_divergence.add((DirichletRows, DirichletRows), _kl_dirichlet)
kl_divergence.add((EntryRows, EntryRows), _kl_entries)
