import numpy as np
import pytest

from ptx.datasets import digits


def test_digits_hold_every_image_once_scaled_to_the_unit_interval():
    from sklearn.datasets import load_digits

    dataset = digits()
    parts = (dataset.train, dataset.validation, dataset.test)
    assert [part.num_rows for part in parts] == [1259, 179, 359]
    images = np.concatenate([part.inputs for part in parts])
    labels = np.concatenate([part.targets for part in parts])
    assert images.dtype == np.float32
    assert images.shape == (1797, 8, 8)
    assert labels.dtype == np.int32
    assert images.min() == 0
    assert images.max() == 1
    expected = load_digits()
    pixels = np.column_stack([images.reshape(1797, 64) * 16, labels]).astype(int)
    source = np.column_stack([expected.images.reshape(1797, 64), expected.target]).astype(int)
    assert sorted(map(tuple, pixels)) == sorted(map(tuple, source))


def test_digits_are_deterministic_in_the_seed():
    first, again, other = digits(seed=3), digits(seed=3), digits(seed=4)
    np.testing.assert_array_equal(first.test.inputs, again.test.inputs)
    assert not np.array_equal(first.test.inputs, other.test.inputs)
    assert digits(seed=2**63).test.num_rows == 359


def test_digits_of_seed_0_stay_what_they_are():
    dataset = digits()
    assert dataset.train.targets[:12].tolist() == [0, 5, 7, 2, 1, 8, 5, 3, 6, 9, 7, 4]
    assert dataset.test.inputs[:3].sum(axis=(1, 2)).tolist() == [18.75, 19.8125, 16.4375]


def test_each_part_of_digits_has_the_class_proportions_of_the_whole():
    dataset = digits(seed=1)
    assert dataset.classes == tuple("0123456789")
    whole = np.bincount(
        np.concatenate([dataset.train.targets, dataset.validation.targets, dataset.test.targets])
    )
    for part in (dataset.train, dataset.validation, dataset.test):
        share = whole * part.num_rows / 1797
        assert np.abs(np.bincount(part.targets, minlength=10) - share).max() < 2


@pytest.mark.parametrize(
    ("seed", "error"), [(-1, ValueError), (1.0, TypeError), (True, TypeError), (None, TypeError)]
)
def test_digits_refuse_a_seed_that_is_no_non_negative_integer(seed, error):
    with pytest.raises(error, match="seed"):
        digits(seed=seed)
