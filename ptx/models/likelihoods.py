"""Likelihoods: how targets scatter around a network's outputs.

Each samples the observed site `targets` inside `numpyro.plate("rows", N, dim=-1)`: one independent term per row, in nats, summed over
whatever a row holds (tokens, outputs) and never averaged. Entries that a padding mask rules out count exactly zero.

Shapes, with outputs of shape (row, output) or (row, token, output): a class label takes the place of the output axis. Real and binary
targets have the shape of the outputs, except that an output axis of length 1 is dropped: num_outputs=1 pairs with targets (row,). Targets
of shape (row, 1) are refused, since (row, 1) against (row,) would broadcast to row x row terms.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float

from ptx.models import checks
from ptx.models.network import Weight
from ptx.models.priors import Prior, as_prior

Outputs = Float[Array, "row *token output"]
Valid = Bool[Array, "row token"] | None


class Likelihood(Protocol):
    """A frozen, value-hashed record that observes targets given outputs."""

    @property
    def sites(self) -> dict[str, tuple[str, ...]]:
        """Dimension names of the latent sites that it adds to the model."""
        ...

    def target_dims(self, output_dims: tuple[str, ...], num_outputs: int) -> tuple[str, ...]:
        """Dimension names of `targets`."""
        ...

    def __call__(self, outputs: Outputs, targets: Any, valid: Valid = None) -> None:
        """Sample or observe `targets`; entries where `valid` is False count zero."""
        ...

    def check(self, shape: tuple[int, ...], targets: Any, valid: np.ndarray | None = None) -> None:
        """Raise ValueError or TypeError unless concrete `targets` fit outputs of `shape`."""
        ...


@dataclass(frozen=True)
class categorical:
    """log p(y | outputs) = outputs_y - log sum_c exp(outputs_c), summed over the valid tokens of a row if outputs are per token.

    Targets: labels in [0, num_outputs), of shape (row,) or (row, token). Integers, or floats that are whole numbers.
    ignore_index: a label, such as -100, that marks an entry to leave out like padding; None refuses any label out of range.
    """

    ignore_index: int | None = None

    def __post_init__(self) -> None:
        if self.ignore_index is not None and (isinstance(self.ignore_index, bool) or not isinstance(self.ignore_index, int)):
            raise TypeError(f"ignore_index must be a whole number or None, got {self.ignore_index!r}")

    @property
    def sites(self) -> dict[str, tuple[str, ...]]:
        """None."""
        return {}

    def target_dims(self, output_dims: tuple[str, ...], num_outputs: int) -> tuple[str, ...]:
        """Those of the outputs without the last."""
        return output_dims[:-1]

    def __call__(self, outputs: Outputs, targets: Any, valid: Valid = None) -> None:
        """Sample or observe `targets`."""
        _require_classes(outputs.shape)
        if targets is not None:
            targets = jnp.asarray(targets).astype(jnp.int32)
            if self.ignore_index is not None:
                kept = targets != self.ignore_index
                valid = kept if valid is None else kept & valid
        _observe(dist.Categorical(logits=_at_least_float32(outputs)), targets, valid)

    def check(self, shape: tuple[int, ...], targets: Any, valid: np.ndarray | None = None) -> None:
        """Raise unless `targets` are labels in [0, num_outputs) of the outputs' shape without its last axis."""
        _require_classes(shape)
        labels = _array(targets, shape[:-1], "class labels")
        if self.ignore_index is not None:
            kept = labels != self.ignore_index
            valid = kept if valid is None else kept & valid
        checks.within("targets", labels, shape[-1], valid, floats=True)


@dataclass(frozen=True)
class bernoulli:
    """log p(y | outputs) = y log s(outputs) + (1 - y) log s(-outputs), with s the logistic function, summed within a row.

    Targets: 0 or 1 (booleans and whole floats too), of shape (row,) if num_outputs is 1, (row, output) otherwise.
    """

    @property
    def sites(self) -> dict[str, tuple[str, ...]]:
        """None."""
        return {}

    def target_dims(self, output_dims: tuple[str, ...], num_outputs: int) -> tuple[str, ...]:
        """Those of the outputs, without the last if it has length 1."""
        return _dropped(output_dims, num_outputs)

    def __call__(self, outputs: Outputs, targets: Any, valid: Valid = None) -> None:
        """Sample or observe `targets`."""
        targets = None if targets is None else jnp.asarray(targets).astype(jnp.int32)
        _observe(dist.Bernoulli(logits=_at_least_float32(_squeeze(outputs))), targets, valid)

    def check(self, shape: tuple[int, ...], targets: Any, valid: np.ndarray | None = None) -> None:
        """Raise unless `targets` are 0 or 1 and of the outputs' shape."""
        labels = _array(targets, _dropped(shape, shape[-1]), "binary targets")
        labels = labels.astype(np.int32) if labels.dtype == bool else labels
        checks.within("targets", labels, 2, valid, floats=True)


