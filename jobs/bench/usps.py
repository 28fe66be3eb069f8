"""USPS, ten classes, 7,291 x 256: certified gap, test error, time and peak memory within a budget.

    python jobs/bench/usps.py [--memory 1GB] [--C 10] [--gammas G ...] [--components 0] [--rows 0] [--svc]

All samples are anchors; the gammas are half-widths of 0.35, 0.5, 1 and 2 median distances. Writes results/usps.json
with the history of the rounds; --svc adds scikit-learn's RBF SVM in the same run.
"""

from __future__ import annotations

import argparse

from child import mllkm
from common import load, write
from machines import peer


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
    X, y = (data[name][: arguments.rows or None] for name in ("X", "y"))
    samples = X, y, data["X_test"], data["y_test"]
    record = {"setting": vars(arguments)} | mllkm(
        *samples,
        C=arguments.C,
        tol=arguments.tol,
        anchors="all",
        scaling="none",
        gammas=arguments.gammas or "auto",
        n_components=arguments.components or None,
        memory_budget=arguments.memory,
    )
    print(
        f"gap {100 * record['gap']:.2f} % over {record['n_open']} kernels, {record['size']},"
        f" test error {record['test_error_percent']:.2f} %, {record['train_s']:.1f} s,"
        f" peak {record['peak']} of {arguments.memory}"
    )
    if arguments.svc:
        from sklearn.svm import SVC

        svc = SVC(C=10.0, gamma=1.0 / (X.shape[1] * X.var()))
        record["svc"] = peer(svc, *samples) | {"support_vectors": int(svc.n_support_.sum())}
        print(f"RBF SVM: test error {record['svc']['test_error_percent']:.2f} %, {record['svc']['train_s']:.1f} s")
    print(f"written: {write('usps', record)}")


if __name__ == "__main__":
    main()
