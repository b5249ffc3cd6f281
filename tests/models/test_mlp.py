"""The MLP against NumPy, and its checks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ptx.models import MLP


@pytest.mark.parametrize("hidden", [(), (4,), (4, 3)])
@pytest.mark.parametrize("bias", [True, False])
def test_forward_is_its_formula(hidden, bias):
    network = MLP(num_features=3, num_outputs=2, hidden=hidden, bias=bias)
    rng = np.random.default_rng(1)
    weights = {name: rng.normal(size=w.shape) for name, w in network.weights.items()}
    x = rng.normal(size=(5, 3))
    want = x
    for layer in [*(f"hidden.{i}" for i in range(len(hidden))), "head"]:
        want = want @ weights[f"{layer}.kernel"] + (weights[f"{layer}.bias"] if bias else 0.0)
        want = want if layer == "head" else np.tanh(want)
    with jax.enable_x64(True), jax.numpy_rank_promotion("raise"):
        got = network({name: jnp.asarray(w) for name, w in weights.items()}, jnp.asarray(x))
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_sizes_are_checked():
    with pytest.raises(ValueError, match="num_features must be at least 1, got 0"):
        MLP(num_features=0, num_outputs=1)
    with pytest.raises(TypeError, match="num_outputs must be a whole number, got True"):
        MLP(num_features=1, num_outputs=True)
    with pytest.raises(TypeError, match=r"hidden must be a whole number, got 3\.5"):
        MLP(num_features=1, num_outputs=1, hidden=(3.5,))
    with pytest.raises(ValueError, match="activation must be one of 'tanh', 'relu', 'gelu', got 'sine'"):
        MLP(num_features=1, num_outputs=1, activation="sine")


def test_a_list_of_sizes_becomes_a_hashable_tuple():
    network = MLP(num_features=np.int64(2), num_outputs=1, hidden=[4])
    assert network == MLP(num_features=2, num_outputs=1, hidden=(4,))
    assert "np" not in repr(network)
    hash(network)


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        (np.zeros((4, 2)), ValueError, r"inputs must have shape \(rows, 3\).*got \(4, 2\)"),
        (np.zeros(3), ValueError, r"shape \(rows, 3\)"),
        (np.zeros((0, 3)), ValueError, "no axis of length 0"),
        (np.array([[0, 1, 2], [0, np.nan, 2.0]]), ValueError, "row 1, position 1 holds nan"),
        (np.array([[0, np.inf, 2.0]]), ValueError, "row 0, position 1 holds inf"),
        (np.array([[0, 1e39, 2.0]]), ValueError, "at most 3.4e"),
        (np.array([["a", "b", "c"]]), TypeError, "must be real numbers"),
        (np.array([[1j, 0, 0]]), TypeError, "must be real numbers"),
    ],
)
def test_bad_inputs_are_refused_at_the_door(inputs, error, message):
    with pytest.raises(error, match=message):
        MLP(num_features=3, num_outputs=1).check(inputs)


@pytest.mark.parametrize(
    "inputs", [np.zeros((1, 3)), np.ones((4, 3), np.int64), jnp.ones((2, 3), jnp.bfloat16)]
)
def test_good_inputs_pass(inputs):
    MLP(num_features=3, num_outputs=1).check(inputs)
