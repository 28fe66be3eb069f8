"""USPS, ten classes, 7,291 x 256: certified gap, test error, time and peak memory within a budget.

    python jobs/bench/usps.py [--memory 1GB] [--C 10] [--gammas G ...] [--components 0] [--rows 0] [--svc]

All samples are anchors; the gammas are half-widths of 0.35, 0.5, 1 and 2 median distances. Writes results/usps.json
with the history of the rounds; --svc adds scikit-learn's RBF SVM in the same run.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np
from common import load, write

from mllkm_scale import Dataset, train
from mllkm_scale.run.progress import PlainProgress
from mllkm_scale.units import format_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--memory", default="1GB")
    parser.add_argument("--C", type=float, default=10.0)
    parser.add_argument("--tol", type=float, default=0.01)
    parser.add_argument("--gammas", type=float, nargs="*", default=[0.095, 0.0465, 0.0116, 0.0029])
    parser.add_argument("--components", type=int, default=0, help="principal components, 0 for all 256 pixels")
    parser.add_argument("--rows", type=int, default=0, help="first training rows, 0 for all")
    parser.add_argument("--svc", action="store_true", help="also train scikit-learn's RBF SVM")
    arguments = parser.parse_args()
    data = load("usps")
    X_test, y_test = data.pop("X_test"), data.pop("y_test")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "usps.h5"
        with h5py.File(path, "w") as file:
            file["X"], file["y"] = data["X"][: arguments.rows or None], data["y"][: arguments.rows or None]
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
    started = time.perf_counter()
    error = 100.0 * float(np.mean(result.model.predict(X_test, n_jobs=-1) != y_test))
    certificate = result.model.certificate
    record = {
        "setting": vars(arguments),
        "status": result.status,
        "gap": certificate.gap,
        "n_open": certificate.n_open,
        "kernels": result.model.n_kernels,
        "train_s": seconds,
        "predict_us_a_row": 1e6 * (time.perf_counter() - started) / len(X_test),
        "test_error_percent": error,
        "peak_bytes": result.peak_bytes,
        "plan": result.plan.as_dict(),
        "history": [vars(event) for event in result.history],
    }
    print(
        f"gap {100 * certificate.gap:.2f} % over {certificate.n_open} kernels, {result.model.n_kernels} kernels,"
        f" test error {error:.2f} %, {seconds:.1f} s, peak {format_bytes(result.peak_bytes)} of {arguments.memory}"
    )
    if arguments.svc:
        record["svc"] = rbf_svm(
            data["X"][: arguments.rows or None], data["y"][: arguments.rows or None], X_test, y_test
        )
        print(f"RBF SVM: test error {record['svc']['test_error_percent']:.2f} %, {record['svc']['train_s']:.1f} s")
    print(f"written: {write('usps', record)}")


def rbf_svm(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> dict[str, float]:
    from sklearn.svm import SVC

    started = time.perf_counter()
    svc = SVC(C=10.0, gamma=1.0 / (X.shape[1] * X.var())).fit(X, y)
    trained = time.perf_counter()
    error = 100.0 * float(np.mean(svc.predict(X_test) != y_test))
    return {
        "train_s": trained - started,
        "predict_us_a_row": 1e6 * (time.perf_counter() - trained) / len(X_test),
        "test_error_percent": error,
        "support_vectors": int(svc.n_support_.sum()),
    }


if __name__ == "__main__":
    main()
