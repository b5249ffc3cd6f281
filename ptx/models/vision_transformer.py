"""A transformer over the patches of an image."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ptx.masked_softmax import softmax
from ptx.models import checks
from ptx.models.attention import SOFTMAX, as_attention
from ptx.models.latent_rows import Attention
from ptx.models.network import Weight
from ptx.models.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class VisionTransformer:
    """outputs = Transformer(patches of the image), after Dosovitskiy et al. (2021).

    Inputs: images (row, height, width, channel), or (row, height, width) if `num_channels` is 1; real and finite,
    best scaled to unit size. Patches of patch_size x patch_size pixels are cut row by row, each flattened as
    (height, width, channel) and mapped to `width` by `embedding.kernel`.
    Outputs: (row, output).

    pooling: "mean" averages the patches; "class" puts a learned token `embedding.class` in front and reads it.
    The other options are those of `Transformer`. Raises ValueError if patches do not tile the image.
    """

    image_size: tuple[int, int]
    patch_size: int
    num_layers: int
    num_heads: int
    width: int
    num_outputs: int
    num_channels: int = 1
    mlp_width: int | None = None
    pooling: Literal["mean", "class"] = "mean"
    positions: Literal["learned", "sinusoidal"] | None = "learned"
    norm: Literal["layer", "rms"] = "layer"
    norm_gain: bool = True
    norm_bias: bool = False
    activation: Literal["gelu", "swiglu"] = "gelu"
    bias: bool = True
    attention: Attention | str = SOFTMAX

    def __post_init__(self) -> None:
        object.__setattr__(self, "attention", as_attention(self.attention))
        if not isinstance(self.image_size, tuple | list) or len(self.image_size) != 2:
            raise TypeError(f"image_size must be (height, width), got {self.image_size!r}")
        sides = tuple(checks.size("image_size", side) for side in self.image_size)
        object.__setattr__(self, "image_size", sides)
        for name in ("patch_size", "num_channels"):
            object.__setattr__(self, name, checks.size(name, getattr(self, name)))
        checks.choice("pooling", self.pooling, ("mean", "class"))
        if any(side % self.patch_size for side in sides):
            raise ValueError(
                f"patch_size must divide both sides of the image, got {self.patch_size} and {sides}"
            )
        _ = self.transformer  # checks the rest

    @property
    def transformer(self) -> Transformer:
        """The transformer over flattened patches, with the class token, if any, in front."""
        height, width = self.image_size
        return Transformer(
            num_features=self.patch_size**2 * self.num_channels,
            max_length=height * width // self.patch_size**2 + (self.pooling == "class"),
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            width=self.width,
            num_outputs=self.num_outputs,
            mlp_width=self.mlp_width,
            pooling="first" if self.pooling == "class" else "mean",
            positions=self.positions,
            norm=self.norm,
            norm_gain=self.norm_gain,
            norm_bias=self.norm_bias,
            activation=self.activation,
            bias=self.bias,
            attention=self.attention,
        )

    @property
    def weights(self) -> dict[str, Weight]:
        """Those of the transformer, and the class token."""
        token = {"embedding.class": Weight((self.width,), ("embed",))} if self.pooling == "class" else {}
        return token | self.transformer.weights

    @property
    def output_dims(self) -> tuple[str, ...]:
        """("row", "output")."""
        return ("row", "output")

    def __call__(
        self, weights: Mapping[str, Array], x: Any, attend: Any = softmax
    ) -> Float[Array, "row output"]:
        """Outputs for images `x`; `attend` as in `Transformer`."""
        transformer = self.transformer
        hidden = transformer.embed(weights, self.patches(jnp.asarray(x)), None)
        if self.pooling == "class":
            token = jnp.broadcast_to(weights["embedding.class"], (hidden.shape[0], 1, self.width))
            hidden = jnp.concatenate([token, hidden], axis=1)
        return transformer.read(weights, transformer.locate(weights, hidden, None), None, attend)

    def patches(self, images: Array) -> Array:
        """Images (row, height, width, channel) to flattened patches (row, patch, feature)."""
        side, (height, width) = self.patch_size, self.image_size
        grid = images.reshape(-1, height // side, side, width // side, side, self.num_channels)
        return grid.transpose(0, 1, 3, 2, 4, 5).reshape(images.shape[0], -1, side * side * self.num_channels)

    def target_mask(self, x: Any) -> None:
        """None: every row counts."""
        return None

    def check(self, x: Any) -> None:
        """Raise unless `x` is a finite batch of images of the right size."""
        images = np.asarray(x)
        shape = ("rows", *self.image_size)
        if self.num_channels > 1 or images.ndim == 4:
            shape = (*shape, self.num_channels)
        checks.finite("images", checks.array("images", images, shape))
