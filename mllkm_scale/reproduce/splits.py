"""Random splits of a data set, the same for every method."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mllkm_scale.base.arrays import Array

__all__ = ["TRAIN_SHARE", "Split", "random_split"]

TRAIN_SHARE = 0.7


@dataclass(frozen=True)
class Split:
    """Rows to train on and rows to test on."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array

    def __iter__(self) -> Iterator[Array]:
        return iter((self.X, self.y, self.X_test, self.y_test))


def random_split(X: Array, y: Array, seed: int, train_share: float = TRAIN_SHARE) -> Split:
    """A random part of the rows for training, and the others for testing.

    >>> split = random_split(np.arange(20.0).reshape(10, 2), np.arange(10), seed=0)
    >>> split.X.shape, split.X_test.shape, sorted([*split.y.tolist(), *split.y_test.tolist()])
    ((7, 2), (3, 2), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    order = np.random.default_rng(seed).permutation(len(X))
    train, test = np.split(order, [round(train_share * len(X))])
    return Split(X[train], y[train], X[test], y[test])
