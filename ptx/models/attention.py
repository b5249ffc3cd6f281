"""What an attention row is: the softmax of its scores, or a latent with a prior and a posterior of its own.

A kind of attention is a frozen record. `start` returns what the network's blocks call once a layer, first layer first,
`attend(scores, mask, layer)` -> probabilities of shape (row, head, query, key). For the random kinds that call samples
the site of the layer inside `numpyro.plate("rows", N, dim=-3)`; the site's infer={"amortised": q} holds its variational
posterior, made of the scores. Whoever lowers the model chooses: MAP and SVI integrate the rows by q, samplers take
them as latents with their prior alone (q is ignored).

With S = softmax(scores over the allowed keys), K allowed keys and m the prior's mean row times K:

    kind              site (per layer)       prior                      posterior q                    probabilities
    dirichlet         attention.probs        Dirichlet(c m)             Dirichlet(sharpness S + floor)  the site
    weibull           attention.weights      Gamma(a, a / m)            Weibull(shape k, mean K S)      w / sum w
    lognormal         attention.weights      LogNormal(log m - s^2/2, s)  LogNormal(log K S - t^2/2, t)  w / sum w
    gaussian_logits   attention.logits       Normal(log m, s)           Normal(log K S, t)              softmax(z)
    gumbel_softmax    attention.logits       Gumbel(log m, 1)           Gumbel(log K S, 1)              softmax(z / tau)

m is 1 (`prior="constant"` and "learned") or K softmax(f(key)) with f linear, ReLU, linear ("contextual"; Fan et al.
2020). Masked keys have probability 0 and count in no KL; a row with one allowed key is the point mass there.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array

from ptx.dirichlet import SMALLEST
from ptx.gamma_functions import lgamma
from ptx.masked_softmax import softmax as masked_softmax
from ptx.models import checks
from ptx.models.latent_rows import Attention, LatentRows
from ptx.models.network import Weight
from ptx.models.row_arithmetic import Scores, log_mean, log_rows_of, normalised, row_softmax, several
from ptx.models.rows import DirichletRows, EntryRows, GumbelRows, Weibull
from ptx.written import written


@dataclass(frozen=True)
class softmax:
    """p = softmax(scores): no latent. The layers may be scanned over."""

    def weights(self, num_layers: int, num_heads: int, head_dim: int) -> dict[str, Weight]:
        """None."""
        return {}

    def sites(self, num_layers: int) -> dict[str, tuple[str, ...]]:
        """None."""
        return {}

    def start(self, num_layers: int, num_heads: int, head_dim: int) -> Any:
        """The function that networks know."""
        return masked_softmax


@dataclass(frozen=True, kw_only=True)
class dirichlet(LatentRows):
    """Rows on the simplex: prior Dirichlet(concentration m), q = Dirichlet(sharpness S + floor).

    Args:
        concentration: of the prior, a key; at least 0.001.
        sharpness: sum of q's concentrations without the floor; as it grows q becomes the softmax itself.
        floor: added to each of q's concentrations; at least 0.001, where the sampler is exact.
    """

    concentration: float = 1.0
    sharpness: float = 20.0
    floor: float = 0.01

    site: ClassVar[str] = "attention.probs"
    strength: ClassVar[str | None] = "concentration"
    spread: ClassVar[str | None] = "sharpness"
    infer: ClassVar[dict[str, Any]] = {"coordinates": "log_gamma"}

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("concentration", "floor"):
            if getattr(self, name) < SMALLEST:
                raise ValueError(f"{name} must be at least {SMALLEST}, got {getattr(self, name)}")

    def prior_rows(self, mean: Array, strength: Array, shape: tuple, where: Any) -> DirichletRows:
        """Dirichlet(strength m), its concentrations kept above the sampler's bound."""
        return DirichletRows(jnp.maximum(strength * mean, SMALLEST), shape, where)

    def posterior_rows(
        self, scores: Scores, count: Any, spread: Array, shape: tuple, where: Any
    ) -> DirichletRows:
        """Dirichlet(spread S + floor)."""
        concentration = spread * row_softmax(scores, where) + self.floor
        return DirichletRows(
            concentration, shape, where, total=jnp.where(count > 0, spread + self.floor * count, 1)
        )

    def probabilities(self, value: Array, where: Any) -> Array:
        """The site itself; where NumPyro drew all keys, its allowed ones, renormalised."""
        return value if where is None else normalised(value, where)


