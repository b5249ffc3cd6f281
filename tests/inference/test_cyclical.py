import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from inference.stationary import DATA, MEAN, PRECISION
from models_for_tests import regression

import ptx
from ptx.inference import SGLD, Cosine, CyclicalSGHMC, CyclicalSGLD, cyclical

BOTH = pytest.mark.parametrize("kind", [CyclicalSGLD, CyclicalSGHMC])
# draws, cycles, thin, exploration_fraction, steps of a cycle
CYCLES = [
    (12, 3, 2, 0.5, 16),
    (12, 3, 2, 0.0, 8),
    (12, 3, 2, 0.8, 40),
    (10, 1, 1, 0.3, 15),
    (7, 7, 5, 0.9, 50),
]


@BOTH
@pytest.mark.parametrize(("num_draws", "num_cycles", "thin", "fraction", "n"), CYCLES)
def test_steps_stages_and_cycles_follow_the_paper(kind, num_draws, num_cycles, thin, fraction, n):
    engine = kind(
        num_draws, num_cycles, thin=thin, exploration_fraction=fraction, step_size=0.4, **friction(kind)
    )
    assert (engine.steps_per_cycle, engine.num_steps) == (n, n * num_cycles)
    steps = np.arange(engine.num_steps)
    # Zhang et al. count k from 1: alpha_k = alpha_0 / 2 (cos(pi mod(k - 1, ceil(K / M)) / ceil(K / M)) + 1), and
    # r(k) = mod(k - 1, ceil(K / M)) / ceil(K / M) below beta explores.
    k, ratio = steps + 1, np.ceil(engine.num_steps / num_cycles)
    r = np.mod(k - 1, ratio) / ratio
    sizes = jax.vmap(lambda step: cyclical.step_size(engine, step))(steps)
    np.testing.assert_allclose(sizes, 0.2 * (np.cos(np.pi * r) + 1), rtol=2e-3, atol=1e-7)
    assert (np.asarray(sizes)[::n] == np.float32(0.4)).all()
    info = jax.vmap(lambda step: cyclical.info(engine, step))(steps)
    np.testing.assert_array_equal(info["stage"], r >= fraction)
    np.testing.assert_array_equal(info["cycle"], np.repeat(np.arange(num_cycles), n))


@BOTH
@pytest.mark.parametrize(("num_draws", "num_cycles", "thin", "fraction", "n"), CYCLES)
def test_draws_come_from_the_end_of_each_cycle(kind, num_draws, num_cycles, thin, fraction, n):
    engine = kind(num_draws, num_cycles, thin=thin, exploration_fraction=fraction, **friction(kind))
    steps = np.arange(engine.num_steps)
    kept = steps[engine.keeps(steps)]
    assert len(kept) == num_draws
    assert (np.bincount(kept // n) == num_draws // num_cycles).all()
    assert (kept[num_draws // num_cycles - 1 :: num_draws // num_cycles] % n == n - 1).all()
    assert ((kept % n) / n >= fraction).all()
    assert [step for step in range(engine.num_steps) if engine.keeps(step)] == list(kept)
    np.testing.assert_array_equal(jax.jit(jax.vmap(engine.keeps))(steps), engine.keeps(steps))


def friction(kind):
    return {"friction": 1.0} if kind is CyclicalSGHMC else {}


def test_the_chain_explores_without_noise_and_samples_with_it():
    engine = CyclicalSGLD(10, 1, num_chains=2, thin=2, step_size=0.02, exploration_fraction=0.5)
    start = np.array([1.0, -1.0, 2.0])
    posterior = ptx.infer(0, regression, DATA, engine, init={"w": start}, progress=False)
    u, path = start, []
    for j in range(20):
        u = u - 0.01 * (np.cos(np.pi * j / 40) + 1) * PRECISION @ (u - MEAN)
        path.append(u)
    log_density = jax.vmap(posterior.target.log_density)({"w": jnp.asarray(path)})
    history = posterior.history["log_density"]
    np.testing.assert_allclose(history[:, :20], np.stack([log_density] * 2), rtol=1e-4)
    assert (history[0, 20:] != history[1, 20:]).all()
    assert posterior.statistics["stage"].all()


def two_modes(inputs, targets=None):
    """Far modes at (-4, -4) and (4, 4) of equal weight, with tails that let large steps come back."""
    places = dist.StudentT(5.0, jnp.array([[-4.0, -4.0], [4.0, 4.0]]), 0.7).to_event(1)
    w = numpyro.sample("w", dist.MixtureSameFamily(dist.Categorical(probs=jnp.ones(2) / 2), places))
    with numpyro.plate("rows", inputs.shape[0]):
        numpyro.sample("y", dist.Normal(0.0 * w[0], 1.0), obs=targets)


def in_right_mode(engine):
    data, start = (np.zeros((4, 1)), np.zeros(4)), np.array([-4.0, -4.0])
    options = {"init": {"w": start}, "progress": False, "chain_layout": "vectorised"}
    posterior = ptx.infer(1, two_modes, data, engine, **options)
    return posterior, posterior.draws["w"].sum(-1) > 0


CYCLICAL = {
    "SGLD": CyclicalSGLD(200, num_chains=8, thin=10, step_size=4.0),
    "SGHMC": CyclicalSGHMC(200, num_chains=8, thin=10, step_size=2.2, friction=0.3),
}


@pytest.mark.parametrize("engine", CYCLICAL.values(), ids=CYCLICAL)
def test_cycles_reach_both_modes_and_each_samples_the_one_it_is_in(engine):
    posterior, right = in_right_mode(engine)
    cycle = posterior.statistics["cycle"]
    np.testing.assert_array_equal(cycle, np.broadcast_to(np.repeat(np.arange(10), 20), (8, 200)))
    share = right.reshape(8, 10, 20).mean(-1)  # chain, cycle
    assert ((share == 0).any(1) & (share == 1).any(1)).all()
    assert ((share == 0) | (share == 1)).mean() > 0.6


def test_sgld_with_the_small_steps_alone_stays_in_one_mode():
    _, right = in_right_mode(SGLD(200, 100, num_chains=8, thin=20, step_size=0.05))
    assert not right.any()


@BOTH
def test_repr_round_trips(kind):
    engine = kind(num_draws=30, num_cycles=3, exploration_fraction=0.25, batch_size=8, temperature=0)
    assert eval(repr(engine)) == engine


@BOTH
@pytest.mark.parametrize(
    ("settings", "error", "match"),
    [
        ({"num_draws": 10, "num_cycles": 3}, ValueError, "num_draws must be a multiple of num_cycles"),
        ({"num_cycles": 0}, ValueError, "num_cycles must be an integer >= 1"),
        ({"exploration_fraction": 1.0}, ValueError, "exploration_fraction must be below 1"),
        ({"exploration_fraction": -0.1}, ValueError, "exploration_fraction must be zero or positive"),
        ({"step_size": Cosine(0.1, 10)}, TypeError, "step_size must be a number"),
        ({"step_size": 0.0}, ValueError, "step_size must be positive"),
        ({"thin": 0}, ValueError, "thin must be an integer >= 1"),
        ({"temperature": float("nan")}, ValueError, "temperature must be zero or positive"),
    ],
)
def test_settings_out_of_range_are_refused(kind, settings, error, match):
    with pytest.raises(error, match=f"{kind.__name__}: {match}"):
        kind(**settings)


def test_too_much_friction_is_refused():
    with pytest.raises(ValueError, match=r"CyclicalSGHMC: friction \* step_size must be at most 1"):
        CyclicalSGHMC(step_size=0.3, friction=4.0)
