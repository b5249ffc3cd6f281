"""A network, a prior and a likelihood make a model."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array

from ptx.models.attention import softmax
from ptx.models.likelihoods import Likelihood, as_likelihood
from ptx.models.network import Network, Weight
from ptx.models.priors import Prior, as_prior, assign, by_site


@dataclass(frozen=True)
class Bayesian:
    """The NumPyro program p(weights) p(targets | network(weights, inputs)); make it with `bayesian`.

    Called as `model(inputs, targets=None)` it samples one site for each weight, records the network's output
    as deterministic site `outputs` and samples or observes `targets`. Where the network's attention is random its rows
    are sampled inside, and recorded as deterministic site `attention.probs`. Weights carry infer={"init": "prior"}:
    chains start them at a prior draw. Equal parts make equal models with equal hashes, so a second one
    compiles nothing again.
    """

    network: Network
    prior: Prior | by_site
    likelihood: Likelihood

    def __post_init__(self) -> None:
        if not isinstance(self.network, Network) or isinstance(self.network, type):
            raise TypeError(
                f"a network is MLP(...), Transformer(...) or VisionTransformer(...), got {self.network!r}"
            )
        try:
            hash(self)
        except TypeError as error:  # it would fail far away, inside jit
            raise TypeError(
                f"network, prior and likelihood must be hashable, as frozen dataclasses are: {error}"
            ) from None
        weights = self.network.weights
        for name, prior in assign(self.prior, weights).items():
            _distribution(name, weights[name], prior)

    def __call__(self, inputs: Any, targets: Any = None) -> None:
        """Run the program under whatever NumPyro handlers are active."""
        specifications = self.network.weights
        weights = {
            name: _sample(name, specifications[name], prior)
            for name, prior in assign(self.prior, specifications).items()
        }
        outputs = jnp.asarray(numpyro.deterministic("outputs", self._outputs(weights, inputs)))
        self.likelihood(outputs, targets, self.network.target_mask(inputs))

    def _outputs(self, weights: dict[str, Array], inputs: Any) -> Array:
        """The network's, its attention rows sampled where they are latents."""
        if self._random_attention is None:
            return self.network(weights, inputs)
        rows = self._random_attention.start(*_heads(self.network))
        network: Any = self.network  # one that takes an attention
        outputs = network(weights, inputs, rows)
        numpyro.deterministic("attention.probs", jnp.stack(rows.probs, axis=1))
        return outputs

    @property
    def _random_attention(self) -> Any:
        """The network's kind of attention where its rows are latents; None where it has none such."""
        attention = getattr(self.network, "attention", None)
        return None if isinstance(attention, softmax) else attention

    @property
    def dims(self) -> dict[str, tuple[str, ...]]:
        """Dimension names of every site: weights, learned noise, `outputs`, `targets`."""
        weights = {name: weight.dims for name, weight in self.network.weights.items()}
        output_dims = self.network.output_dims
        target_dims = self.likelihood.target_dims(output_dims, self.network.num_outputs)
        attention = self._random_attention
        rows = {} if attention is None else attention.sites(_heads(self.network)[0])
        return {**weights, **rows, **self.likelihood.sites, "outputs": output_dims, "targets": target_dims}

    def check(self, inputs: Any, targets: Any = None) -> None:
        """Raise TypeError or ValueError unless concrete `inputs` and `targets` fit the model."""
        self.network.check(inputs)
        if targets is None:
            return
        weights = {
            name: jax.ShapeDtypeStruct(w.shape, jnp.float32) for name, w in self.network.weights.items()
        }
        outputs = jax.eval_shape(lambda weights: self.network(weights, inputs), weights)
        valid = self.network.target_mask(inputs)
        self.likelihood.check(outputs.shape, targets, None if valid is None else np.asarray(valid))


def bayesian(network: Network, prior: Any, likelihood: Any) -> Bayesian:
    """p(weights, targets | inputs) = prod_w prior(w) prod_n likelihood(targets_n | network(weights, inputs_n))

    prior: a member of `priors`, called or not (`priors.normal` is `priors.normal()`), or
    `priors.by_site({...})`.
    likelihood: a member of `likelihoods`, called or not.
    Raises ValueError if a `by_site` rule wins no weight or a weight has no rule; TypeError for parts of
    another kind.

    >>> from ptx.models import MLP, bayesian, likelihoods, priors
    >>> model = bayesian(MLP(num_features=2, num_outputs=3), priors.normal(), likelihoods.categorical)
    >>> model.dims["head.kernel"]
    ('hidden_0', 'output')
    """
    return Bayesian(network, as_prior(prior), as_likelihood(likelihood))


def _heads(network: Any) -> tuple[int, int, int]:
    """Layers, heads of each, and dimensions of a head."""
    return network.num_layers, network.num_heads, network.width // network.num_heads


def _sample(name: str, weight: Weight, prior: Prior) -> Array:
    return jnp.asarray(numpyro.sample(name, _distribution(name, weight, prior), infer={"init": "prior"}))


def _distribution(name: str, weight: Weight, prior: Prior) -> dist.Distribution:
    distribution = prior(weight)
    if not isinstance(distribution, dist.Distribution):
        raise TypeError(f"the prior of {name!r} must return a NumPyro distribution, got {distribution!r}")
    if distribution.shape() == ():
        distribution = distribution.expand(weight.shape)
    if distribution.shape() != weight.shape:
        raise ValueError(
            f"the prior of {name!r} has shape {distribution.shape()}, expected () or {weight.shape}"
        )
    return distribution.to_event(len(distribution.batch_shape))
