"""A fully connected network."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ptx.models import checks
from ptx.models.network import Weight, dense

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "gelu": jax.nn.gelu,
}


@dataclass(frozen=True, kw_only=True)
class MLP:
    """h_0 = x, h_i = f(h_{i-1} W_i + b_i), outputs = h_n W + b.

    Inputs: (row, feature), real. Outputs: (row, output), even when `num_outputs` is 1.
    Sites: `hidden.0.kernel`, `hidden.0.bias`, ..., `head.kernel`, `head.bias`. `hidden=()` is a linear model.
    Raises TypeError or ValueError on sizes below 1 and unknown activations.
    """

    num_features: int
    num_outputs: int
    hidden: tuple[int, ...] = (32,)
    activation: Literal["tanh", "relu", "gelu"] = "tanh"
    bias: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_features", checks.size("num_features", self.num_features))
        object.__setattr__(self, "num_outputs", checks.size("num_outputs", self.num_outputs))
        object.__setattr__(self, "hidden", tuple(checks.size("hidden", width) for width in self.hidden))
        checks.choice("activation", self.activation, tuple(ACTIVATIONS))
        checks.flag("bias", self.bias)

    @property
    def weights(self) -> dict[str, Weight]:
        """Kernel and bias of each layer, from the inputs to the outputs."""
        layers = [(f"hidden.{i}", width, f"hidden_{i}") for i, width in enumerate(self.hidden)]
        weights: dict[str, Weight] = {}
        fan_in, dim_in = self.num_features, "feature"
        for name, width, dim in (*layers, ("head", self.num_outputs, "output")):
            weights[f"{name}.kernel"] = Weight((fan_in, width), (dim_in, dim), fan_in)
            if self.bias:
                weights[f"{name}.bias"] = Weight((width,), (dim,))
            fan_in, dim_in = width, dim
        return weights

    @property
    def output_dims(self) -> tuple[str, ...]:
        """("row", "output")."""
        return ("row", "output")

    def __call__(self, weights: Mapping[str, Array], x: Any) -> Float[Array, "row output"]:
        """Outputs for inputs `x` of shape (row, feature)."""
        hidden = jnp.asarray(x).astype(weights["head.kernel"].dtype)
        for i in range(len(self.hidden)):
            hidden = dense(hidden, weights[f"hidden.{i}.kernel"], weights.get(f"hidden.{i}.bias"))
            hidden = ACTIVATIONS[self.activation](hidden)
        return dense(hidden, weights["head.kernel"], weights.get("head.bias"))

    def target_mask(self, x: Any) -> None:
        """None: every row counts."""
        return None

    def check(self, x: Any) -> None:
        """Raise unless `x` is finite, of shape (row, num_features)."""
        checks.finite("inputs", checks.array("inputs", x, ("rows", self.num_features)))
