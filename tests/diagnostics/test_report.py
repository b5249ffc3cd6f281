"""Reports of hand-made draws, whose scores are known."""

import csv
import io
import json
import math
from dataclasses import dataclass
from functools import cache

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from ptx import Data, infer, predict
from ptx.diagnostics import report
from ptx.inference import NUTS, Prior
from ptx.models import Weight, bayesian, likelihoods, priors

THREE_QUARTERS = [0.0, math.log(3.0)]  # logits of (1/4, 3/4)
ONE_QUARTER = [math.log(3.0), 0.0]


def classes(inputs, targets=None):
    """Every row has the same class probabilities, softmax(logits)."""
    logits = numpyro.sample("logits", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", len(inputs)):
        numpyro.sample("targets", dist.Categorical(logits=logits), obs=targets)


def numbers(inputs, targets=None):
    """Normal around mu with a tiny scale, so that simulated targets are mu."""
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("rows", len(inputs)):
        numpyro.sample("targets", dist.Normal(mu, 1e-6), obs=targets)


@dataclass(frozen=True)
class Flat:
    """A network of one weight, the logits of every token."""

    num_outputs: int = 2

    @property
    def weights(self):
        return {"logits": Weight((2,), ("output",))}

    @property
    def output_dims(self):
        return ("row", "token", "output")

    def __call__(self, weights, x):
        return jnp.broadcast_to(weights["logits"], (*x["mask"].shape, 2))

    def target_mask(self, x):
        return x["mask"]

    def check(self, x):
        return None


def posterior(model, data, **draws):
    """A posterior of exactly these draws, of shape (chain, draw, ...)."""
    draws = {name: np.asarray(values, np.float32) for name, values in draws.items()}
    chains, count = next(iter(draws.values())).shape[:2]
    return infer(0, model, data, Prior(num_draws=count, num_chains=chains), progress=False).replace(
        draws=draws
    )


@cache
def rows():
    return Data(np.zeros((4, 1), np.float32), np.array([1, 1, 0, 1]))


def scored(*draws, **settings):
    fitted = {f"p{i}": posterior(classes, rows(), logits=values) for i, values in enumerate(draws)}
    return report(0, fitted, rows(), **settings)


def test_class_scores_by_hand():
    (row,) = scored([[THREE_QUARTERS]]).rows
    assert row.scores["accuracy"] == 0.75
    assert row.scores["nll"] == pytest.approx(-(3 * math.log(0.75) + math.log(0.25)) / 4)
    assert row.scores["ece"] == pytest.approx(0.0, abs=1e-6)
    assert row.scores["brier"] == pytest.approx((3 * 2 * 0.25**2 + 2 * 0.75**2) / 4)
    assert (row.num_chains, row.num_draws) == (1, 1)
    assert row.engine == "Prior(num_draws=1, num_chains=1)"


def test_draws_are_averaged_as_probabilities():
    (row,) = scored([[THREE_QUARTERS], [ONE_QUARTER]]).rows  # two chains that average to (1/2, 1/2)
    assert row.scores["nll"] == pytest.approx(math.log(2))
    assert row.scores["brier"] == pytest.approx(0.5)


def test_convergence_is_na_with_one_draw_or_one_chain():
    rng = np.random.default_rng(0)
    one_draw, one_chain = scored(rng.normal(size=(2, 1, 2)), rng.normal(size=(1, 20, 2))).rows
    assert one_draw.convergence.r_hat is None
    assert one_draw.convergence.ess_bulk is None
    assert one_chain.convergence.r_hat is None
    assert one_chain.convergence.verdict == "n/a"


def test_chains_that_disagree_are_a_finding_and_those_that_agree_are_none():
    rng = np.random.default_rng(0)
    agree = rng.normal(size=(2, 400, 2))
    apart = agree + np.array([[[0.0, 0.0]], [[0.0, 5.0]]])
    good, bad = scored(agree, apart).rows
    assert good.convergence.r_hat < 1.01
    assert good.findings == ()
    assert bad.convergence.r_hat > 1.5
    assert "has not converged: R-hat above 1.01" in bad.findings[-1]


def test_more_chains_than_draws_is_no_error():
    (row,) = scored(np.random.default_rng(0).normal(size=(8, 5, 2))).rows  # an ensemble
    assert row.convergence.r_hat is not None


def test_real_targets_by_hand():
    data = Data(np.zeros((2, 1), np.float32), np.array([1.0, 3.0], np.float32))
    fitted = posterior(numbers, data, mu=[[0.0, 2.0]])
    found = report(0, {"one": fitted}, data)
    (row,) = found.rows
    assert row.scores["rmse"] == pytest.approx(math.sqrt((0 + 4) / 2), abs=1e-4)
    # E|X - y| - E|X - X'| / 2 = 1 - 1/2 and 2 - 1/2
    assert row.scores["crps"] == pytest.approx(1.0, abs=1e-4)
    assert row.scores["coverage_90"] == 0.5
    assert "accuracy" not in found.conventions
    assert "crps" in found.conventions


def test_a_column_that_some_rows_lack_is_na():
    data = Data(np.zeros((2, 1), np.float32), np.array([1.0, 3.0], np.float32))
    fitted = {"point": posterior(numbers, data, mu=[[1.0]]), "two": posterior(numbers, data, mu=[[1.0, 3.0]])}
    found = report(0, fitted, data)
    assert "coverage_90" not in found.rows[0].scores
    assert str(found).splitlines()[1].split("  ")[0] == "point"
    assert "n/a" in str(found).splitlines()[1]


def test_padding_and_ignored_labels_do_not_count():
    mask = np.array([[True, True, False], [True, False, False]])
    data = Data({"mask": mask}, np.array([[1, 0, 1], [1, 0, 0]]))
    padded = bayesian(Flat(), priors.normal(), likelihoods.categorical)
    found = report(0, {"one": posterior(padded, data, logits=[[THREE_QUARTERS]])}, data)
    assert found.num_rows == 2
    assert found.num_positions == 3
    assert found.rows[0].scores["accuracy"] == pytest.approx(2 / 3)
    ignored = bayesian(Flat(), priors.normal(), likelihoods.categorical(ignore_index=-1))
    data = Data({"mask": mask}, np.array([[1, -1, 1], [1, 0, 0]]))
    found = report(0, {"one": posterior(ignored, data, logits=[[THREE_QUARTERS]])}, data)
    assert found.num_positions == 2
    assert found.rows[0].scores["accuracy"] == 1.0
    assert found.rows[0].scores["nll"] == pytest.approx(-math.log(0.75))


def test_a_mask_of_the_callers():
    (row,) = scored([[THREE_QUARTERS]], mask=np.array([True, True, False, True])).rows
    assert row.scores["accuracy"] == 1.0


def test_predictions_at_hand_are_used():
    fitted = posterior(classes, rows(), logits=[[THREE_QUARTERS]])
    other = posterior(classes, rows(), logits=[[ONE_QUARTER]])
    prediction = predict(0, other, rows().inputs)
    (row,) = report(0, {"one": fitted}, rows(), predictions={"one": prediction}).rows
    assert row.scores["accuracy"] == 0.25


def test_trajectories_cut_off_are_a_finding():
    fitted = posterior(classes, rows(), logits=np.random.default_rng(0).normal(size=(2, 4, 2)))
    cut = np.array([[True, False, False, False]] * 2)
    fitted = fitted.replace(
        engine=NUTS(num_draws=4, num_chains=2), statistics={"reached_max_tree_depth": cut}
    )
    found = report(0, {"mine": fitted}, rows())
    assert "25% of kept draws were cut off at max_tree_depth=10" in found.rows[0].findings
    assert "  mine: 25% of kept draws" in str(found)


def test_findings_of_the_run_are_repeated_without_the_engine():
    fitted = posterior(classes, rows(), logits=[[THREE_QUARTERS]])
    found = report(0, {"mine": fitted.replace(findings=("Prior: interrupted after 3 of 9 steps",))}, rows())
    assert found.rows[0].findings[0] == "Prior: interrupted after 3 of 9 steps"
    assert "  mine: interrupted after 3 of 9 steps" in str(found)


def test_text_and_rich_show_every_row():
    from rich.console import Console

    found = scored([[THREE_QUARTERS]], [[ONE_QUARTER]])
    console = Console(width=140, file=io.StringIO())
    console.print(found)
    for text in (str(found), console.file.getvalue()):
        lines = text.splitlines()
        assert lines[0].split()[:5] == ["draws", "accuracy", "NLL", "ECE", "Brier"]
        assert lines[1].split()[:6] == ["p0", "1", "x", "1", "0.750", "0.562"]
        assert lines[2].split()[:6] == ["p1", "1", "x", "1", "0.250", "1.112"]
        assert "Scored on 4 rows" in text
        assert "Brier: sum over classes" in text
        assert "Findings: none" in text


def test_json_and_csv_hold_the_same_numbers(tmp_path):
    found = scored([[THREE_QUARTERS]], np.random.default_rng(0).normal(size=(2, 20, 2)))
    text = found.to_json(tmp_path / "report.json")
    kept = json.loads((tmp_path / "report.json").read_text())
    assert kept == json.loads(text)
    assert kept["rows"][1]["scores"]["nll"] == found.rows[1].scores["nll"]
    assert kept["rows"][0]["convergence"]["r_hat"] is None
    assert set(kept["conventions"]) >= set(kept["rows"][0]["scores"])
    found.to_csv(tmp_path / "report.csv")
    with (tmp_path / "report.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["name"] for line in lines] == ["p0", "p1"]
    assert float(lines[1]["nll"]) == found.rows[1].scores["nll"]
    assert lines[0]["r_hat"] == ""


def test_an_infinite_score_is_json_too():
    found = scored([[[0.0, 200.0]]])
    assert found.rows[0].scores["nll"] == pytest.approx(50.0)  # 200 / 4: densities do not underflow
    data = Data(np.zeros((2, 1), np.float32), np.array([1e30, 3.0], np.float32))
    fitted = posterior(numbers, data, mu=[[0.0]])
    with pytest.warns(RuntimeWarning, match="not finite|probability 0"):
        found = report(0, {"one": fitted}, data)
    assert found.rows[0].scores["nll"] == math.inf
    assert json.loads(found.to_json())["rows"][0]["scores"]["nll"] == "inf"


def test_bad_arguments_are_refused():
    fitted = posterior(classes, rows(), logits=[[THREE_QUARTERS]])
    with pytest.raises(TypeError, match="mapping of names"):
        report(0, fitted, rows())
    with pytest.raises(TypeError, match="mapping of names"):
        report(0, {}, rows())
    with pytest.raises(ValueError, match=r"one of the observed sites \['targets'\], got 'label'"):
        report(0, {"one": fitted}, rows(), site="label")
