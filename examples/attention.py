# %% [markdown]
# # Attention rows as latents
# The vision transformer of the digits with Dirichlet attention: each row of each head is a latent on the simplex.
# MAP and SVI integrate the rows by the posterior that the model carries for them; NUTS samples them.

# %%
import dataclasses

import numpy as np

import ptx
from ptx import datasets, inference, models
from ptx.diagnostics import accuracy, entropy_decomposition, log_loss
from ptx.models import attention, likelihoods, priors

digits = datasets.digits()
train = datasets.subset(digits.train, 300, seed=0)
test = datasets.subset(digits.test, 200, seed=0)
plain = models.VisionTransformer(
    image_size=(8, 8),
    patch_size=4,
    num_layers=1,
    num_heads=2,
    width=8,
    mlp_width=16,
    num_outputs=10,
    bias=False,
    norm_gain=False,
)
random = dataclasses.replace(plain, attention=attention.dirichlet(sharpness=20.0, prior="contextual"))
prior = priors.by_site(
    {
        "head.kernel": priors.normal("fan_in", gain=8.0),
        "embedding.kernel": priors.normal("fan_in", gain=2.0),
        "*": priors.normal("fan_in"),
    }
)


def model_of(network):
    return models.bayesian(network, prior=prior, likelihood=likelihoods.categorical)


# %% [markdown]
# ## Weights by MAP or by SVI, rows by their own posterior
# `kl_weight` is the factor of KL(posterior, prior) of the rows, 1 for a bound on the evidence. An image has 8 rows of
# 4 entries here and one label, so that the KL of the rows soon outweighs the likelihood; with 0.001 the objective is
# tempered, and no bound.

# %%
schedule = inference.Cosine(0.03, 600)
settings = {"num_steps": 600, "learning_rate": schedule, "kl_weight": 0.001}
fits = {
    "softmax, MAP": (plain, inference.MAP(**settings), 1),
    "Dirichlet, MAP": (random, inference.MAP(**settings), 20),
    "Dirichlet, SVI": (
        random,
        inference.SVI(guide_options=(("init_scale", 0.01),), num_draws=10, **settings),
        2,
    ),
}
posteriors = {}
for name, (network, engine, row_draws) in fits.items():
    posteriors[name] = ptx.infer(0, model_of(network), train, engine, progress=False)
    predictive = ptx.predict(
        1, posteriors[name], test.inputs, sites=["targets"], simulated=False, row_draws=row_draws
    )
    probs = predictive.mean_probabilities()
    split = entropy_decomposition(predictive.probabilities["targets"])
    print(
        f"{name:15} accuracy {accuracy(probs, test.targets):.3f}  NLL {log_loss(probs, test.targets):.3f} nats  "
        f"entropy {split.predictive.mean():.3f}, of which draws disagree on {split.mutual_information.mean():.3f}"
    )

# %% [markdown]
# ## The rows of one image
# `attention.probs` has dims (chain, draw, row, layer, head, query, key). Mean and standard deviation over draws:

# %%
rows = ptx.predict(2, posteriors["Dirichlet, MAP"], test.inputs[:1], sites=["attention.probs"], row_draws=200)
probs = rows.deterministic["attention.probs"][
    0, :, 0, 0, 0
]  # chain, row, layer and head 0: (draw, query, key)
for query, (mean, spread) in enumerate(zip(probs.mean(0), probs.std(0), strict=True)):
    print(
        f"patch {query} looks at", "  ".join(f"{m:.2f} ± {s:.2f}" for m, s in zip(mean, spread, strict=True))
    )

# %% [markdown]
# ## NUTS over weights and rows
# To a sampler a row is a latent like any other, with its prior alone: no posterior of the model's is involved. There is
# one for each image, head and patch, so this is for small data: here two images of two patches.

# %%
tiny = models.Transformer(
    num_features=4,
    max_length=2,
    num_layers=1,
    num_heads=1,
    width=2,
    mlp_width=2,
    num_outputs=2,
    bias=False,
    norm_gain=False,
    attention="dirichlet",
)
rng = np.random.default_rng(0)
data = ptx.Data(rng.normal(size=(2, 2, 4)).astype(np.float32), np.array([0, 1]))
engine = inference.NUTS(
    num_warmup=200, num_draws=200, num_chains=2, max_tree_depth=6, target_acceptance_rate=0.99
)
posterior = ptx.infer(0, model_of(tiny), data, engine, progress=False)
tree = ptx.to_datatree(posterior)
sampled = tree["posterior"]["attention.probs"]
print("dims", sampled.dims, "shape", sampled.shape)
print(
    "mean of the weight on key 0, by image and query:", sampled[..., 0].mean(("chain", "draw")).values.ravel()
)
