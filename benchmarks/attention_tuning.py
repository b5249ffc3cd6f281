"""Settings of each kind of attention, chosen by the negative log likelihood of the validation split, seed 0.

For each kind first the weight of the KL is chosen, at the kind's defaults; at that weight a posterior with less spread
is tried.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import ptx
from benchmarks.attention_tasks import TASKS, Task, mask_of
from ptx.diagnostics import accuracy, log_loss
from ptx.inference import MAP, Cosine
from ptx.models import attention

KL_WEIGHTS = (1.0, 0.1, 0.01, 0.001)
SHARPER: dict[str, dict[str, Any]] = {
    "dirichlet": {"sharpness": 100.0},
    "weibull": {"shape": 20.0},
    "lognormal": {"scale": 0.1},
    "gaussian_logits": {"scale": 0.1},
    "gumbel_softmax": {"temperature": 1.0},
}
ROW_DRAWS = 20


def point(task: Task, num_steps: int, kl_weight: float = 1.0, num_chains: int = 1) -> MAP:
    """The search that every point estimate of the comparison comes from."""
    return MAP(
        num_steps=num_steps,
        learning_rate=Cosine(0.02, num_steps),
        batch_size=task.batch_size,
        num_chains=num_chains,
        kl_weight=kl_weight,
    )


def tune(names: list[str], num_steps: int) -> Iterator[dict]:
    """Validation scores of all that was tried, one task and kind after another."""
    for task in (TASKS[name](0) for name in names):
        for name, change in SHARPER.items():
            default = attention.KINDS[name]()
            found = [_score(task, default, weight, num_steps) for weight in KL_WEIGHTS]
            weight = min(found, key=lambda row: row["nll"])["kl_weight"]
            found.append(_score(task, replace(default, **change), weight, num_steps))
            min(found, key=lambda row: row["nll"])["chosen"] = True
            yield from found


def _score(task: Task, kind: Any, kl_weight: float, num_steps: int) -> dict:
    posterior = ptx.infer(0, task.model(kind), task.train, point(task, num_steps, kl_weight), progress=False)
    inputs, targets = task.validation.inputs, task.validation.targets
    predictive = ptx.predict(1, posterior, inputs, sites=["targets"], simulated=False, row_draws=ROW_DRAWS)
    probs, mask = predictive.mean_probabilities(), mask_of(inputs)
    scores = {"accuracy": accuracy(probs, targets, mask=mask), "nll": log_loss(probs, targets, mask=mask)}
    row = {"task": task.name, "attention": repr(kind), "kl_weight": kl_weight, **scores}
    print(
        f"{task.name:8} KL {kl_weight:<6g} NLL {row['nll']:.4f} accuracy {row['accuracy']:.3f} {kind}",
        flush=True,
    )
    return row
