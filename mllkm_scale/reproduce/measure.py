"""One measurement of an experiment: load the data, split it at random, train a machine, test it, and time both.

The splits depend only on their seed, so that they are the same for every method.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.data import Dataset
from mllkm_scale.data.catalogue import ENTRIES, find, load

__all__ = ["TRAIN_SHARE", "Split", "best_time_s", "random_split", "samples", "tested"]

TRAIN_SHARE = 0.7
_AT_LEAST_S = 0.05  # predictions are repeated for this time, and the shortest one counts


def samples(name: str, tell: Callable[[str], None]) -> tuple[Array, Array]:
    """X (n, d) and y (n,) of a data set of the catalogue, or of an HDF5 or zarr file with these names."""
    if name not in ENTRIES and (Path(name).suffix or Path(name).exists()):
        with Dataset.open(name) as dataset:
            return dataset.part(0, dataset.n_rows).astype(np.float64), dataset.labels()
    found = load(find(name).name, notice=tell, progress=tell)
    return found.X.astype(np.float64), found.y


@dataclass(frozen=True)
class Split:
    """Training rows and test rows."""

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


def tested(machine: Any, split: Split) -> dict[str, Any]:
    """Accuracy in percent on the test rows, seconds of training, and of the shortest prediction of all test rows."""
    from sklearn.exceptions import ConvergenceWarning

    X, y, X_test, y_test = split
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        machine.fit(X, y)
    train_s = time.perf_counter() - started
    unfinished = sum(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    labels, predict_s = best_time_s(machine, X_test)
    return {
        "accuracy": 100.0 * float(np.mean(labels == y_test)),
        "train_s": train_s,
        "predict_s": predict_s,
        "unfinished": unfinished,
    }


def best_time_s(machine: Any, X: Array) -> tuple[Array, float]:
    """Labels of the rows, and the shortest of several predictions."""
    labels: Array = np.empty(0)
    seconds: list[float] = []
    while sum(seconds) < _AT_LEAST_S or len(seconds) < 2:
        started = time.perf_counter()
        labels = machine.predict(X)
        seconds.append(time.perf_counter() - started)
        if seconds[0] > 10.0:
            break
    return labels, min(seconds)
