"""The twelve posteriors of posteriordb as NumPyro programs, with their reference moments.

Programs restate the Stan programs of stan-dev/posteriordb (BSD-3-Clause; `tests/references/posteriordb`). "flat" is an
improper uniform prior of density one on the support.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from gates.z_scores import Reference
from numpyro.distributions import constraints

FOLDER = Path(__file__).parents[1] / "references" / "posteriordb"
FILES = {path.stem.split("-")[1]: path for path in sorted(FOLDER.glob("*.json"))}


class Problem(NamedTuple):
    """A program, its data (inputs, targets), and a map from site values to the quantities of the reference."""

    model: Callable
    data: tuple[Any, Any]
    reference: Reference
    quantities: Callable[[dict[str, np.ndarray]], np.ndarray]


def load(name: str) -> Problem:
    """The posterior `name`, such as "earn_height"."""
    stored = json.loads(FILES[name].read_text())
    model, read = PROGRAMS[name]
    best = stored.get("exact") or stored["qmc"]
    columns = {key: np.asarray(value, float) for key, value in stored["data"].items()}

    def quantities(values: dict[str, np.ndarray]) -> np.ndarray:
        return _in_order(DERIVED.get(name, dict)(values), best["names"])

    moments = [np.asarray(best.get(key, 0.0)) for key in ("mean", "sd", "se_mean", "se_sd")]
    return Problem(model, read(columns), Reference(*moments), quantities)


def _in_order(values: dict[str, np.ndarray], names: list[str]) -> np.ndarray:
    """Quantities of shape (chain, draw, K) in the order of names like "beta[2]"."""
    columns = []
    for name in names:
        site, _, index = name.rstrip("]").partition("[")
        columns.append(values[site][..., int(index) - 1] if index else values[site])
    return np.stack(columns, -1).astype(float)


def flat(name: str, size: int | None = None, positive: bool = False) -> Any:
    """A site with density one on the reals or on the positive reals."""
    support = constraints.positive if positive else constraints.real
    prior = dist.ImproperUniform(support, () if size is None else (size,), ())
    return numpyro.sample(name, prior if size is None else prior.to_event(1))


def regression(inputs: Any, targets: Any, beta: Any, sigma: Any) -> None:
    """targets_n ~ N(inputs_n . beta, sigma)."""
    with numpyro.plate("rows", inputs.shape[0]):
        numpyro.sample("targets", dist.Normal(inputs @ beta, sigma), obs=targets)


def ar_k(inputs: Any, targets: Any = None) -> None:
    alpha = numpyro.sample("alpha", dist.Normal(0.0, 10.0))
    beta = numpyro.sample("beta", dist.Normal(0.0, 10.0).expand([5]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
    regression(inputs, targets, jnp.append(beta, alpha), sigma)


def dogs(inputs: Any, targets: Any = None) -> None:
    beta = numpyro.sample("beta", dist.Normal(0.0, 100.0).expand([3]).to_event(1))
    logits = beta[0] + beta[1] * inputs["avoid"] + beta[2] * inputs["shock"]
    with numpyro.plate("rows", logits.shape[0]):
        numpyro.sample("targets", dist.Bernoulli(logits=logits).to_event(1), obs=targets)


def flat_regression(inputs: Any, targets: Any = None) -> None:
    regression(inputs, targets, flat("beta", inputs.shape[1]), flat("sigma", positive=True))


def eight_schools(inputs: Any, targets: Any = None) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("rows", inputs.shape[0]):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        numpyro.sample("targets", dist.Normal(mu + tau * z, inputs), obs=targets)


def eight_schools_centred(inputs: Any, targets: Any = None) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("rows", inputs.shape[0]):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("targets", dist.Normal(theta, inputs), obs=targets)


def gp_regression(inputs: Any, targets: Any = None) -> None:
    rho = numpyro.sample("rho", dist.Gamma(25.0, 4.0))
    alpha = numpyro.sample("alpha", dist.HalfNormal(2.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    distance = inputs[:, None] - inputs[None, :]
    kernel = alpha**2 * jnp.exp(-0.5 * (distance / rho) ** 2) + sigma * jnp.eye(inputs.shape[0])
    numpyro.sample("targets", dist.MultivariateNormal(0.0, kernel), obs=targets)


def kidscore(inputs: Any, targets: Any = None) -> None:
    beta = flat("beta", inputs.shape[1])
    regression(inputs, targets, beta, numpyro.sample("sigma", dist.HalfCauchy(2.5)))


def gauss_mix(inputs: Any, targets: Any = None) -> None:
    mu = numpyro.sample("mu", dist.ImproperUniform(constraints.ordered_vector, (), (2,)))
    numpyro.factor("mu_prior", dist.Normal(0.0, 2.0).log_prob(mu).sum())
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0).expand([2]).to_event(1))
    theta = numpyro.sample("theta", dist.Beta(5.0, 5.0))
    weights = dist.Categorical(probs=jnp.stack([theta, 1 - theta]))
    with numpyro.plate("rows", targets.shape[0]):
        numpyro.sample("targets", dist.MixtureSameFamily(weights, dist.Normal(mu, sigma)), obs=targets)


def radon_pooled(inputs: Any, targets: Any = None) -> None:
    alpha = numpyro.sample("alpha", dist.Normal(0.0, 10.0))
    beta = numpyro.sample("beta", dist.Normal(0.0, 10.0))
    regression(inputs, targets, jnp.stack([alpha, beta]), numpyro.sample("sigma_y", dist.HalfNormal(1.0)))


def blr(inputs: Any, targets: Any = None) -> None:
    beta = numpyro.sample("beta", dist.Normal(0.0, 10.0).expand([inputs.shape[1]]).to_event(1))
    regression(inputs, targets, beta, numpyro.sample("sigma", dist.HalfNormal(10.0)))


def _read_ar(data: dict) -> tuple:
    order, series = int(data["K"]), data["y"]
    lags = [series[order - lag : len(series) - lag] for lag in range(1, order + 1)]
    return np.stack([*lags, np.ones(len(series) - order)], 1), series[order:]


def _read_dogs(data: dict) -> tuple:
    shocks = np.cumsum(data["y"], 1) - data["y"]  # before each trial
    trials = np.arange(data["y"].shape[1])
    return {"avoid": trials - shocks, "shock": shocks}, data["y"].astype(int)


def _read_nes(data: dict) -> tuple:
    age = [data["age_discrete"] == group for group in (2, 3, 4)]
    columns = [data["real_ideo"], data["race_adj"], *age, data["educ1"], data["gender"], data["income"]]
    return _design(*columns), data["partyid7"]


def _columns(target: str, *names: str) -> Callable[[dict], tuple]:
    return lambda data: (_design(*(data[name] for name in names)), data[target])


def _design(*columns: np.ndarray) -> np.ndarray:
    return np.stack([np.ones(len(columns[0])), *columns], 1).astype(float)


MESQUITE = ("diam1", "diam2", "canopy_height", "total_height", "density", "group")

PROGRAMS: dict[str, tuple[Callable, Callable[[dict], tuple]]] = {
    "arK": (ar_k, _read_ar),
    "dogs": (dogs, _read_dogs),
    "earn_height": (flat_regression, _columns("earn", "height")),
    "eight_schools_noncentered": (eight_schools, lambda data: (data["sigma"], data["y"])),
    "gp_regr": (gp_regression, lambda data: (data["x"], data["y"])),
    "kidscore_momhsiq": (kidscore, _columns("kid_score", "mom_hs", "mom_iq")),
    "kidscore_interaction": (
        kidscore,
        lambda d: (_design(d["mom_hs"], d["mom_iq"], d["mom_hs"] * d["mom_iq"]), d["kid_score"]),
    ),
    "low_dim_gauss_mix": (gauss_mix, lambda data: (None, data["y"])),
    "mesquite": (flat_regression, _columns("weight", *MESQUITE)),
    "nes": (flat_regression, _read_nes),
    "radon_pooled": (radon_pooled, _columns("log_radon", "floor_measure")),
    "blr": (blr, lambda data: (data["X"], data["y"])),
}

# Quantities of the reference that are no site.
DERIVED: dict[str, Callable[[dict], dict]] = {
    "eight_schools_noncentered": lambda v: v | {"theta": v["mu"][..., None] + v["tau"][..., None] * v["z"]},
}
