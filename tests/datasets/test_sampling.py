import numpy as np
import pytest

from ptx.data import Data
from ptx.datasets import subset
from ptx.datasets.sampling import split_rows, stratified_order

UNEVEN = np.repeat([0, 1, 2], [700, 250, 50])


def test_an_order_is_a_permutation_whose_prefixes_keep_the_proportions():
    order = stratified_order(UNEVEN, seed=0)
    assert sorted(order) == list(range(1000))
    for length in (20, 100, 333, 999):
        counts = np.bincount(UNEVEN[order[:length]], minlength=3)
        assert np.abs(counts - length * np.array([0.7, 0.25, 0.05])).max() < 2.5
    plain = np.random.default_rng(0).permutation(1000)  # the control: off by several rows
    counts = np.bincount(UNEVEN[plain[:333]], minlength=3)
    assert np.abs(counts - 333 * np.array([0.7, 0.25, 0.05])).max() > 2.5


def test_an_order_has_no_period():
    labels = np.repeat([0, 1], 500)
    alternate = labels[stratified_order(labels, seed=0)][::2]
    assert 200 < alternate.sum() < 300


def test_splits_are_disjoint_and_cover_all_rows():
    train, validation, test = split_rows(UNEVEN, seed=5)
    assert (len(train), len(validation), len(test)) == (700, 100, 200)
    assert sorted(np.concatenate([train, validation, test])) == list(range(1000))


def test_subset_keeps_pairs_together_and_is_nested():
    data = Data(inputs={"x": np.arange(1000) * 10}, targets=UNEVEN)
    few, more = subset(data, 100, seed=1), subset(data, 200, seed=1)
    np.testing.assert_array_equal(few.targets, UNEVEN[few.inputs["x"] // 10])
    np.testing.assert_array_equal(more.inputs["x"][:100], few.inputs["x"])
    assert len(set(more.inputs["x"])) == 200
    assert np.abs(np.bincount(few.targets) - [70, 25, 5]).max() <= 2
    assert not np.array_equal(few.inputs["x"], subset(data, 100, seed=2).inputs["x"])


@pytest.mark.parametrize("targets", [np.zeros((30, 4), np.int32), np.linspace(0, 1, 30), None])
def test_subset_of_other_targets_is_a_plain_draw(targets):
    chosen = subset(Data(inputs=np.arange(30), targets=targets), 30).inputs
    assert sorted(chosen) == list(range(30))
    assert not np.array_equal(chosen, np.arange(30))


def test_subset_takes_one_row_of_one_class():
    data = Data(inputs=np.arange(4.0), targets=np.zeros(4, np.int32))
    assert subset(data, 1).num_rows == 1


@pytest.mark.parametrize(
    ("num_rows", "seed", "error", "message"),
    [
        (0, 0, ValueError, "num_rows: expected at least 1, got 0"),
        (5, 0, ValueError, "asked for 5 of 4 rows"),
        (2.0, 0, TypeError, "num_rows: expected an integer, got 2.0"),
        (2, -1, ValueError, "seed: expected at least 0, got -1"),
    ],
)
def test_subset_refuses_bad_sizes_and_seeds(num_rows, seed, error, message):
    with pytest.raises(error, match=message):
        subset(Data(inputs=np.arange(4.0), targets=np.zeros(4, np.int32)), num_rows, seed=seed)


def test_subset_refuses_a_whole_dataset():
    with pytest.raises(TypeError, match=r"dataset\.train"):
        subset((np.zeros(3), np.zeros(3)), 2)
