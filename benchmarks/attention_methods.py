"""The rows of the comparison: point estimates, inference on the weights, inference on the attention rows."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import ptx
from benchmarks.attention_tasks import Task
from benchmarks.attention_tuning import ROW_DRAWS, point
from ptx.inference import SVI, Cosine, Prior
from ptx.models import attention, priors

WIDE = priors.normal(100.0)

# By task and kind: what `--tune` chose, and the weight of the KL.
CHOSEN: dict[str, dict[str, tuple[Any, float]]] = {
    "digits": {
        "dirichlet": (attention.dirichlet(sharpness=100.0), 0.001),
        "weibull": (attention.weibull(), 0.01),
        "lognormal": (attention.lognormal(scale=0.1), 0.001),
        "gaussian_logits": (attention.gaussian_logits(), 0.001),
        "gumbel_softmax": (attention.gumbel_softmax(temperature=1.0), 0.01),
    },
    "tagging": {
        "dirichlet": (attention.dirichlet(sharpness=100.0), 0.001),
        "weibull": (attention.weibull(), 0.001),
        "lognormal": (attention.lognormal(), 0.001),
        "gaussian_logits": (attention.gaussian_logits(), 0.001),
        "gumbel_softmax": (attention.gumbel_softmax(temperature=1.0), 0.001),
    },
}


class Fit(NamedTuple):
    """A posterior, and how many draws of its attention rows each of its draws gets."""

    posterior: Any
    row_draws: int = 1


def methods(task: Task, seed: int, num_steps: int) -> dict[str, Callable[[], Fit]]:
    """The rows of the table, in its order; each takes `num_steps` gradients a chain, SVI as many after MAP's."""
    fit, search = partial(_fit, task, seed), partial(point, task, num_steps)
    mode = cache(lambda: fit(task.model(), search()))
    chosen = CHOSEN[task.name]

    def rows(kind: Any, kl_weight: float) -> Callable[[], Fit]:
        return lambda: Fit(fit(task.model(kind), search(kl_weight)), ROW_DRAWS)

    return {
        "maximum likelihood": lambda: Fit(_maximum_likelihood(task, seed, num_steps)),
        "MAP": lambda: Fit(mode()),
        "ensemble of 5": lambda: Fit(fit(task.model(), search(num_chains=5))),
        "mean-field SVI": lambda: Fit(fit(task.model(), _mean_field(task, num_steps), mode())),
        **{name: rows(*chosen[name]) for name in chosen},
        "dirichlet, a bound": rows(attention.dirichlet(), 1.0),
    }


def _maximum_likelihood(task: Task, seed: int, num_steps: int) -> Any:
    """MAP with a nearly flat prior, of standard deviation 100 for each weight, from a draw of the usual prior."""
    start = _fit(task, seed, task.model(), Prior(num_draws=1))
    return _fit(task, seed, task.model(prior=WIDE), point(task, num_steps), start)


def _mean_field(task: Task, num_steps: int) -> SVI:
    return SVI(
        guide_options=(("init_scale", 0.01),),
        num_steps=num_steps,
        learning_rate=Cosine(0.02, num_steps),
        batch_size=task.batch_size,
        num_draws=ROW_DRAWS,
    )


def _fit(task: Task, seed: int, model: Any, engine: Any, init: Any = None) -> Any:
    return ptx.infer(seed, model, task.train, engine, init=init, progress=False)
