"""MNIST, ten classes, 60,000 x 784: certified gap, test error, times and peak memory, beside the usual machines.

    python jobs/bench/mnist.py [--rows 60000] [--components 50] [--C 10] [--tol 0.02] [--gammas G ...]
                               [--memory 2GB] [--peers svc linear nystroem]

All samples are anchors. The peers are scikit-learn's SVC (RBF, C = 10, gamma = 0.025 on pixels from 0 to 1), LinearSVC,
and Nystroem with 1,000 landmarks before LinearSVC, trained in the same run. Writes results/mnist.json with the history
of the rounds, and prints a table.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from common import load, write

from mllkm_scale import Dataset, train
from mllkm_scale.run.progress import PlainProgress
from mllkm_scale.units import format_bytes

PEERS = ("svc", "linear", "nystroem")
REPEATS = 3  # of a prediction, whose shortest time counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=60_000, help="first training rows")
    parser.add_argument("--components", type=int, default=50, help="principal components, 0 for all 784 pixels")
    parser.add_argument("--C", type=float, default=10.0)
    parser.add_argument("--tol", type=float, default=0.02)
    parser.add_argument("--gammas", type=float, nargs="*", help="automatic if not given; for pixels from 0 to 1")
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    arguments = parser.parse_args()
    data = load("mnist")
    X, X_test = (data[name].astype(np.float32) / np.float32(255) for name in ("X", "X_test"))
    X, y, y_test = X[: arguments.rows], data["y"][: arguments.rows], data["y_test"]
    rows: dict[str, dict[str, Any]] = {"mllkm": mllkm(X, y, X_test, y_test, arguments)}
    for name in arguments.peers:
        rows[name] = peer(name, X, y, X_test, y_test)
        print(f"{name}: {rows[name]}")
    print(table(rows))
    print(f"written: {write('mnist', {'setting': vars(arguments), 'machines': rows})}")


def mllkm(
    X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray, arguments: argparse.Namespace
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mnist.h5"
        with h5py.File(path, "w") as file:
            file["X"], file["y"] = X, y
        started = time.perf_counter()
        result = train(
            Dataset.open(path),
            listener=PlainProgress(tol=arguments.tol),
            C=arguments.C,
            tol=arguments.tol,
            scaling="none",
            gammas=arguments.gammas or "auto",
            n_components=arguments.components or None,
            memory_budget=arguments.memory,
        )
        seconds = time.perf_counter() - started
    predict_s, labels = shortest(lambda: result.model.predict(X_test, n_jobs=-1))
    return {
        "train_s": seconds,
        "predict_us_a_row": 1e6 * predict_s / len(X_test),
        "test_error_percent": 100.0 * float(np.mean(labels != y_test)),
        "size": f"{result.model.n_kernels} kernels",
        "status": result.status,
        "gap": result.model.certificate.gap,
        "n_open": result.model.certificate.n_open,
        "peak": format_bytes(result.peak_bytes),
        "peak_bytes": result.peak_bytes,
        "plan": result.plan.as_dict(),
        "history": [vars(event) for event in result.history],
    }


def peer(name: str, X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> dict[str, Any]:
    from sklearn.kernel_approximation import Nystroem
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import SVC, LinearSVC

    machine = {
        "svc": SVC(C=10.0, gamma=0.025, cache_size=1000),
        "linear": LinearSVC(C=0.01),
        "nystroem": make_pipeline(Nystroem(gamma=0.025, n_components=1000, random_state=0), LinearSVC(C=1.0)),
    }[name]
    started = time.perf_counter()
    machine.fit(X, y)
    seconds = time.perf_counter() - started
    predict_s, labels = shortest(lambda: machine.predict(X_test), 1 if name == "svc" else REPEATS)
    size = f"{int(machine.n_support_.sum())} support vectors" if name == "svc" else ""
    return {
        "train_s": seconds,
        "predict_us_a_row": 1e6 * predict_s / len(X_test),
        "test_error_percent": 100.0 * float(np.mean(labels != y_test)),
        "size": size,
    }


def shortest(predict: Callable[[], np.ndarray], repeats: int = REPEATS) -> tuple[float, np.ndarray]:
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        labels = predict()
        seconds.append(time.perf_counter() - started)
    return min(seconds), labels


def table(rows: dict[str, dict[str, Any]]) -> str:
    lines = [f"{'':10s} {'error %':>8s} {'train s':>9s} {'us a row':>9s}  size"]
    for name, row in rows.items():
        figures = f"{row['test_error_percent']:8.2f} {row['train_s']:9.1f} {row['predict_us_a_row']:9.1f}"
        more = f", gap {100 * row['gap']:.2f} %, peak {row['peak']}" if "gap" in row else ""
        lines.append(f"{name:10s} {figures}  {row['size']}{more}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
