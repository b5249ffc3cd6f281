# %% [markdown]
# # One model, four engines
# A vision transformer over the digits of scikit-learn is defined once. Another engine is one changed expression.

# %%
import ptx
from ptx import datasets, inference, models
from ptx.diagnostics import accuracy, log_loss
from ptx.models import likelihoods, priors

digits = datasets.digits()
train = datasets.subset(digits.train, 200, seed=0)
network = models.VisionTransformer(
    image_size=(8, 8), patch_size=4, num_layers=1, num_heads=2, width=8, mlp_width=16, num_outputs=10
)
model = models.bayesian(network, prior=priors.normal(), likelihood=likelihoods.categorical)

# %%
engines = {
    "MAP": inference.MAP(num_steps=500, learning_rate=0.02),
    "SVI": inference.SVI(
        guide_options=(("init_scale", 0.01),),
        num_steps=1500,
        learning_rate=inference.Cosine(0.02, 1500),
        num_draws=50,
    ),
    "cyclical SGLD": inference.CyclicalSGLD(num_draws=40, num_cycles=4, thin=10, step_size=1e-3),
    "NUTS": inference.NUTS(num_warmup=40, num_draws=20, num_chains=2, max_tree_depth=5, step_size=0.05),
}
for name, engine in engines.items():
    posterior = ptx.infer(0, model, train, engine, progress=False)
    predictive = ptx.predict(1, posterior, digits.test.inputs)
    probs = predictive.mean_probabilities()
    print(
        f"{name:14} accuracy {accuracy(probs, digits.test.targets):.3f}  "
        f"NLL {log_loss(probs, digits.test.targets):.3f} nats  "
        f"{posterior.attributes['gradient_evaluations']} gradients in {posterior.attributes['seconds']:.1f} s"
    )
