import jax
import numpy as np
import pytest

from ptx.inference import SGLD, Cosine, Exponential, Linear, Polynomial, schedule

STEPS = np.arange(0, 250, 7)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (Cosine(0.1, 200), 0.1 * 0.5 * (1 + np.cos(np.pi * np.minimum(STEPS, 200) / 200))),
        (Cosine(0.1, 200, 0.25), 0.025 + 0.075 * 0.5 * (1 + np.cos(np.pi * np.minimum(STEPS, 200) / 200))),
        (Exponential(0.3, 0.5, 50), 0.3 * 0.5 ** (STEPS / 50)),
        (Polynomial(0.2, 10.0, 0.55), 0.2 * (10.0 + STEPS) ** -0.55),
        (Linear(0.0, 2.0, 100), 2.0 * np.minimum(STEPS, 100) / 100),
        (Linear(3.0, 1.0, 100), 3.0 - 2.0 * np.minimum(STEPS, 100) / 100),
    ],
)
def test_values_are_the_published_formula(made, expected):
    values = jax.jit(jax.vmap(made))(STEPS)
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose([schedule.at(made, step) for step in STEPS[:3]], expected[:3], rtol=1e-5)
    assert eval(repr(made)) == made
    assert hash(eval(repr(made))) == hash(made)


def test_the_extremes_are_those_of_the_run():
    assert schedule.extremes(0.5, 10) == (0.5, 0.5)
    smallest, largest = schedule.extremes(Polynomial(1.0, 1.0, 1.0), 100)
    np.testing.assert_allclose([smallest, largest], [0.01, 1.0], rtol=1e-6)
    rising = schedule.extremes(Exponential(1.0, 2.0, 9), 10)
    np.testing.assert_allclose(rising, [1.0, 2.0], rtol=1e-6)


def test_an_engine_with_a_schedule_can_be_made_inside_jit():
    assert jax.jit(lambda: SGLD(step_size=Polynomial(1e-3)).num_steps)() == 2000


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: Cosine(0.0, 10), ValueError, "value must be positive"),
        (lambda: Cosine(0.1, 0), ValueError, "num_steps must be positive"),
        (lambda: Cosine(0.1, 10.5), TypeError, "num_steps must be an integer"),
        (lambda: Cosine(0.1, 10, 1.5), ValueError, "final_fraction must be in"),
        (lambda: Exponential(0.1, -0.5, 10), ValueError, "rate must be positive"),
        (lambda: Polynomial(float("nan")), ValueError, "a must be positive and finite"),
        (lambda: Polynomial("0.1"), ValueError, "a must be positive and finite"),
        (lambda: Linear(-0.1, 1.0, 10), ValueError, "start must be zero or positive"),
        (lambda: Linear(0.1, float("inf"), 10), ValueError, "end must be zero or positive"),
        (lambda: Linear(0.1, 1.0, 0), ValueError, "num_steps must be positive"),
        (lambda: Polynomial(True), ValueError, "a must be positive and finite"),
        (lambda: SGLD(step_size=lambda step: 0.1), TypeError, "Cosine, Exponential, Linear or Polynomial"),
    ],
)
def test_settings_without_meaning_are_refused(make, error, match):
    with pytest.raises(error, match=match):
        make()
