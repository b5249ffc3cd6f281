"""What the kinds of attention whose rows are latents share: their sites, and the call once a layer."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float

from ptx.masked_softmax import softmax as masked_softmax
from ptx.models import checks
from ptx.models.network import Weight
from ptx.models.row_arithmetic import Scores, without_padding

Mask = Bool[Array, "#row 1 #query key"] | None
Scope = Literal["fixed", "model", "layer", "head", "query"]


class Layer(NamedTuple):
    """Where in the network an attention is asked: layer number, its weights, and what the scores were made of."""

    index: int
    weights: Mapping[str, Array]
    query: Float[Array, "row query head head_dim"]
    key: Float[Array, "row key head head_dim"]


Attend = Callable[..., Scores]  # (scores, mask, layer)


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


@dataclass(frozen=True, kw_only=True)
class LatentRows:
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
                raise ValueError(
                    f"{name}={getattr(self, name)!r}: {type(self).__name__} has nothing to learn there"
                )

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
        dims: dict[str, tuple[str, ...]] = {
            f"{self.site}.{layer}": ("row", "head", "query", "key") for layer in range(num_layers)
        }
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
        where = None if mask is None else jnp.broadcast_to(without_padding(mask), shape)
        count = shape[-1] if where is None else jnp.sum(where, -1, keepdims=True)
        prior = kind.prior_rows(
            self._prior_mean(mask, layer), self._of_head(self.strength, layer), shape, where
        )
        scores = scores.astype(jnp.promote_types(scores.dtype, jnp.float32))
        q = kind.posterior_rows(scores, count, self._spread(layer), shape, where)
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


def _positive(name: str, around: float, shape: tuple[int, ...], infer: dict[str, Any] | None = None) -> Array:
    """A positive latent, LogNormal(log of the value it is around, 1)."""
    prior = dist.LogNormal(jnp.log(around), 1.0).expand(shape).to_event(len(shape))
    return jnp.asarray(numpyro.sample(name, prior, infer={"init": "prior", **(infer or {})}))