@dataclass(frozen=True, kw_only=True)
class weibull(LatentRows):
    """Positive weights, normalised (Fan et al. 2020): prior Gamma(a, a / m), of mean m; q = Weibull of mean K S.

    Args:
        prior_shape: a.
        shape: k of the Weibull; its coefficient of variation is about 1.2 / k.
    """

    prior_shape: float = 1.0
    shape: float = 5.0

    site: ClassVar[str] = "attention.weights"
    strength: ClassVar[str | None] = "prior_shape"
    spread: ClassVar[str | None] = "shape"
    infer: ClassVar[dict[str, Any]] = {}

    def prior_rows(self, mean: Array, strength: Array, shape: tuple, where: Any) -> EntryRows:
        """Gamma(a, a / m)."""
        rate = strength / jnp.maximum(mean, 1e-6)
        return EntryRows(dist.Gamma(strength, rate), shape, several(shape, where))

    def posterior_rows(
        self, scores: Scores, count: Any, spread: Array, shape: tuple, where: Any
    ) -> EntryRows:
        """Weibull of scale K S / Gamma(1 + 1/k)."""
        log_scale = log_rows_of(scores, where) - written(lgamma(1 + 1 / spread))
        return EntryRows(Weibull(log_scale, spread), shape, several(shape, where))

    def probabilities(self, value: Array, where: Any) -> Array:
        """w / sum w."""
        return normalised(value, where)


@dataclass(frozen=True, kw_only=True)
class lognormal(LatentRows):
    """Positive weights, normalised (Fan et al. 2020): LogNormal prior of mean m, q of mean K S.

    Args:
        prior_scale: s, the sd of the prior's log weights.
        scale: t, that of q's.
    """

    prior_scale: float = 1.0
    scale: float = 0.3

    site: ClassVar[str] = "attention.weights"
    strength: ClassVar[str | None] = "prior_scale"
    spread: ClassVar[str | None] = "scale"
    infer: ClassVar[dict[str, Any]] = {}

    def prior_rows(self, mean: Array, strength: Array, shape: tuple, where: Any) -> EntryRows:
        """LogNormal(log m - s^2 / 2, s)."""
        return EntryRows(
            dist.LogNormal(log_mean(mean) - strength**2 / 2, strength), shape, several(shape, where)
        )

    def posterior_rows(
        self, scores: Scores, count: Any, spread: Array, shape: tuple, where: Any
    ) -> EntryRows:
        """LogNormal(log K S - t^2 / 2, t)."""
        return EntryRows(
            dist.LogNormal(log_rows_of(scores, where) - spread**2 / 2, spread),
            shape,
            several(shape, where),
        )

    def probabilities(self, value: Array, where: Any) -> Array:
        """w / sum w."""
        return normalised(value, where)


@dataclass(frozen=True, kw_only=True)
class gaussian_logits(LatentRows):
    """Normal logits: prior Normal(log m, s), q = Normal(log K S, t); the row is their softmax.

    Args:
        prior_scale: s.
        scale: t.
    """

    prior_scale: float = 1.0
    scale: float = 0.3

    site: ClassVar[str] = "attention.logits"
    strength: ClassVar[str | None] = "prior_scale"
    spread: ClassVar[str | None] = "scale"
    infer: ClassVar[dict[str, Any]] = {}

    def prior_rows(self, mean: Array, strength: Array, shape: tuple, where: Any) -> EntryRows:
        """Normal(log m, s)."""
        return EntryRows(dist.Normal(log_mean(mean), strength), shape, several(shape, where))

    def posterior_rows(
        self, scores: Scores, count: Any, spread: Array, shape: tuple, where: Any
    ) -> EntryRows:
        """Normal(log K S, t)."""
        return EntryRows(dist.Normal(log_rows_of(scores, where), spread), shape, several(shape, where))

    def probabilities(self, value: Array, where: Any) -> Array:
        """softmax(z)."""
        return row_softmax(value, where)


@dataclass(frozen=True, kw_only=True)
class gumbel_softmax(LatentRows):
    """A relaxed choice of one key (Jang et al. 2017; as latent alignment Deng et al. 2018): softmax of Gumbel logits.

    Args:
        temperature: tau, of prior and posterior alike; towards 0 a row is one key, drawn with probabilities S.
    """

    temperature: float = 0.5

    site: ClassVar[str] = "attention.logits"
    infer: ClassVar[dict[str, Any]] = {}

    def prior_rows(self, mean: Array, strength: Array, shape: tuple, where: Any) -> GumbelRows:
        """Gumbel(log m, 1)."""
        return GumbelRows(log_mean(mean), shape, several(shape, where))

    def posterior_rows(
        self, scores: Scores, count: Any, spread: Array, shape: tuple, where: Any
    ) -> GumbelRows:
        """Gumbel(log K S, 1)."""
        return GumbelRows(log_rows_of(scores, where), shape, several(shape, where))

    def probabilities(self, value: Array, where: Any) -> Array:
        """softmax(z / tau)."""
        return row_softmax(value / self.temperature, where)


SOFTMAX = softmax()

KINDS = {
    kind.__name__: kind for kind in (softmax, dirichlet, weibull, lognormal, gaussian_logits, gumbel_softmax)
}


def as_attention(attention: Any) -> Any:
    """A kind of attention from itself, its class or its name.

    Raises:
        TypeError, ValueError: anything else.
    """
    if isinstance(attention, str):
        checks.choice("attention", attention, tuple(KINDS))
        attention = KINDS[attention]
    attention = attention() if isinstance(attention, type) else attention
    if not isinstance(attention, Attention):
        raise TypeError(f"attention is one of {', '.join(KINDS)}, by name or as a record; got {attention!r}")
    return attention
