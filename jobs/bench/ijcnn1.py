"""ijcnn1, two classes, 49,990 x 22: certified gap, test error, times and peak memory, compared with other methods.

    python jobs/bench/ijcnn1.py [--rows 49990] [--C 32] [--tol 0.02] [--gammas G ...] [--memory 2GB]
                                [--svc-C 32] [--svc-gamma 2] [--peers svc linear nystroem]

All samples are anchors, and the features are not scaled for any method. The peers are scikit-learn's SVC (RBF),
LinearSVC, and Nystroem with 1,000 landmarks and the gamma of the SVC before LinearSVC, trained in the same run. Writes
results/ijcnn1.json with the history of the rounds, and prints a table.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from child import mllkm
from common import load, write
from machines import peer, table

PEERS = ("svc", "linear", "nystroem")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=49_990, help="training rows, chosen at random")
    parser.add_argument("--C", type=float, default=32.0)
    parser.add_argument("--tol", type=float, default=0.02)
    parser.add_argument("--gammas", type=float, nargs="*", help="automatic if not given")
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--svc-C", type=float, default=32.0)
    parser.add_argument("--svc-gamma", type=float, default=2.0)
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    arguments = parser.parse_args()
    data = load("ijcnn1")
    # The rows are a series in time, whose beginning is not like the rest of it.
    rows = np.random.default_rng(0).permutation(len(data["y"]))[: arguments.rows]
    samples = data["X"][rows], data["y"][rows], data["X_test"], data["y_test"]
    ours = mllkm(
        *samples,
        C=arguments.C,
        tol=arguments.tol,
        anchors="all",
        scaling="none",
        gammas=arguments.gammas or "auto",
        memory_budget=arguments.memory,
    )
    machines: dict[str, dict[str, Any]] = {"mllkm": ours}
    for name in arguments.peers:
        machines[name] = peer(peer_named(name, arguments), *samples)
        print(f"{name}: {machines[name]}")
    print(table(machines))
    print(f"written: {write('ijcnn1', {'setting': vars(arguments), 'machines': machines})}")


def peer_named(name: str, arguments: argparse.Namespace) -> Any:
    from sklearn.kernel_approximation import Nystroem
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import SVC, LinearSVC

    if name == "svc":
        return SVC(C=arguments.svc_C, gamma=arguments.svc_gamma, cache_size=1000)
    if name == "linear":
        return LinearSVC(C=10.0)
    landmarks = Nystroem(gamma=arguments.svc_gamma, n_components=1000, random_state=0)
    return make_pipeline(landmarks, LinearSVC(C=10.0))


if __name__ == "__main__":
    main()
