# %% [markdown]
# # Part-of-speech tags, one output a token
# A tagger on UD English-EWT. Masked positions count exactly zero, in the likelihood and in every score.

# %%
import ptx
from ptx import datasets, models
from ptx.diagnostics import accuracy, entropy_decomposition
from ptx.inference import MAP
from ptx.models import likelihoods, priors

corpus = datasets.tokenize(datasets.ud_ewt(), vocab_size=1000, max_length=24)
train = datasets.subset(corpus.train, 1000, seed=0)
test = datasets.subset(corpus.test, 300, seed=0)
network = models.Transformer(
    vocab_size=1000,
    max_length=24,
    num_layers=1,
    num_heads=2,
    width=16,
    num_outputs=len(corpus.classes),
    pooling=None,
)
model = models.bayesian(network, prior=priors.normal(scale="fan_in"), likelihood=likelihoods.categorical)

# %%
ensemble = MAP(num_steps=300, learning_rate=0.01, batch_size=100, num_chains=3)
posterior = ptx.infer(0, model, train, ensemble, progress=False)
predictive = ptx.predict(1, posterior, test.inputs)
mask = test.inputs["mask"]
print("accuracy", accuracy(predictive.mean_probabilities(), test.targets, mask=mask))
split = entropy_decomposition(predictive.probabilities["targets"])
print("entropy of the predictive, nats a token:", split.predictive[mask].mean())
print("of which the members disagree on:", split.mutual_information[mask].mean())
