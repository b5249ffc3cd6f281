"""Likelihoods: how targets scatter around a network's outputs.

Each samples the observed site `targets` inside `numpyro.plate("rows", N, dim=-1)`: one independent term per
row, in nats, summed over whatever a row holds (tokens, outputs) and never averaged. Entries that a padding
mask rules out count exactly zero.

Shapes, with outputs of shape (row, output) or (row, token, output): a class label takes the place of the
output axis. Real and binary targets have the shape of the outputs, except that an output axis of length 1 is
dropped: num_outputs=1 pairs with targets (row,). Targets of shape (row, 1) are refused, since (row, 1) against
(row,) would broadcast to row x row terms.
"""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from ptx.models import checks
from ptx.models.observed import (
    Outputs,
    Valid,
    at_least_float32,
    check_noise,
    drop_single,
    noise,
    observe,
    real,
    require_classes,
    shaped,
    squeeze,
)
from ptx.models.priors import Prior


@runtime_checkable
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
    """log p(y | outputs) = outputs_y - log sum_c exp(outputs_c), summed over the real tokens of a row.

    Targets: labels in [0, num_outputs), of shape (row,), or (row, token) if outputs are per token. Integers, or
    floats that are whole numbers.
    ignore_index: a label, such as -100, that marks an entry to leave out like padding. None: every label counts
        unless the padding mask of the inputs rules it out.
    """

    ignore_index: int | None = None

    def __post_init__(self) -> None:
        if self.ignore_index is not None and (
            isinstance(self.ignore_index, bool) or not isinstance(self.ignore_index, int)
        ):
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
        require_classes(outputs.shape)
        if targets is not None:
            targets = jnp.asarray(targets).astype(jnp.int32)
            if self.ignore_index is not None:
                kept = targets != self.ignore_index
                valid = kept if valid is None else kept & valid
        observe(dist.CategoricalLogits(at_least_float32(outputs)), targets, valid)

    def check(self, shape: tuple[int, ...], targets: Any, valid: np.ndarray | None = None) -> None:
        """Raise unless `targets` are labels in [0, num_outputs), one for each vector of outputs."""
        require_classes(shape)
        labels = shaped(targets, shape[:-1], "class labels")
        if self.ignore_index is not None:
            kept = labels != self.ignore_index
            valid = kept if valid is None else kept & valid
        checks.within("targets", labels, shape[-1], valid, floats=True)


@dataclass(frozen=True)
class bernoulli:
    """log p(y | outputs) = y log s(outputs) + (1 - y) log s(-outputs), s the logistic, summed within a row.

    Targets: 0 or 1 (booleans and whole floats too), of shape (row,) if num_outputs is 1, else (row, output).
    """

    @property
    def sites(self) -> dict[str, tuple[str, ...]]:
        """None."""
        return {}

    def target_dims(self, output_dims: tuple[str, ...], num_outputs: int) -> tuple[str, ...]:
        """Those of the outputs, without the last if it has length 1."""
        return drop_single(output_dims, num_outputs)

    def __call__(self, outputs: Outputs, targets: Any, valid: Valid = None) -> None:
        """Sample or observe `targets`."""
        targets = None if targets is None else jnp.asarray(targets).astype(jnp.int32)
        observe(dist.BernoulliLogits(at_least_float32(squeeze(outputs))), targets, valid)

    def check(self, shape: tuple[int, ...], targets: Any, valid: np.ndarray | None = None) -> None:
        """Raise unless `targets` are 0 or 1 and of the outputs' shape."""
        labels = shaped(targets, drop_single(shape, shape[-1]), "binary targets")
        labels = labels.astype(np.int32) if labels.dtype == bool else labels
        checks.within("targets", labels, 2, valid, floats=True)


@dataclass(frozen=True)
class normal:
    """log p(y | outputs) = log Normal(y; outputs, scale), summed within a row; scale is the sd, not the variance.

    scale: a positive number if the noise is known, or a prior over positive numbers such as
        `priors.half_normal(1.0)`. A prior adds the latent site `noise_scale`, one number shared by all
        outputs.
    Targets: finite and real, of shape (row,) if num_outputs is 1, else (row, output).
    """

    scale: float | Prior = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", check_noise(self.scale))

    @property
    def sites(self) -> dict[str, tuple[str, ...]]:
        """`noise_scale` if the noise is learned."""
        return {"noise_scale": ()} if callable(self.scale) else {}

    def target_dims(self, output_dims: tuple[str, ...], num_outputs: int) -> tuple[str, ...]:
        """Those of the outputs, without the last if it has length 1."""
        return drop_single(output_dims, num_outputs)

    def __call__(self, outputs: Outputs, targets: Any, valid: Valid = None) -> None:
        """Sample or observe `targets`."""
        outputs = at_least_float32(squeeze(outputs))
        observe(dist.Normal(outputs, noise(self.scale)), real(targets, outputs), valid)

    def check(self, shape: tuple[int, ...], targets: Any, valid: np.ndarray | None = None) -> None:
        """Raise unless `targets` are finite and of the outputs' shape."""
        checks.finite("targets", shaped(targets, drop_single(shape, shape[-1]), "real targets"), valid)


@dataclass(frozen=True)
class student_t:
    """log p(y | outputs) = log StudentT(y; df, outputs, scale), summed within a row: noise with heavy tails.

    df is known. scale: as for `normal`, a positive number or a prior (site `noise_scale`); the sd is scale
    sqrt(df / (df - 2)).
    Targets: as for `normal`.
    """

    df: float = 4.0
    scale: float | Prior = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "df", checks.positive("df", self.df))
        object.__setattr__(self, "scale", check_noise(self.scale))

    @property
    def sites(self) -> dict[str, tuple[str, ...]]:
        """`noise_scale` if the noise is learned."""
        return {"noise_scale": ()} if callable(self.scale) else {}

    def target_dims(self, output_dims: tuple[str, ...], num_outputs: int) -> tuple[str, ...]:
        """Those of the outputs, without the last if it has length 1."""
        return drop_single(output_dims, num_outputs)

    def __call__(self, outputs: Outputs, targets: Any, valid: Valid = None) -> None:
        """Sample or observe `targets`."""
        outputs = at_least_float32(squeeze(outputs))
        observe(dist.StudentT(self.df, outputs, noise(self.scale)), real(targets, outputs), valid)

    def check(self, shape: tuple[int, ...], targets: Any, valid: np.ndarray | None = None) -> None:
        """Raise unless `targets` are finite and of the outputs' shape."""
        checks.finite("targets", shaped(targets, drop_single(shape, shape[-1]), "real targets"), valid)


def as_likelihood(likelihood: Any) -> Any:
    """`likelihood`, with its defaults if it came as a class: `likelihoods.normal` is `likelihoods.normal()`."""
    likelihood = likelihood() if isinstance(likelihood, type) else likelihood
    if not isinstance(likelihood, Likelihood):
        raise TypeError(
            "a likelihood is likelihoods.categorical(), bernoulli(), normal() or student_t(), "
            f"got {likelihood!r}"
        )
    return likelihood
