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

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float

from ptx.dirichlet import SMALLEST
from ptx.models import checks
from ptx.models.network import Weight
from ptx.models.network import softmax as masked_softmax
from ptx.models.rows import DirichletRows, EntryRows, GumbelRows

Scores = Float[Array, "row head query key"]
Mask = Bool[Array, "#row 1 #query key"] | None
Scope = Literal["fixed", "model", "layer", "head", "query"]


class Layer(NamedTuple):
    """Where in the network an attention is asked: layer number, its weights, and what the scores were made of."""

    index: int
    weights: Mapping[str, Array]
    query: Float[Array, "row query head head_dim"]
    key: Float[Array, "row key head head_dim"]


Attend = Callable[[Scores, Mask, Layer], Scores]


@runtime_checkable
class Attention(Protocol):
    """A kind of attention."""

    def weights(self, num_layers: int, num_heads: int, head_dim: int) -> dict[str, Weight]:
        """Weights that it adds to the network's."""
        ...

    def sites(self, num_layers: int) -> dict[str, tuple[str, ...]]:
        """Dimension names of the other sites that it adds to the model."""
        ...

    def start(self, num_layers: int, num_heads: int, head_dim: int) -> Attend:
        """Sample what all layers share; return what each calls."""
        ...


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
class _Random:
    """What the random kinds share.

    Args:
        prior: "constant", "learned" (its strength, one a layer and head, is a latent with LogNormal prior around the
            given one), or "contextual" (the mean row comes from the keys by a small network, whose weights are the
            model's: `attention.prior.in`, `attention.prior.out`).
        hidden: units of that network.
        scope: what the posterior's spread is learned for: "fixed", or one value for the "model", "layer" or "head", or
            one predicted from the "query". Learned ones are latents of LogNormal(log of the given, 1), and the query's
            weights Normal(0, 1 / sqrt(head_dim)), so that a bound stays one.
    """

    prior: Literal["constant", "learned", "contextual"] = "constant"
    hidden: int = 16
    scope: Scope = "fixed"

    site: ClassVar[str] = ""
    strength: ClassVar[str | None] = None  # the prior's field that "learned" learns
    spread: ClassVar[str | None] = None  # the posterior's field that `scope` is about

    def __post_init__(self) -> None:
        checks.choice("prior", self.prior, ("constant", "learned", "contextual"))
        checks.choice("scope", self.scope, ("fixed", "model", "layer", "head", "query"))
        object.__setattr__(self, "hidden", checks.size("hidden", self.hidden))
        for field in dataclasses.fields(self):
            if field.type is float or field.type == "float":
                object.__setattr__(self, field.name, checks.positive(field.name, getattr(self, field.name)))
        for name, wanted, none in (
            ("prior", self.prior == "learned", self.strength is None),
            ("scope", self.scope != "fixed", self.spread is None),
        ):
            if wanted and none:
                raise ValueError(f"{name}={getattr(self, name)!r}: {type(self).__name__} has nothing to learn there")

    def weights(self, num_layers: int, num_heads: int, head_dim: int) -> dict[str, Weight]:
        """Those of the contextual prior."""
        if self.prior != "contextual":
            return {}
        return {
            "attention.prior.in": Weight(
                (num_layers, head_dim, self.hidden), ("layer", "head_dim", "prior_unit"), head_dim
            ),
            "attention.prior.out": Weight((num_layers, self.hidden), ("layer", "prior_unit"), self.hidden),
        }

    def sites(self, num_layers: int) -> dict[str, tuple[str, ...]]:
        """The rows of each layer, learned strengths and spreads."""
        dims = {f"{self.site}.{layer}": ("row", "head", "query", "key") for layer in range(num_layers)}
        for stacked in {self.site, "attention.probs"}:
            dims[stacked] = ("row", "layer", "head", "query", "key")
        if self.prior == "learned":
            dims[f"attention.prior.{self.strength}"] = ("layer", "head")
        of_scope = {"model": (), "layer": ("layer",), "head": ("layer", "head"), "query": ("layer", "head")}
        if self.scope != "fixed":
            dims[f"attention.{self.spread}"] = of_scope[self.scope]
        if self.scope == "query":
            dims[f"attention.{self.spread}.kernel"] = ("layer", "head", "head_dim")
        return dims

    def start(self, num_layers: int, num_heads: int, head_dim: int) -> "Rows":
        """Sample learned strengths and spreads."""
        strength = getattr(self, self.strength) if self.strength else 1.0
        if self.prior == "learned":
            strength = _positive(f"attention.prior.{self.strength}", strength, (num_layers, num_heads))
        spread = getattr(self, self.spread) if self.spread else 1.0
        kernel = None
        if self.scope != "fixed":
            shapes = {"model": (), "layer": (num_layers,)}
            shape = shapes.get(self.scope, (num_layers, num_heads))
            spread = _positive(f"attention.{self.spread}", spread, shape, {"amortised_only": True})
        if self.scope == "query":
            prior = dist.Normal(0, head_dim**-0.5).expand((num_layers, num_heads, head_dim)).to_event(3)
            kernel = numpyro.sample(
                f"attention.{self.spread}.kernel", prior, infer={"amortised_only": True, "init": "prior"}
            )
        return Rows(self, num_layers, strength, spread, kernel)


