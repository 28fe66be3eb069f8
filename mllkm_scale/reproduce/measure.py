"""Train a machine, test it, and time both."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.reproduce.splits import Split

__all__ = ["best_time_s", "tested"]

_AT_LEAST_S = 0.05  # predictions are repeated so long, and the shortest counts: others wait for the machine


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
