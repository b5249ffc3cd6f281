"""The targets that benchmarks run on: real digits, a vision transformer of a chosen width."""

import jax
import jax.numpy as jnp

import ptx
from ptx import datasets, models
from ptx.models import likelihoods, priors


def digits(num_rows: int = 300) -> ptx.Data:
    """The first rows of the digits training part."""
    train = datasets.digits().train
    return ptx.Data(train.inputs[:num_rows], train.targets[:num_rows])


def model(width: int = 24, num_layers: int = 2) -> models.Bayesian:
    """A vision transformer over 2 x 2 patches of the 8 x 8 digits: 16 tokens, 4 heads; weights ~ N(0, 1)."""
    network = models.VisionTransformer(
        image_size=(8, 8),
        patch_size=2,
        num_layers=num_layers,
        num_heads=4,
        width=width,
        mlp_width=2 * width,
        num_outputs=10,
    )
    return models.bayesian(network, prior=priors.normal(), likelihood=likelihoods.categorical)


def size(target: ptx.Target) -> int:
    """Unconstrained parameters."""
    return sum(int(jnp.prod(jnp.asarray(site.unconstrained_shape))) for site in target.sites)


def by_hand(width: int = 24, num_heads: int = 4):
    """The same log density in plain JAX, without NumPyro and ptx's network: `f(weights, images, labels)`."""

    def norm(x, gain):
        centred = x - x.mean(-1, keepdims=True)
        return gain * centred / jnp.sqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5)

    def log_density(w, images, labels):
        rows = images.shape[0]
        patches = images.reshape(rows, 4, 2, 4, 2).transpose(0, 1, 3, 2, 4).reshape(rows * 16, 4)
        x = patches @ w["embedding.kernel"] + w["embedding.bias"]
        x = (x.reshape(rows, 16, width) + w["embedding.position"]).reshape(-1, width)
        layers = {name: value for name, value in w.items() if name.split(".")[0] in ("attention", "mlp")}

        def layer(x, p):
            x = x + attention(norm(x, p["attention.norm.gain"]), p, rows)
            h = norm(x, p["mlp.norm.gain"]) @ p["mlp.in"] + p["mlp.in.bias"]
            return x + jax.nn.gelu(h) @ p["mlp.out"] + p["mlp.out.bias"], None

        x, _ = jax.lax.scan(layer, x, layers)
        pooled = norm(x, w["head.norm.gain"]).reshape(rows, 16, width).mean(1)
        logits = jax.nn.log_softmax(pooled @ w["head.kernel"] + w["head.bias"])
        return jnp.take_along_axis(logits, labels[:, None], 1).sum() - prior(w)

    def attention(x, p, rows):
        def project(name, bias=0.0):
            flat = x @ p[f"attention.{name}"].reshape(width, -1) + bias
            return flat.reshape(rows, 16, num_heads, width // num_heads).transpose(0, 2, 1, 3)

        q, k, v = project("query", p["attention.query.bias"].reshape(-1)), project("key"), project("value")
        probabilities = jax.nn.softmax(q @ k.swapaxes(-1, -2) / jnp.sqrt(width // num_heads))
        mixed = (probabilities @ v).transpose(0, 2, 1, 3).reshape(-1, width)
        return mixed @ p["attention.output"].reshape(-1, width) + p["attention.output.bias"]

    def prior(w):
        return 0.5 * sum(jnp.sum((value - name.endswith("gain")) ** 2) for name, value in w.items())

    return log_density
