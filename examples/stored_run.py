# %% [markdown]
# # A run that survives
# Draws leave memory for a directory as they come, with the whole state of the engine. Here a process is killed in the
# middle of a run; this one goes on from its last save, and the draws are those of a run that was never stopped.

# %%
import dataclasses
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import ptx
from ptx import datasets, inference, models
from ptx.models import likelihoods, priors

digits = datasets.digits()
network = models.VisionTransformer(
    image_size=(8, 8), patch_size=4, num_layers=1, num_heads=2, width=8, num_outputs=10
)
model = models.bayesian(network, prior=priors.normal(scale="fan_in"), likelihood=likelihoods.categorical)
train = ptx.Data(digits.train.inputs[:200], digits.train.targets[:200])
engine = inference.SGLD(
    num_warmup=10000, num_draws=1000, thin=20, step_size=1e-4, batch_size=50, num_chains=2
)

if len(sys.argv) > 1:  # the process that will be killed
    ptx.infer(0, model, train, engine, store=sys.argv[1], chunk_size=50, progress=False)
    sys.exit()

# %% [markdown]
# The victim: another process, killed as soon as it has saved some draws.

# %%
directory = Path(tempfile.mkdtemp()) / "run"


def saved_draws() -> int:
    """Draws of the last save; none before the first."""
    return ptx.open_run(directory).num_draws if (directory / "manifest.json").exists() else 0


victim = subprocess.Popen([sys.executable, __file__, str(directory)])
while saved_draws() == 0 and victim.poll() is None:
    time.sleep(0.1)
victim.kill()
victim.wait()
assert saved_draws() > 0
print(ptx.open_run(directory))

# %% [markdown]
# Going on, and a run without a stop beside it.

# %%
resumed = ptx.resume(directory, model, progress=False)
whole = ptx.infer(0, model, train, engine, progress=False)
for site, values in whole.draws.items():
    assert np.array_equal(values, np.asarray(resumed.draws[site])), site
print(f"{resumed.num_draws} draws of {len(whole.draws)} sites, equal bit for bit")

# %% [markdown]
# A finished run of a sampler grows: more draws, as if they had been asked for at the start.

# %%
longer = dataclasses.replace(engine, num_draws=1200)
grown = ptx.infer(0, model, train, longer, store=directory, progress=False)
predictive = ptx.predict(1, grown, digits.test.inputs[:100], sites=["targets"])  # reads draws chunk by chunk
accuracy = np.mean(predictive.mean_probabilities().argmax(-1) == digits.test.targets[:100])
print(f"{grown.num_draws} draws; accuracy {accuracy:.2f} on 100 test images")
