"""The layers of a transformer: pre-norm attention and feed-forward blocks, scanned over depth."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ptx.masked_softmax import softmax
from ptx.models.attention import SOFTMAX
from ptx.models.latent_rows import Attend, Attention, Layer
from ptx.models.network import Weight, dense, layer_norm, rms_norm

UNROLLED_LAYERS = 4  # deepest stack laid out in a row rather than looped over


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """h <- h + attention(norm(h)), then h <- h + mlp(norm(h)), once per layer (pre-norm, as in GPT-2).

    attention: p = attend(q k' / sqrt(head_dim), mask, layer), output sum_h W_o[h] (p v).
    mlp: W_out gelu(W_in x) with the tanh form of GELU, as in GPT-2; for "swiglu" W_out (silu(W_gate x) * W_in x),
    as in Shazeer (2020).
    Biases go to the query, the attention output and the MLP. A key bias would cancel in the softmax and a
    value bias would add to the output's, so that neither could be learned from data: neither is a site.
    """

    num_layers: int
    num_heads: int
    width: int
    mlp_width: int
    causal: bool
    norm: Literal["layer", "rms"]
    norm_gain: bool
    norm_bias: bool
    activation: Literal["gelu", "swiglu"]
    bias: bool
    attention: Attention = SOFTMAX

    @property
    def weights(self) -> dict[str, Weight]:
        """One site per kind of weight, with leading axis `layer`."""
        embed, heads, hidden = self.width, self.num_heads, self.mlp_width
        head_dim = embed // heads
        kernels = {
            "attention.query": ((embed, heads, head_dim), ("embed", "head", "head_dim"), embed),
            "attention.key": ((embed, heads, head_dim), ("embed", "head", "head_dim"), embed),
            "attention.value": ((embed, heads, head_dim), ("embed", "head", "head_dim"), embed),
            "attention.output": ((heads, head_dim, embed), ("head", "head_dim", "embed"), embed),
            "mlp.in": ((embed, hidden), ("embed", "mlp_unit"), embed),
            "mlp.gate": ((embed, hidden), ("embed", "mlp_unit"), embed),
            "mlp.out": ((hidden, embed), ("mlp_unit", "embed"), hidden),
        }
        biases = {
            "attention.query.bias": ((heads, head_dim), ("head", "head_dim"), None),
            "attention.output.bias": ((embed,), ("embed",), None),
            "mlp.in.bias": ((hidden,), ("mlp_unit",), None),
            "mlp.gate.bias": ((hidden,), ("mlp_unit",), None),
            "mlp.out.bias": ((embed,), ("embed",), None),
        }
        sites = {**kernels, **(biases if self.bias else {})}
        if self.activation != "swiglu":
            sites = {name: site for name, site in sites.items() if not name.startswith("mlp.gate")}
        layers = self.num_layers
        weights = {
            name: Weight((layers, *shape), ("layer", *dims), fan_in)
            for name, (shape, dims, fan_in) in sites.items()
        }
        weights |= self.attention.weights(layers, heads, head_dim)
        return {**weights, **self.norm_weights("attention", layers), **self.norm_weights("mlp", layers)}

    def norm_weights(self, owner: str, num_layers: int | None = None) -> dict[str, Weight]:
        """Gain and bias of the norm in front of `owner`, one per layer or, without layers, one in all."""
        shape, dims = (self.width,), ("embed",)
        if num_layers is not None:
            shape, dims = (num_layers, *shape), ("layer", *dims)
        gain = {f"{owner}.norm.gain": Weight(shape, dims, center=1.0)} if self.norm_gain else {}
        return gain | ({f"{owner}.norm.bias": Weight(shape, dims)} if self.norm_bias else {})

    def __call__(
        self,
        weights: Mapping[str, Array],
        hidden: Float[Array, "row token embed"],
        mask: Bool[Array, "row token"] | None,
        attend: Any = softmax,
    ) -> Float[Array, "row token embed"]:
        """Hidden states after the last layer, by `lax.scan`: compile time does not grow with depth beyond
        four layers.

        Any other `attend` than `softmax` is called once per layer in Python, first layer first, with the scores, the
        mask of the keys and what else belongs to the layer, so it may hold sample sites.
        """
        layered = {name: weights[name] for name in self.weights}
        keys = self._visible(hidden.shape[1], mask)
        if attend is softmax:
            return self._scan(layered, hidden, keys)
        for i in range(self.num_layers):
            layer = {name: value[i] for name, value in layered.items()}
            hidden = self._block(layer, hidden, keys, attend, i)
        return hidden

    def _scan(self, layered: Mapping[str, Array], hidden: Array, keys: Array | None) -> Array:
        def step(h: Array, layer: Mapping[str, Array]) -> tuple[Array, None]:
            return self._block(layer, h, keys, softmax), None

        # On CPU, reading saved activations back out of a loop costs more than computing them again: a gradient
        # took 5 to 6 forward passes with them saved, 3.5 to 4.9 with them computed again. Layers in a row took
        # 2.5 to 3.3, and up to four compile in at most one and a half times the loop's time.
        if self.num_layers <= UNROLLED_LAYERS:
            return jax.lax.scan(step, hidden, layered, unroll=self.num_layers)[0]
        return jax.lax.scan(jax.checkpoint(step, prevent_cse=False), hidden, layered)[0]

    def _visible(self, length: int, mask: Bool[Array, "row token"] | None) -> Array | None:
        """True where a query may look at a key, shape (row or 1, 1, query or 1, key); None if everywhere."""
        causal = jnp.tril(jnp.ones((length, length), bool))[None, None] if self.causal else None
        if mask is None:
            return causal
        return mask[:, None, None, :] if causal is None else mask[:, None, None, :] & causal

    def _block(
        self, layer: Mapping[str, Array], hidden: Array, keys: Array | None, attend: Attend, index: int = 0
    ) -> Array:
        rows, length, width = hidden.shape
        flat = hidden.reshape(rows * length, width)
        normed = self.normalise(layer, "attention", flat)
        flat = flat + self._attention(layer, normed, (rows, length), keys, attend, index)
        flat = flat + self._mlp(layer, self.normalise(layer, "mlp", flat))
        return flat.reshape(rows, length, width)

    def normalise(self, weights: Mapping[str, Array], owner: str, x: Float[Array, "batch embed"]) -> Array:
        """gain * norm(x) + bias, with the weights of the norm in front of `owner`."""
        x = layer_norm(x) if self.norm == "layer" else rms_norm(x)
        if self.norm_gain:
            x = x * weights[f"{owner}.norm.gain"][None, :]
        return x + weights[f"{owner}.norm.bias"][None, :] if self.norm_bias else x

    def _attention(
        self,
        layer: Mapping[str, Array],
        x: Array,
        shape: tuple[int, int],
        keys: Array | None,
        attend: Attend,
        index: int,
    ) -> Array:
        def project(name: str) -> Array:
            bias = layer.get(f"{name}.bias")
            projected = dense(
                x, layer[name].reshape(self.width, self.width), None if bias is None else bias.reshape(-1)
            )
            return projected.reshape(*shape, self.num_heads, self.width // self.num_heads)

        query, key, value = (project(f"attention.{name}") for name in ("query", "key", "value"))
        scores = jnp.einsum("rqhd,rkhd->rhqk", query / query.shape[-1] ** 0.5, key)
        of_layer = Layer(index, layer, query, key)
        probs = softmax(scores, keys) if attend is softmax else attend(scores, keys, of_layer)
        attended = jnp.einsum("rhqk,rkhd->rqhd", probs.astype(value.dtype), value)
        kernel = layer["attention.output"].reshape(self.width, self.width)
        return dense(attended.reshape(-1, self.width), kernel, layer.get("attention.output.bias"))

    def _mlp(self, layer: Mapping[str, Array], x: Array) -> Array:
        inner = dense(x, layer["mlp.in"], layer.get("mlp.in.bias"))
        if self.activation == "swiglu":
            inner = jax.nn.silu(dense(x, layer["mlp.gate"], layer.get("mlp.gate.bias"))) * inner
        else:
            inner = jax.nn.gelu(inner, approximate=True)  # erf costs a tenth more per gradient
        return dense(inner, layer["mlp.out"], layer.get("mlp.out.bias"))