class Rows:
    """The attention of one run of the program; collects each layer's probabilities."""

    def __init__(self, kind: Any, num_layers: int, strength: Any, spread: Any, kernel: Any) -> None:
        self.kind, self.num_layers = kind, num_layers
        self.strength, self.spread, self.kernel = strength, spread, kernel
        self.probs: list[Array] = []

    def __call__(self, scores: Scores, mask: Mask, layer: Layer) -> Scores:
        kind, shape = self.kind, scores.shape
        mean = masked_softmax(scores, mask)
        where = None if mask is None else jnp.broadcast_to(mask, shape)
        count = shape[-1] if where is None else jnp.sum(where, -1, keepdims=True)
        prior = kind.prior_rows(self._prior_mean(mask, layer), self._of_head(self.strength, layer), shape, where)
        q = kind.posterior_rows(mean, count, self._spread(layer), shape, where)
        infer = {"amortised": q, "init": "prior"} | kind.infer
        with numpyro.plate("rows", shape[0], dim=-3):
            value = jnp.asarray(numpyro.sample(f"{kind.site}.{layer.index}", prior, infer=infer))
        probs = kind.probabilities(value, where)
        self.probs.append(probs)
        return probs

    def _prior_mean(self, mask: Mask, layer: Layer) -> Array:
        """m, of mean 1 over the allowed keys; shape () or (row, head, query or 1, key)."""
        if self.kind.prior != "contextual":
            return jnp.ones(())
        hidden = jax.nn.relu(layer.key @ layer.weights["attention.prior.in"])
        scores = jnp.einsum("rkhu,u->rhk", hidden, layer.weights["attention.prior.out"])[:, :, None, :]
        count = scores.shape[-1] if mask is None else jnp.sum(mask, -1, keepdims=True)
        return count * masked_softmax(scores, mask)

    def _spread(self, layer: Layer) -> Array:
        """The posterior's spread, broadcasting to (row, head, query, 1)."""
        spread = self._of_head(self.spread, layer)
        if self.kernel is None:
            return spread
        tilt = jnp.einsum("rqhd,hd->rhq", layer.query, self.kernel[layer.index])[..., None]
        return spread * jnp.exp(4 * jnp.tanh(tilt / 4))

    def _of_head(self, values: Any, layer: Layer) -> Array:
        """The value of this layer, its heads on axis -3 where it has some."""
        values = jnp.asarray(values)
        values = values[layer.index] if values.ndim else values
        return values[:, None, None] if values.ndim else values


