"""Data at the door: what is taken, what is refused, and what the message says."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import ptx
from ptx.data import Data, as_data

ROWS = np.arange(6.0).reshape(3, 2)


def with_values(*values, dtype=None):
    return np.array(values, dtype)


@pytest.mark.parametrize(
    ("leaf", "error", "says"),
    [
        pytest.param(with_values(1.0, np.nan), ValueError, r"nan at index \(1,\)", id="nan"),
        pytest.param(with_values(1.0, np.inf), ValueError, r"inf at index \(1,\)", id="inf"),
        pytest.param(with_values(-np.inf, 1.0), ValueError, r"1 of 2 values", id="minus inf"),
        pytest.param(np.array([[1, 2], [3, np.nan]]), ValueError, r"index \(1, 1\)", id="nan in a matrix"),
        pytest.param(with_values(1, np.nan, dtype=np.float16), ValueError, "not finite", id="float16 nan"),
        pytest.param(
            jnp.array([jnp.nan], jnp.bfloat16), ValueError, "not finite as bfloat16", id="bfloat16 nan"
        ),
        pytest.param(with_values(1.0, 1e39), ValueError, "not finite as float32", id="float32 overflow"),
        pytest.param(with_values(0, 2**33 + 5), ValueError, r"8589934597 at index \(1,\).*int32", id="int64"),
        pytest.param(with_values(2**31), ValueError, "2147483648", id="just above int32"),
        pytest.param(with_values(-(2**31) - 1), ValueError, "does not fit int32", id="just below int32"),
        pytest.param(with_values(2**63, dtype=np.uint64), ValueError, "uint32", id="uint64"),
        pytest.param(with_values(1, 2j), TypeError, "complex128", id="complex"),
        pytest.param(with_values("a", "b"), TypeError, "<U1", id="strings"),
        pytest.param(with_values(b"a"), TypeError, r"\|S1", id="bytes"),
        pytest.param(with_values(1, None), TypeError, "object", id="object"),
        pytest.param(with_values(2**70), TypeError, "object", id="integers beyond 64 bits"),
        pytest.param(np.array(["2020-01-01"], "datetime64[D]"), TypeError, "datetime64", id="dates"),
        pytest.param(np.zeros(2, [("a", float)]), TypeError, "real, integer or bool", id="records"),
        pytest.param(object(), TypeError, "object", id="no array"),
        pytest.param(
            jax.random.split(jax.random.key(0)), TypeError, "expected an array of numbers", id="keys"
        ),
        pytest.param(np.ma.masked_less([1.0, 2.0], 1.5), ValueError, "masked entries", id="masked"),
        pytest.param(3.0, ValueError, "scalar", id="number"),
        pytest.param(np.float32(3), ValueError, "scalar", id="NumPy scalar"),
        pytest.param(np.array(3), ValueError, "leading row axis", id="0-d array"),
        pytest.param(np.zeros((0, 2)), ValueError, "no rows", id="no rows"),
    ],
)
@pytest.mark.parametrize("field", ["inputs", "targets"])
def test_bad_leaves_are_refused_by_name(field, leaf, error, says):
    with pytest.raises(error, match=says) as caught:
        Data(**{"inputs": None, field: {"x": leaf}})
    assert "no rows" in says or f"{field}['x']" in str(caught.value)


def test_lists_of_numbers_say_what_to_do():
    with pytest.raises(ValueError, match=r"targets\[0\].*numpy\.asarray"):
        Data(ROWS, [1, 2, 3])
    with pytest.raises(ValueError, match=r"numpy\.asarray"):
        Data([[1, 2], [3]])


def test_no_array_at_all_is_refused():
    for inputs in (None, {}, (), {"a": None}):
        with pytest.raises(ValueError, match="hold no array"):
            Data(inputs)


@pytest.mark.parametrize(
    ("inputs", "targets", "says"),
    [
        (ROWS, np.zeros(4), r"\['inputs'\]: 3, \['targets'\]: 4"),
        ({"a": ROWS, "b": np.zeros(2)}, None, r"'b'\]: 2"),
        (ROWS.T, np.zeros(3), "2.*3"),
        (np.zeros((0, 3)), np.zeros(4), "leading"),
    ],
)
def test_unequal_rows_are_refused(inputs, targets, says):
    with pytest.raises(ValueError, match=says):
        Data(inputs, targets)


def test_tracers_are_refused():
    with pytest.raises(TypeError, match="concrete arrays"):
        jax.jit(lambda x: Data(x).inputs)(jnp.zeros(3))
    with pytest.raises(TypeError, match="concrete arrays"):
        jax.grad(lambda x: Data(x).inputs.sum())(jnp.zeros(3))


@pytest.mark.parametrize(
    "leaf",
    [
        with_values(-(2**31), 2**31 - 1),
        with_values(2**32 - 1, dtype=np.uint32),
        with_values(2**32 - 1, dtype=np.uint64),
        with_values(127, dtype=np.int8),
        with_values(True, False),
        with_values(1e-40, 3e38),
        with_values(1.5, dtype=np.float16),
        with_values(1.5, dtype=ml_dtypes.bfloat16),
        np.zeros((1, 3, 0)),
        np.asfortranarray(ROWS),
        ROWS[::-1],
        np.ma.masked_array([1.0, 2.0]),
    ],
    ids=lambda leaf: f"{leaf.dtype}{leaf.shape}",
)
def test_values_and_dtypes_are_kept(leaf):
    data = Data(leaf)
    assert data.inputs.dtype == leaf.dtype
    assert np.array_equal(data.inputs, leaf)
    on_device = jnp.asarray(data.inputs)
    if leaf.dtype.kind in "iu":
        assert [int(v) for v in on_device.ravel()] == [int(v) for v in leaf.ravel()]


def test_jax_arrays_come_to_the_host():
    data = Data(jnp.arange(3), {"y": jnp.ones((3, 2), jnp.bfloat16)})
    assert type(data.inputs) is np.ndarray
    assert data.targets["y"].dtype == ml_dtypes.bfloat16


def test_data_frames_count_as_arrays():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2.0], "b": [3, 4]})
    assert np.array_equal(Data(frame, frame["b"]).inputs, [[1, 3], [2, 4]])
    with pytest.raises(TypeError, match="object"):
        Data(frame.assign(c=["x", "y"]))
    with pytest.raises(ValueError, match="not finite"):
        Data(pandas.Series([1.0, None]))


def test_rows_are_taken_together_and_trees_keep_their_shape():
    data = Data({"b": ROWS, "a": (np.arange(3), None)}, np.array([5, 6, 7]))
    assert data.num_rows == 3
    taken = data.take(np.array([2, 0]))
    assert np.array_equal(taken.inputs["b"], ROWS[[2, 0]])
    assert np.array_equal(taken.inputs["a"][0], [2, 0])
    assert taken.inputs["a"][1] is None
    assert np.array_equal(taken.targets, [7, 5])
    doubled = jax.jit(lambda d: jax.tree.map(lambda leaf: 2 * leaf, d))(data)
    assert isinstance(doubled, Data)
    assert np.array_equal(doubled.targets, [10, 12, 14])
    assert data.take(slice(1, 2)).num_rows == 1


def test_pairs_are_data():
    assert as_data((ROWS, None)).num_rows == 3
    same = Data(ROWS)
    assert as_data(same) is same
    for bad in ([ROWS, ROWS], (ROWS,), (ROWS, ROWS, ROWS), ROWS, {"inputs": ROWS}, None):
        with pytest.raises(TypeError, match=r"ptx\.Data or a pair"):
            as_data(bad)


def test_infer_checks_pairs_before_it_runs():
    def never(inputs, targets=None):
        raise AssertionError("the model was run")

    with pytest.raises(ValueError, match="targets: 1 of 3 values are not finite"):
        ptx.infer(0, never, (ROWS, np.array([0, np.nan, 1])), ptx.inference.NUTS(), progress=False)
