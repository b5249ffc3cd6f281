"""The digits under another prior, by the same engine, compared by the log predictive density of the test rows."""

import json
from dataclasses import asdict

import jax

from ptx.demo import stored, tasks
from ptx.demo.fit import Place, Starts, fit
from ptx.demo.tasks import Task
from ptx.diagnostics.comparison import Difference, paired_difference
from ptx.diagnostics.convergence import Convergence, check_convergence
from ptx.posterior import Posterior
from ptx.predictive import log_likelihood


def swap_prior(key: jax.Array, place: Place, task: Task, posterior: Posterior, begun: Starts) -> None:
    """The same model under another prior, by the same engine, scored on the same test rows."""
    console = place.console
    console.print(
        "[bold]Another prior[/]: Student t with 4 degrees of freedom instead of the normal, at the same scales."
    )
    other, name = stored.other_prior(task), "NUTS Student t"
    fitted = {
        "Student t": fit(key, place, name, other, posterior.engine, begun, stored.PRIORS[1]),
        "normal": posterior,
    }
    densities = {name: log_likelihood(each, task.test)["targets"] for name, each in fitted.items()}
    difference = paired_difference(densities["Student t"], densities["normal"])
    by_chain = [
        paired_difference(*(each[chain : chain + 1] for each in densities.values()))
        for chain in range(tasks.NUM_CHAINS)
    ]
    checks = check_convergence(densities)
    console.print(f"  log predictive density of the test part, Student t minus normal: {difference}")
    console.print(f"  chain by chain: {', '.join(f'{each.difference:+.4f}' for each in by_chain)}")
    for check in checks:
        console.print(f"  {_caution(check)}", highlight=False)
    for finding in fitted["Student t"].findings:
        console.print(f"  Student t: {finding}", highlight=False, markup=False)
    console.print(f"  {verdict(difference, by_chain, checks)}\n")
    found = {"first": "student_t", "second": "normal", "nats_per_row": asdict(difference)}
    found |= {
        "by_chain": [asdict(each) for each in by_chain],
        "convergence": [asdict(each) for each in checks],
    }
    found |= {"findings": list(fitted["Student t"].findings)}
    (place.folder / "prior_swap.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def _caution(check: Convergence) -> str:
    r_hat = "none" if check.r_hat is None else f"{check.r_hat:.2f}"
    return f"{check.name}, log density of a test row over the chains: {check.verdict}, largest R-hat {r_hat}"


def verdict(difference: Difference, by_chain: list[Difference], checks: tuple[Convergence, ...]) -> str:
    """What the difference allows to say; its standard error knows the rows, the chains show the error of few draws."""
    if difference.standard_error is None or abs(difference.difference) < 2 * difference.standard_error:
        return "These rows cannot tell the two priors apart: the difference is within two standard errors."
    if min(each.difference for each in by_chain) < 0 < max(each.difference for each in by_chain):
        return "The chains disagree about which prior is better: too few draws to tell."
    better = "Student t" if difference.difference > 0 else "normal"
    if all(check.passed for check in checks):
        return f"The {better} prior predicts these rows better, by more than two standard errors, in every chain."
    return (
        f"As far as these draws go, the {better} prior predicts these rows better, by more than two standard errors, "
        "in every chain; but they have not converged (R-hat above): a finding on these runs, not on the priors."
    )
