"""Image data sets."""

import numpy as np

from ptx.data import Data
from ptx.datasets.records import Dataset
from ptx.datasets.sampling import split_rows


def digits(*, seed: int = 0) -> Dataset:
    """Handwritten digits: 1,797 grey images of 8 x 8 pixels in 10 classes, as scikit-learn ships them.

    `inputs` is float32 of shape (rows, 8, 8) with values in [0, 1] (the pixel counts 0 .. 16 over 16),
    `targets` is int32 of shape (rows,). The rows have no official split; this one is drawn by `seed`, with
    the classes in proportion: test 359 rows (a fifth), validation 179 (a tenth), training 1,259. Rows are in
    random order and any stretch of them is nearly class-balanced. Writers are mixed over the parts, so
    accuracies here are higher than for unseen writers.

    Raises:
        TypeError, ValueError: a seed that is not a non-negative integer.

    Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning
    Repository, 1998 (its test set).
    """
    from sklearn.datasets import load_digits

    pixels, digit = load_digits(return_X_y=True)
    images = (np.asarray(pixels).reshape(-1, 8, 8) / 16).astype(np.float32)
    labels = np.asarray(digit, np.int32)
    train, validation, test = (
        Data(inputs=images[rows], targets=labels[rows]) for rows in split_rows(labels, seed)
    )
    return Dataset(train, validation, test, classes=tuple("0123456789"))
