"""Learned kernels compared with SVC (RBF) and LDKL: error, training time, kernels and peak memory in one run.

    python jobs/bench/learned.py [--tasks ijcnn1 usps letter mnist covtype50k covtype] [--peers svc ldkl linear]

MLLKM has its defaults, with a limit of the number of kernels on letter and MNIST; for images it uses principal
components without scaling. The other methods have the same rows: standardised, scaled to [0, 1] (SVC on Covertype),
unscaled (ijcnn1), or the same components. SVC has a usual C and gamma for each task. The goals of the project are shown
beside the figures. Covertype is class 2 against the rest; its test rows are drawn at random. Each training run of MLLKM
is a separate process with its own peak memory. Writes results/learned.json, in which other tasks are kept.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from child import mllkm
from common import ROOT, load, write
from machines import peer, table

COVTYPE_TEST_ROWS, COVTYPE_ROWS = 116_203, 464_809
Samples = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Task:
    """A data set, the parameters of MLLKM and SVC, and the goals: error in percent, and seconds."""

    samples: Callable[[], Samples]
    error: float
    params: dict[str, Any] = field(default_factory=dict)
    svc: dict[str, Any] = field(default_factory=dict)
    peers: tuple[str, ...] = ("svc",)
    components: int | None = None
    peers_see: Callable[[Samples], Samples] | None = None  # how their features are scaled, if they are
    seconds: float | None = None
    memory: str = "2GB"


def official(name: str) -> Callable[[], Samples]:
    def samples() -> Samples:
        data = load(name)
        return data["X"], data["y"], data["X_test"], data["y_test"]

    return samples


def letter() -> Samples:
    data = load("letter")
    X, y = data["X"].astype(np.float64), data["y"]
    return X[:16_000], y[:16_000], X[16_000:], y[16_000:]


def covtype(rows: int) -> Callable[[], Samples]:
    def samples() -> Samples:
        data = load("covtype")
        order = np.random.default_rng(0).permutation(len(data["y"]))
        X, y = data["X"], (data["y"] == 2).astype(np.int64)
        test, train = order[:COVTYPE_TEST_ROWS], order[COVTYPE_TEST_ROWS : COVTYPE_TEST_ROWS + rows]
        return X[train], y[train], X[test], y[test]

    return samples


def as_they_are(samples: Samples) -> Samples:
    return samples


def between_0_and_1(samples: Samples) -> Samples:
    X, y, X_test, y_test = samples
    low, high = X.min(axis=0), X.max(axis=0)
    spread = np.where(high > low, high - low, 1.0)
    return (X - low) / spread, y, (X_test - low) / spread, y_test


IMAGES = {"scaling": "none", "n_components": 50}
TASKS = {
    "ijcnn1": Task(official("ijcnn1"), 1.25, svc={"C": 32.0, "gamma": 2.0}, seconds=10.0, peers_see=as_they_are),
    "usps": Task(official("usps"), 4.9, IMAGES, {"C": 10.0}, components=50),
    "letter": Task(letter, 2.6, {"max_kernels": 400}, {"C": 10.0}, seconds=60.0),
    "mnist": Task(official("mnist"), 1.4, IMAGES | {"max_kernels": 400}, {"C": 10.0}, ("svc", "linear"), 50),
    "covtype50k": Task(
        covtype(50_000),
        8.5,
        svc={"C": 32.0, "gamma": 16.0},
        peers=("svc", "ldkl"),
        seconds=60.0,
        peers_see=between_0_and_1,
    ),
    "covtype": Task(covtype(COVTYPE_ROWS), 6.5, peers=(), seconds=600.0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="*", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--peers", nargs="*", choices=("svc", "ldkl", "linear"), default=["svc", "ldkl", "linear"])
    arguments = parser.parse_args()
    before = ROOT / "results" / "learned.json"
    found = json.loads(before.read_text())["tasks"] if before.exists() else {}
    for name in arguments.tasks:
        found[name] = run(name, TASKS[name], arguments.peers)
        print(f"written: {write('learned', {'setting': vars(arguments), 'tasks': found})}", flush=True)


def run(name: str, task: Task, peers: list[str]) -> dict[str, Any]:
    samples = task.samples()
    params = {"tol": 0.02, "memory_budget": task.memory} | task.params
    rows = {"mllkm": mllkm(*samples, **params)}
    if task.peers:
        see = task.peers_see or standardised
        prepared = on_components(samples, task.components) if task.components else see(samples)
        for peer_name in (p for p in task.peers if p in peers):
            seen = standardised(samples) if peer_name == "ldkl" else prepared
            rows[peer_name] = peer(peer_named(peer_name, task), *seen)
    limit = f"at most {task.error} %" + ("" if task.seconds is None else f" in {task.seconds:.0f} s")
    print(f"\n{name}, {len(samples[1]):,} rows, limit {limit}\n{table(rows)}")
    return {"rows": len(samples[1]), "limit_percent": task.error, "limit_s": task.seconds, "machines": rows}


def standardised(samples: Samples) -> Samples:
    X, y, X_test, y_test = samples
    mean, std = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
    std[std == 0] = 1.0
    return (X - mean) / std, y, (X_test - mean) / std, y_test


def on_components(samples: Samples, count: int) -> Samples:
    """Principal components, divided by one number, so that gamma="scale" means the same for all data."""
    from sklearn.decomposition import PCA

    X, y, X_test, y_test = samples
    transform = PCA(count, svd_solver="full").fit(X.astype(np.float64))
    return transform.transform(X), y, transform.transform(X_test), y_test


def peer_named(name: str, task: Task) -> Any:
    from sklearn.svm import SVC, LinearSVC

    from mllkm_scale.baselines import LDKLClassifier

    if name == "svc":
        return SVC(**{"gamma": "scale", "cache_size": 1000} | task.svc)
    if name == "linear":
        return LinearSVC(C=0.01)
    return LDKLClassifier(6, lambda_w=1e-4, lambda_v=1e-4, lambda_theta=1e-4)


if __name__ == "__main__":
    main()
