# %% [markdown]
# # A model of one's own
# Any NumPyro program with the signature `model(inputs, targets=None)` runs through every engine: here the eight
# schools, non-centred, with a positive site. ArviZ reads the result.

# %%
import arviz_stats
import numpy as np
import numpyro
import numpyro.distributions as dist

import ptx
from ptx.inference import HMC, NUTS, SVI

effects = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
errors = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def eight_schools(inputs, targets=None):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("school", inputs.shape[0]):
        z = numpyro.sample("z", dist.Normal(0, 1))
        numpyro.sample("effect", dist.Normal(mu + tau * z, inputs), obs=targets)


# %%
for engine in (
    NUTS(num_warmup=500, num_draws=500, target_acceptance_rate=0.95),
    HMC(num_warmup=500, num_draws=500, target_acceptance_rate=0.95),
    SVI(guide="AutoMultivariateNormal", num_steps=2000, num_draws=2000),
):
    posterior = ptx.infer(0, eight_schools, (errors, effects), engine, progress=False)
    tree = ptx.to_datatree(posterior)
    print(type(engine).__name__)
    print(arviz_stats.summary(tree, var_names=["mu", "tau"]))
