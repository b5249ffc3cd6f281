"""Seeded orders in which every stretch of rows has the class proportions of the whole."""

import numpy as np
from jaxtyping import Int

from ptx.data import Data


def subset(data: Data, num_rows: int, *, seed: int = 0) -> Data:
    """`num_rows` rows without replacement, class by class in proportion.

    Integer targets of shape (rows,) are class labels, and each class keeps its share to about one row. For
    any other targets (per-token labels, regression) rows are drawn uniformly. Subsets of one seed are nested:
    the first 100 rows of `subset(data, 200, seed=s)` are `subset(data, 100, seed=s)`.

    Raises:
        ValueError: `num_rows` below 1 or above the number of rows, or a negative seed.
        TypeError: `num_rows` or `seed` not an integer, or `data` not a `Data`.
    """
    if not isinstance(data, Data):
        raise TypeError(
            f"subset: expected ptx.data.Data (one part, such as dataset.train), got {type(data).__name__}"
        )
    check_integer("num_rows", num_rows, minimum=1)
    if num_rows > data.num_rows:
        raise ValueError(f"num_rows: asked for {num_rows} of {data.num_rows} rows; ask for fewer")
    targets = data.targets
    classes = isinstance(targets, np.ndarray) and targets.ndim == 1 and targets.dtype.kind in "iub"
    labels = targets if classes else np.zeros(data.num_rows, np.int32)
    return data.take(stratified_order(labels, seed)[:num_rows])


def split_rows(labels: Int[np.ndarray, " rows"], seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row numbers of training (the rest), validation (a tenth) and test (a fifth, both rounded down)."""
    order = stratified_order(labels, seed)
    num_test, num_validation = len(order) // 5, len(order) // 10
    test, validation, train = np.split(order, [num_test, num_test + num_validation])
    return train, validation, test


def stratified_order(labels: Int[np.ndarray, " rows"], seed: int) -> Int[np.ndarray, " rows"]:
    """A seeded permutation of the rows with each class spread evenly along it.

    The i-th row (in random order) of a class of n stands at (i + u) / n of the way, u uniform on [0, 1), so
    any stretch holds each class's share to within about one row, without a period that strided slices could
    meet.
    """
    check_integer("seed", seed, minimum=0)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    place = np.empty(len(labels))
    for label in np.unique(labels):
        members = np.flatnonzero(labels[order] == label)
        place[members] = (np.arange(members.size) + rng.random(members.size)) / members.size
    return order[np.argsort(place)]


def check_integer(name: str, value: object, *, minimum: int) -> None:
    """Refuse what is not an integer of at least `minimum`."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise TypeError(f"{name}: expected an integer, got {value!r}")
    if value < minimum:
        raise ValueError(f"{name}: expected at least {minimum}, got {value}")
