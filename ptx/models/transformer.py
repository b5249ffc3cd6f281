"""Transformers over token ids or vectors: encoder or causal, one output per sequence or per token."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ptx.masked_softmax import softmax
from ptx.models import checks
from ptx.models.attention import SOFTMAX, as_attention
from ptx.models.blocks import Blocks
from ptx.models.latent_rows import Attention
from ptx.models.network import Weight, dense
from ptx.models.sequence import pool, sinusoids

Mask = Bool[Array, "row token"]
Hidden = Float[Array, "row token embed"]


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """x = embed(inputs) + positions; x = blocks(x); outputs = head(pool(norm(x))), pre-norm (see `Blocks`).

    Inputs: token ids (row, token) with `vocab_size`, or vectors (row, token, feature) with `num_features`. With
    padding, a mapping {"tokens": ids, "mask": mask} or {"vectors": vectors, "mask": mask}, whose boolean mask
    (row, token) is True at real tokens. What the mask rules out does not exist: outputs equal those of the
    sequence with the masked positions cut out, wherever they stand and whatever they hold. A row without a
    real token pools to zeros and gives head.bias.

    Outputs: (row, output) pooled over real tokens by "mean", "first" or "last"; with `pooling=None`
    (row, token, output), which are 0 at masked positions.

    positions: "learned", None, or "sinusoidal" (Vaswani et al. 2017: the sine at even and the cosine at odd
        dimensions of the angle t / 10000^(2i / width)).
    tied: outputs = x embedding.token' / sqrt(width) + head.bias, the scaling of T5, so that a unit prior gives
        unit embeddings and unit outputs. Per token only, with num_outputs = vocab_size.
    causal: a token sees itself and what comes before it.
    attention: what an attention row is (`ptx.models.attention`): "softmax", or a latent of kind "dirichlet", "weibull",
        "lognormal", "gaussian_logits" or "gumbel_softmax", by name or as a record such as
        `attention.dirichlet(sharpness=50)`. Called by itself the network is a pure function, with softmax rows; a model
        made with `bayesian` samples them.
    mlp_width: 4 width unless given.
    Raises TypeError or ValueError on sizes and options that do not fit together.
    Cost: a gradient takes about three forward passes on CPU; attention memory is row x head x token^2.
    """

    max_length: int
    num_layers: int
    num_heads: int
    width: int
    num_outputs: int
    vocab_size: int | None = None
    num_features: int | None = None
    mlp_width: int | None = None
    causal: bool = False
    pooling: Literal["mean", "first", "last"] | None = "mean"
    positions: Literal["learned", "sinusoidal"] | None = "learned"
    norm: Literal["layer", "rms"] = "layer"
    norm_gain: bool = True
    norm_bias: bool = False
    activation: Literal["gelu", "swiglu"] = "gelu"
    bias: bool = True
    tied: bool = False
    attention: Attention | str = SOFTMAX

    def __post_init__(self) -> None:
        object.__setattr__(self, "attention", as_attention(self.attention))
        for name in ("max_length", "num_layers", "num_heads", "width", "num_outputs"):
            object.__setattr__(self, name, checks.size(name, getattr(self, name)))
        for name in ("vocab_size", "num_features", "mlp_width"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, checks.size(name, getattr(self, name)))
        for name in ("causal", "norm_gain", "norm_bias", "bias", "tied"):
            checks.flag(name, getattr(self, name))
        checks.choice("pooling", self.pooling, ("mean", "first", "last", None))
        checks.choice("positions", self.positions, ("learned", "sinusoidal", None))
        checks.choice("norm", self.norm, ("layer", "rms"))
        checks.choice("activation", self.activation, ("gelu", "swiglu"))
        if self.width % self.num_heads:
            raise ValueError(f"width must be a multiple of num_heads, got {self.width} and {self.num_heads}")
        if (self.vocab_size is None) == (self.num_features is None):
            raise ValueError(
                "give either vocab_size (token ids in) or num_features (vectors in), and not both"
            )
        if self.tied and (self.pooling is not None or self.num_outputs != self.vocab_size):
            raise ValueError(
                "tied=True predicts a token per token: it needs pooling=None and num_outputs=vocab_size"
            )

    @property
    def blocks(self) -> Blocks:
        """The layers."""
        return Blocks(
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            width=self.width,
            mlp_width=self.mlp_width or 4 * self.width,
            causal=self.causal,
            norm=self.norm,
            norm_gain=self.norm_gain,
            norm_bias=self.norm_bias,
            activation=self.activation,
            bias=self.bias,
            attention=as_attention(self.attention),
        )

    @property
    def weights(self) -> dict[str, Weight]:
        """Embeddings, then the blocks, then the head."""
        weights: dict[str, Weight] = {}
        if self.vocab_size is not None:
            weights["embedding.token"] = Weight((self.vocab_size, self.width), ("vocabulary", "embed"))
        if self.num_features is not None:
            shape = (self.num_features, self.width)
            weights["embedding.kernel"] = Weight(shape, ("feature", "embed"), self.num_features)
            if self.bias:
                weights["embedding.bias"] = Weight((self.width,), ("embed",))
        if self.positions == "learned":
            weights["embedding.position"] = Weight((self.max_length, self.width), ("position", "embed"))
        weights |= self.blocks.weights | self.blocks.norm_weights("head")
        if not self.tied:
            weights["head.kernel"] = Weight((self.width, self.num_outputs), ("embed", "output"), self.width)
        if self.bias:
            weights["head.bias"] = Weight((self.num_outputs,), ("output",))
        return weights

    @property
    def output_dims(self) -> tuple[str, ...]:
        """("row", "output"), or ("row", "token", "output") with `pooling=None`."""
        return ("row", "output") if self.pooling else ("row", "token", "output")

    def __call__(
        self, weights: Mapping[str, Array], x: Any, attend: Any = softmax
    ) -> Float[Array, "row *token output"]:
        """Outputs for `x`; `attend(scores, mask, layer)` turns scores (row, head, query, key) into probabilities."""
        content, mask = _split(x)
        mask = None if mask is None else jnp.asarray(mask)
        hidden = self.embed(weights, jnp.asarray(content), mask)
        return self.read(weights, self.locate(weights, hidden, mask), mask, attend)

    def embed(self, weights: Mapping[str, Array], content: Array, mask: Mask | None) -> Hidden:
        """Ids or vectors to hidden states; what the mask rules out is replaced, so that a NaN there stays there."""
        if self.vocab_size is not None:
            ids = content.astype(jnp.int32)
            return weights["embedding.token"][ids if mask is None else jnp.where(mask, ids, 0)]
        kernel = weights["embedding.kernel"]
        vectors = content.astype(kernel.dtype)
        if mask is not None:
            vectors = jnp.where(mask[:, :, None], vectors, 0.0)
        flat = dense(vectors.reshape(-1, kernel.shape[0]), kernel, weights.get("embedding.bias"))
        return flat.reshape(*vectors.shape[:2], self.width)

    def locate(self, weights: Mapping[str, Array], hidden: Hidden, mask: Mask | None) -> Hidden:
        """Hidden states plus positions, counted over real tokens only."""
        length = hidden.shape[1]
        if length > self.max_length:
            raise ValueError(
                f"sequences have {length} positions, more than max_length={self.max_length}; cut them"
            )
        if self.positions is None:
            return hidden
        if self.positions == "learned":
            table = weights["embedding.position"]
        else:
            table = sinusoids(self.max_length, self.width).astype(hidden.dtype)
        if mask is None:
            return hidden + table[None, :length]
        return hidden + table[jnp.maximum(jnp.cumsum(mask, axis=1) - 1, 0)]

    def read(
        self, weights: Mapping[str, Array], hidden: Hidden, mask: Mask | None, attend: Any = softmax
    ) -> Float[Array, "row *token output"]:
        """Blocks, final norm, pooling and head."""
        rows, length = hidden.shape[:2]
        hidden = self.blocks(weights, hidden, mask, attend)
        flat = self.blocks.normalise(weights, "head", hidden.reshape(rows * length, self.width))
        if self.pooling is not None:
            flat = pool(flat.reshape(rows, length, self.width), mask, self.pooling)
        kernel = weights["embedding.token"].T / self.width**0.5 if self.tied else weights["head.kernel"]
        outputs = dense(flat, kernel, weights.get("head.bias"))
        if self.pooling is not None:
            return outputs
        outputs = outputs.reshape(rows, length, self.num_outputs)
        return outputs if mask is None else jnp.where(mask[:, :, None], outputs, 0.0)

    def target_mask(self, x: Any) -> Mask | None:
        """The padding mask, shape (row, token), if outputs are per token; None otherwise."""
        mask = None if self.pooling else _split(x)[1]
        return None if mask is None else jnp.asarray(mask)

    def check(self, x: Any) -> None:
        """Raise unless `x` has at most `max_length` positions and ids in [0, vocab_size), or finite vectors."""
        name = "vectors" if self.vocab_size is None else "tokens"
        if isinstance(x, Mapping) and not {name} <= set(x) <= {name, "mask"}:
            keys = sorted(map(str, x))
            raise ValueError(
                f"inputs must be an array, or a mapping of {name!r} and 'mask'; got the keys {keys}"
            )
        content, mask = _split(x)
        axes = (
            ("rows", "length") if self.vocab_size is not None else ("rows", "length", self.num_features or 0)
        )
        content = checks.array(name, content, axes)
        if content.shape[1] > self.max_length:
            length, most = content.shape[1], self.max_length
            raise ValueError(f"{name} have {length} positions, more than max_length={most}; cut them")
        if mask is not None:
            mask = checks.array("mask", mask, content.shape[:2])
            if mask.dtype != np.bool_:
                raise TypeError(
                    f"mask must be boolean, True at real tokens, got {mask.dtype}; use .astype(bool)"
                )
        if self.vocab_size is None:
            checks.finite(name, content, mask)
        else:
            checks.within(name, content, self.vocab_size, mask)


def _split(x: Any) -> tuple[Any, Any]:
    """The content of the inputs and their mask, if any."""
    if not isinstance(x, Mapping):
        return x, None
    return x["tokens"] if "tokens" in x else x["vectors"], x.get("mask")
