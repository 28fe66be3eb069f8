"""MNIST, ten classes, 60,000 x 784: certified gap, test error, times and peak memory, compared with other methods.

    python jobs/bench/mnist.py [--rows 60000] [--components 50] [--C 10] [--tol 0.02] [--gammas G ...]
                               [--memory 2GB] [--peers svc linear nystroem]

All samples are anchors. The peers are scikit-learn's SVC (RBF, C = 10, gamma = 0.025 on pixels from 0 to 1), LinearSVC,
and Nystroem with 1,000 landmarks before LinearSVC, trained in the same run. Writes results/mnist.json with the history
of the rounds, and prints a table.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from child import mllkm
from common import load, write
from machines import peer, table

PEERS = ("svc", "linear", "nystroem")
GAMMAS = [0.04, 0.02, 0.01, 0.004]  # by the error on the last 10,000 training rows of machines trained on the others


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=60_000, help="first training rows")
    parser.add_argument("--components", type=int, default=50, help="principal components, 0 for all 784 pixels")
    parser.add_argument("--C", type=float, default=10.0)
    parser.add_argument("--tol", type=float, default=0.02)
    parser.add_argument(
        "--gammas", type=float, nargs="*", default=GAMMAS, help="for pixels from 0 to 1; automatic if empty"
    )
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    arguments = parser.parse_args()
    data = load("mnist")
    X, X_test = (data[name].astype(np.float32) / np.float32(255) for name in ("X", "X_test"))
    samples = X[: arguments.rows], data["y"][: arguments.rows], X_test, data["y_test"]
    ours = mllkm(
        *samples,
        C=arguments.C,
        tol=arguments.tol,
        anchors="all",
        scaling="none",
        gammas=arguments.gammas or "auto",
        n_components=arguments.components or None,
        memory_budget=arguments.memory,
    )
    rows: dict[str, dict[str, Any]] = {"mllkm": ours}
    for name in arguments.peers:
        rows[name] = peer(peer_named(name), *samples)
        print(f"{name}: {rows[name]}")
    print(table(rows))
    print(f"written: {write('mnist', {'setting': vars(arguments), 'machines': rows})}")


def peer_named(name: str) -> Any:
    from sklearn.kernel_approximation import Nystroem
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import SVC, LinearSVC

    if name == "svc":
        return SVC(C=10.0, gamma=0.025, cache_size=1000)
    if name == "linear":
        return LinearSVC(C=0.01)
    return make_pipeline(Nystroem(gamma=0.025, n_components=1000, random_state=0), LinearSVC(C=1.0))


if __name__ == "__main__":
    main()
