"""What a network is, and the pure functions that networks share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

EPSILON = 1e-5  # added to the variance or mean square inside a norm


@dataclass(frozen=True)
class Weight:
    """Shape, dimension names and fan-in of one kind of weight.

    fan_in: number of terms that one output of the layer sums over, layers apart: embed for `attention.query`,
        head * head_dim for `attention.output`. None where no such sum exists: biases, norm gains and
        embedding tables (a look-up picks one row).
    center: where a prior puts its location: 1 for norm gains, so that the prior mean leaves the norm alone,
        and 0 for the rest.
    """

    shape: tuple[int, ...]
    dims: tuple[str, ...]
    fan_in: int | None = None
    center: float = 0.0

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.dims) or len(set(self.dims)) != len(self.dims):
            raise ValueError(
                f"a weight needs one distinct name per axis: shape {self.shape}, dims {self.dims}"
            )


@runtime_checkable
class Network(Protocol):
    """A frozen, value-hashed record of sizes with a pure function `(weights, inputs) -> outputs`."""

    @property
    def num_outputs(self) -> int:
        """Length of the last axis of the outputs."""
        ...

    @property
    def weights(self) -> dict[str, Weight]:
        """Every weight by its site name."""
        ...

    @property
    def output_dims(self) -> tuple[str, ...]:
        """Dimension names of the outputs; the first is "row"."""
        ...

    def __call__(self, weights: Mapping[str, Array], x: Any) -> Array:
        """Outputs, shape (row, ..., output)."""
        ...

    def target_mask(self, x: Any) -> Array | None:
        """True where an entry of the targets counts, shape (row, token); None where all do."""
        ...

    def check(self, x: Any) -> None:
        """Raise ValueError or TypeError unless `x` is a concrete batch that the network can take."""
        ...


def layer_norm(x: Float[Array, "*batch embed"]) -> Float[Array, "*batch embed"]:
    """(x - mean(x)) / sqrt(var(x) + 1e-5) over the last axis, var with divisor n; Ba et al. (2016).

    Gain and bias come after.
    """
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + EPSILON)


def rms_norm(x: Float[Array, "*batch embed"]) -> Float[Array, "*batch embed"]:
    """x / sqrt(mean(x^2) + 1e-5) over the last axis; Zhang and Sennrich (2019). Gain and bias come after."""
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + EPSILON)


def dense(
    x: Float[Array, "batch features"],
    kernel: Float[Array, "features outputs"],
    bias: Float[Array, " outputs"] | None = None,
) -> Float[Array, "batch outputs"]:
    """x W + b on rows already flattened, so that the gradient of W is one matrix product.

    On CPU that takes half the time of the batched product over (row, token, feature).
    """
    product = x @ kernel
    return product if bias is None else product + bias[None, :]