@dataclass(frozen=True)
class normal:
    """log p(y | outputs) = log Normal(y; outputs, scale), summed within a row. `scale` is the standard deviation, not the variance.

    scale: a positive number if the noise is known, or a prior over positive numbers such as `priors.half_normal(1.0)`. A prior adds the
        latent site `noise_scale`, one number shared by all outputs.
    Targets: finite and real, of shape (row,) if num_outputs is 1, (row, output) otherwise.
    """

    scale: float | Prior = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", _check_noise(self.scale))

    @property
    def sites(self) -> dict[str, tuple[str, ...]]:
        """`noise_scale` if the noise is learned."""
        return {"noise_scale": ()} if callable(self.scale) else {}

    def target_dims(self, output_dims: tuple[str, ...], num_outputs: int) -> tuple[str, ...]:
        """Those of the outputs, without the last if it has length 1."""
        return _dropped(output_dims, num_outputs)

    def __call__(self, outputs: Outputs, targets: Any, valid: Valid = None) -> None:
        """Sample or observe `targets`."""
        outputs = _at_least_float32(_squeeze(outputs))
        _observe(dist.Normal(outputs, _noise(self.scale)), _real(targets, outputs), valid)

    def check(self, shape: tuple[int, ...], targets: Any, valid: np.ndarray | None = None) -> None:
        """Raise unless `targets` are finite and of the outputs' shape."""
        checks.finite("targets", _array(targets, _dropped(shape, shape[-1]), "real targets"), valid)


@dataclass(frozen=True)
class student_t:
    """log p(y | outputs) = log StudentT(y; df, outputs, scale), summed within a row: noise with heavy tails.

    df is known. scale: as for `normal`, a positive number or a prior (site `noise_scale`); the sd is scale sqrt(df / (df - 2)).
    Targets: as for `normal`.
    """

    df: float = 4.0
    scale: float | Prior = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "df", checks.positive("df", self.df))
        object.__setattr__(self, "scale", _check_noise(self.scale))

    @property
    def sites(self) -> dict[str, tuple[str, ...]]:
        """`noise_scale` if the noise is learned."""
        return {"noise_scale": ()} if callable(self.scale) else {}

    def target_dims(self, output_dims: tuple[str, ...], num_outputs: int) -> tuple[str, ...]:
        """Those of the outputs, without the last if it has length 1."""
        return _dropped(output_dims, num_outputs)

    def __call__(self, outputs: Outputs, targets: Any, valid: Valid = None) -> None:
        """Sample or observe `targets`."""
        outputs = _at_least_float32(_squeeze(outputs))
        _observe(dist.StudentT(self.df, outputs, _noise(self.scale)), _real(targets, outputs), valid)

    def check(self, shape: tuple[int, ...], targets: Any, valid: np.ndarray | None = None) -> None:
        """Raise unless `targets` are finite and of the outputs' shape."""
        checks.finite("targets", _array(targets, _dropped(shape, shape[-1]), "real targets"), valid)


def as_likelihood(likelihood: Any) -> Any:
    """`likelihood`, made with its defaults if it came as a class: `likelihoods.normal` is `likelihoods.normal()`."""
    likelihood = likelihood() if isinstance(likelihood, type) else likelihood
    if not (callable(likelihood) and hasattr(likelihood, "check") and hasattr(likelihood, "sites")):
        raise TypeError(f"a likelihood is likelihoods.categorical(), bernoulli(), normal() or student_t(), got {likelihood!r}")
    return likelihood


def _observe(distribution: dist.Distribution, targets: Array | None, valid: Valid) -> None:
    if valid is not None:
        distribution = distribution.to_event(len(distribution.batch_shape) - valid.ndim).mask(valid)
        if targets is not None:
            # A label under the mask may be anything; give it a value that lies in every support.
            targets = jnp.where(valid.reshape(valid.shape + (1,) * (targets.ndim - valid.ndim)), targets, 0)
    distribution = distribution.to_event(len(distribution.batch_shape) - 1)
    with numpyro.plate("rows", distribution.batch_shape[0], dim=-1):
        numpyro.sample("targets", distribution, obs=targets)


def _noise(scale: float | Prior) -> Any:
    return numpyro.sample("noise_scale", scale(Weight((), ()))) if callable(scale) else scale


def _check_noise(scale: Any) -> float | Prior:
    if isinstance(scale, type) or callable(scale):
        prior: Callable[[Weight], dist.Distribution] = as_prior(scale)
        support = prior(Weight((), ())).support
        if any(bool(support(value)) for value in (-1e6, -1.0, -1e-6)):
            raise ValueError(f"the prior of a noise scale must have positive support, as priors.half_normal() has; {prior!r} has {support}")
        return prior
    return checks.positive("scale", scale)


def _require_classes(shape: tuple[int, ...]) -> None:
    if shape[-1] < 2:
        raise ValueError("categorical needs a network with num_outputs >= 2; for one logit per row use likelihoods.bernoulli")


def _array(targets: Any, shape: tuple[int, ...], kind: str) -> np.ndarray:
    found = np.asarray(targets)
    if found.shape != shape:
        advice = "; use targets[..., 0]" if found.shape == (*shape, 1) else ""
        raise ValueError(f"{kind} must have shape {shape} to match the network's outputs, got {found.shape}{advice}")
    return found


def _dropped(axes: tuple[Any, ...], num_outputs: int) -> tuple[Any, ...]:
    return axes[:-1] if num_outputs == 1 else axes


def _squeeze(outputs: Outputs) -> Array:
    return outputs[..., 0] if outputs.shape[-1] == 1 else outputs


def _real(targets: Any, outputs: Array) -> Array | None:
    return None if targets is None else jnp.asarray(targets).astype(outputs.dtype)


def _at_least_float32(outputs: Array) -> Array:
    return outputs.astype(jnp.promote_types(outputs.dtype, jnp.float32))