@dataclass(frozen=True, kw_only=True)
class dirichlet(_Random):
    """Rows on the simplex: prior Dirichlet(concentration m), q = Dirichlet(sharpness S + floor).

    Args:
        concentration: of the prior, a key; at least 0.001.
        sharpness: sum of q's concentrations without the floor; towards infinity q is the softmax itself.
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

    def posterior_rows(self, mean: Scores, count: Any, spread: Array, shape: tuple, where: Any) -> DirichletRows:
        """Dirichlet(spread S + floor)."""
        return DirichletRows(spread * mean + self.floor, shape, where)

    def probabilities(self, value: Array, where: Any) -> Array:
        """The site itself; where NumPyro drew all keys, its allowed ones, renormalised."""
        return value if where is None else _normalised(value, where)


@dataclass(frozen=True, kw_only=True)
class weibull(_Random):
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
        return EntryRows(dist.Gamma(strength, rate), shape, _several(shape, where))

    def posterior_rows(self, mean: Scores, count: Any, spread: Array, shape: tuple, where: Any) -> EntryRows:
        """Weibull of scale K S / Gamma(1 + 1/k)."""
        scale = jnp.maximum(count * mean, 1e-6) * jnp.exp(-gammaln(1 + 1 / spread))
        return EntryRows(dist.Weibull(scale, spread), shape, _several(shape, where))

    def probabilities(self, value: Array, where: Any) -> Array:
        """w / sum w."""
        return _normalised(value, where)


@dataclass(frozen=True, kw_only=True)
class lognormal(_Random):
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
        return EntryRows(dist.LogNormal(_log(mean) - strength**2 / 2, strength), shape, _several(shape, where))

    def posterior_rows(self, mean: Scores, count: Any, spread: Array, shape: tuple, where: Any) -> EntryRows:
        """LogNormal(log K S - t^2 / 2, t)."""
        return EntryRows(dist.LogNormal(_log(count * mean) - spread**2 / 2, spread), shape, _several(shape, where))

    def probabilities(self, value: Array, where: Any) -> Array:
        """w / sum w."""
        return _normalised(value, where)


@dataclass(frozen=True, kw_only=True)
class gaussian_logits(_Random):
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
        return EntryRows(dist.Normal(_log(mean), strength), shape, _several(shape, where))

    def posterior_rows(self, mean: Scores, count: Any, spread: Array, shape: tuple, where: Any) -> EntryRows:
        """Normal(log K S, t)."""
        return EntryRows(dist.Normal(_log(count * mean), spread), shape, _several(shape, where))

    def probabilities(self, value: Array, where: Any) -> Array:
        """softmax(z)."""
        return masked_softmax(value, where)


@dataclass(frozen=True, kw_only=True)
class gumbel_softmax(_Random):
    """A relaxed choice of one key (Jang et al. 2017; as latent alignment Deng et al. 2018): softmax of Gumbel logits.

    Args:
        temperature: tau, of prior and posterior alike; towards 0 a row is one key, drawn with probabilities S.
    """

    temperature: float = 0.5

    site: ClassVar[str] = "attention.logits"
    infer: ClassVar[dict[str, Any]] = {}

    def prior_rows(self, mean: Array, strength: Array, shape: tuple, where: Any) -> GumbelRows:
        """Gumbel(log m, 1)."""
        return GumbelRows(_log(mean), shape, _several(shape, where))

    def posterior_rows(self, mean: Scores, count: Any, spread: Array, shape: tuple, where: Any) -> GumbelRows:
        """Gumbel(log K S, 1)."""
        return GumbelRows(_log(count * mean), shape, _several(shape, where))

    def probabilities(self, value: Array, where: Any) -> Array:
        """softmax(z / tau)."""
        return masked_softmax(value / self.temperature, where)


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


def _positive(name: str, around: float, shape: tuple[int, ...], infer: dict[str, Any] | None = None) -> Array:
    """A positive latent, LogNormal(log of the value it is around, 1)."""
    prior = dist.LogNormal(jnp.log(around), 1.0).expand(shape).to_event(len(shape))
    return jnp.asarray(numpyro.sample(name, prior, infer={"init": "prior", **(infer or {})}))


def _log(mean: Array) -> Array:
    """Of an average of 1, kept finite where a key has none."""
    return jnp.log(jnp.maximum(mean, 1e-6))


def _several(shape: tuple[int, ...], where: Any) -> Any:
    """The entries that count: those of rows with more than one allowed key."""
    if where is None:
        return None if shape[-1] > 1 else jnp.zeros(shape, bool)
    return where & (jnp.sum(where, -1, keepdims=True) > 1)


def _normalised(weights: Array, where: Any) -> Array:
    """w / sum w over the allowed keys; zeros where there is none."""
    weights = weights if where is None else jnp.where(where, weights, 0)
    total = jnp.sum(weights, -1, keepdims=True)
    return weights / (total if where is None else jnp.where(total > 0, total, 1))
