"""Models that tests share, with exact answers where they have one."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

NUM_ROWS = 20


def regression_data(num_rows=NUM_ROWS, seed=0):
    """Inputs (rows, 3) and targets of a linear regression with noise 0.7."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(num_rows, 3))
    return inputs, inputs @ np.array([1.0, -2.0, 0.5]) + 0.7 * rng.normal(size=num_rows)


def regression(inputs, targets=None):
    """w ~ N(0, 2^2 I), y ~ N(X w, 0.7^2): conjugate."""
    w = numpyro.sample("w", dist.Normal(0, 2.0).expand([3]).to_event(1))
    with numpyro.plate("rows", inputs.shape[0]):
        numpyro.sample("y", dist.Normal(inputs @ w, 0.7), obs=targets)


def regression_posterior(inputs, targets):
    """Mean and covariance of w."""
    precision = np.eye(3) / 4 + inputs.T @ inputs / 0.49
    covariance = np.linalg.inv(precision)
    return covariance @ inputs.T @ targets / 0.49, covariance


def constrained(inputs, targets=None):
    """One site on every kind of support, two observed sites and a factor."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    weights = numpyro.sample("weights", dist.Dirichlet(2 * jnp.ones(3)))
    cuts = numpyro.sample(
        "cuts",
        dist.TransformedDistribution(dist.Normal(0, 1).expand([2]), dist.transforms.OrderedTransform()),
    )
    share = numpyro.sample("share", dist.Beta(2.0, 3.0))
    numpyro.factor("closer", -0.5 * jnp.sum(cuts**2))
    sign = None if targets is None else (targets > 0).astype(int)
    with numpyro.plate("rows", inputs.shape[0]):
        numpyro.sample("y", dist.Normal(inputs @ weights + cuts[0] + share, scale), obs=targets)
        numpyro.sample("sign", dist.Bernoulli(logits=inputs @ weights), obs=sign)


def broken_beyond(inputs, targets=None):
    """A density that is NaN where the weight exceeds 0.5, inside the bulk of the posterior."""
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("rows", inputs.shape[0]):
        numpyro.sample("y", dist.Normal(jnp.sqrt(0.5 - w), 1.0), obs=targets)


def nan_everywhere(inputs, targets=None):
    """No start has a finite density."""
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("rows", inputs.shape[0]):
        numpyro.sample("y", dist.Normal(jnp.sqrt(-1.0 - w**2), 1.0), obs=targets)
