"""Other methods with the interface of scikit-learn: training, tests, and tables."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

REPEATS = 3  # of a prediction, whose shortest time counts
GRID_C = (0.1, 1.0, 10.0, 100.0, 1000.0)
GRID_GAMMA = (1 / 64, 1 / 16, 1 / 4, 1.0, 4.0, 16.0)  # times 1 / d, which is gamma="scale" on standardised features


def tuned_svc(n_features: int) -> Any:
    """SVC (RBF) on standardised features; C and gamma by 3-fold cross-validation over a grid, one process per core."""
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    grid = {"svc__C": list(GRID_C), "svc__gamma": [factor / n_features for factor in GRID_GAMMA]}
    return GridSearchCV(make_pipeline(StandardScaler(), SVC()), grid, cv=3, n_jobs=os.cpu_count())


def peer(machine: Any, X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> dict[str, Any]:
    """The record of a machine with `fit` and `predict`; one with support vectors is slow, and predicts once."""
    started = time.perf_counter()
    machine.fit(X, y)
    seconds = time.perf_counter() - started
    size, repeats, fitted = "", REPEATS, _last_step(machine)
    if hasattr(fitted, "n_support_"):
        size, repeats = f"{fitted.n_support_.sum()} support vectors", 1
    elif hasattr(fitted, "n_estimators_"):
        size = f"{fitted.n_estimators_} trees"
    return {"train_s": seconds, "size": size} | measured(lambda: machine.predict(X_test), y_test, repeats)


def _last_step(machine: Any) -> Any:
    """The fitted classifier itself, inside a grid search or a pipeline."""
    machine = getattr(machine, "best_estimator_", machine)
    return machine[-1] if hasattr(machine, "steps") else machine


def measured(predict: Callable[[], np.ndarray], y_test: np.ndarray, repeats: int = REPEATS) -> dict[str, float]:
    """The shortest time of a prediction, and the share of its labels that are wrong."""
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        labels = predict()
        seconds.append(time.perf_counter() - started)
    return {
        "predict_us_a_row": 1e6 * min(seconds) / len(y_test),
        "test_error_percent": 100.0 * float(np.mean(labels != y_test)),
    }


def table(rows: dict[str, dict[str, Any]], accuracy: bool = False) -> str:
    """A line per machine, by name, with its error or its accuracy; if a machine is missing, with the reason."""
    lines = [f"{'':10s} {'accuracy' if accuracy else 'error %':>8s} {'train s':>9s} {'us a row':>9s}  size"]
    for name, row in rows.items():
        if "missing" in row:
            lines.append(f"{name:10s} {row['missing']}")
            continue
        percent = 100.0 - row["test_error_percent"] if accuracy else row["test_error_percent"]
        figures = f"{percent:8.2f} {row['train_s']:9.1f} {row['predict_us_a_row']:9.1f}"
        more = f", gap {100 * row['gap']:.2f} %, peak {row['peak']}" if "gap" in row else ""
        lines.append(f"{name:10s} {figures}  {row['size']}{more}")
    return "\n".join(lines)
