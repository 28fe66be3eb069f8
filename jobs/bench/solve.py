"""Convergence of the convex training: rounds and seconds with narrow bumps and large C; all samples are anchors.

    python jobs/bench/solve.py [--problems banana covtype letter mnist mnist100 learned] [--beside TREE]
                               [--tol TOL] [--seconds 300] [--rows N]

banana      4,000 rows, C = 10, half-widths of the bumps from 0.05 to 3 median distances, to a gap of 5 %
covtype     4,000 rows of Covertype, C = 10, half-widths from 0.15 to 3, to 5 %
letter      16,000 rows, 26 classes, C = 10, to 5 %
mnist       60,000 rows, 50 components, four gammas, to 2 %
mnist100    the same with at most 100 kernels
learned     50,000 rows of Covertype, the candidates are 200 kernels that were learned, to 5 %

Every training run is a separate process. With --beside, it is followed by one with the package in the folder TREE (such
as a worktree of an earlier commit), for comparison. Writes results/solve.json, with every round, and prints a table.
Problems that are not run are not changed in that file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from common import ROOT, load, write, write_hdf5
from mnist import GAMMAS
from scipy.spatial.distance import pdist

Samples = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
SAMPLE_ROWS = 1000  # whose median distance is the unit of half-widths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--beside", type=Path, metavar="TREE", help="folder of another version of the package")
    parser.add_argument("--tol", type=float, help="gap, instead of that of the problem")
    parser.add_argument("--rows", type=int, help="number of training rows; the first ones are used")
    parser.add_argument("--seconds", type=float, default=300.0, help="time limit of a training run")
    arguments = parser.parse_args()
    trees = {"this": ROOT} | ({} if arguments.beside is None else {"beside": arguments.beside.resolve()})
    known = ROOT / "results" / "solve.json"
    found = json.loads(known.read_text())["problems"] if known.exists() else {}
    for name in arguments.problems:
        samples, params = PROBLEMS[name]()
        samples = (samples[0][: arguments.rows], samples[1][: arguments.rows], *samples[2:])
        params["time_limit"] = arguments.seconds
        if arguments.tol is not None:
            params["tol"] = arguments.tol
        found.setdefault(name, {})
        for label, tree in trees.items():
            found[name][label] = trained(samples, params, tree)
            print(line(f"{name} ({label})", found[name][label]), flush=True)
    print(f"written: {write('solve', {'problems': found})}")


def trained(samples: Samples, params: dict[str, Any], tree: Path) -> dict[str, Any]:
    """The record of a training run in a separate process, with the package and child.py of a folder."""
    X, y, X_test, y_test = samples
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_hdf5(folder / "train.h5", X, y)
        write_hdf5(folder / "test.h5", X_test, y_test)
        arguments = [str(folder / part) for part in ("train.h5", "test.h5", "run")]
        command = [sys.executable, str(tree / "jobs" / "bench" / "child.py"), *arguments, json.dumps(params)]
        environment = os.environ | {"PYTHONPATH": str(tree)}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False)
        if done.returncode:
            sys.exit(f"the training ended with {done.returncode}: {done.stdout.decode()[-2000:]}")
        record: dict[str, Any] = json.loads((folder / "run" / "record.json").read_text())
        return record


def line(title: str, record: dict[str, Any]) -> str:
    """Rounds, seconds of the parts, gap, kernels and test error of a training run."""
    rounds = record["history"]
    solve, scan, passes = (sum(row[part] for row in rounds) for part in ("solve_s", "scan_s", "margins_s"))
    return (
        f"{title}: {record['status']}, {len(rounds)} rounds, {record['train_s']:.1f} s (solve {solve:.1f}, scan"
        f" {scan:.1f}, pass {passes:.1f}), gap {100 * record['gap']:.2f} %, {record['kernels']} kernels,"
        f" error {record['test_error_percent']:.2f} %"
    )


def narrow(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray, half_widths: list[float]) -> Any:
    """Standardised samples, and parameters with gaussian bumps of these half-widths in median distances."""
    mean, scale = X.mean(axis=0), np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    X, X_test = (X - mean) / scale, (X_test - mean) / scale
    median = float(np.median(pdist(X[:SAMPLE_ROWS])))
    gammas = [float(np.log(2.0) / (width * median) ** 2) for width in half_widths]
    return (X, y, X_test, y_test), PLAIN | {"C": 10.0, "tol": 0.05, "gammas": gammas}


def banana() -> tuple[Samples, dict[str, Any]]:
    data = load("banana")
    rows = np.random.default_rng(0).permutation(len(data["y"]))
    X, y = data["X"][rows].astype(np.float64), data["y"][rows]
    return narrow(X[:4000], y[:4000], X[4000:], y[4000:], [0.05, 0.1, 0.2, 0.5, 1.0, 3.0])


def covtype() -> tuple[Samples, dict[str, Any]]:
    data = load("covtype")
    rows = np.random.default_rng(0).permutation(len(data["y"]))[:24_000]
    X, y = data["X"][rows].astype(np.float64), (data["y"][rows] == 2).astype(np.int32)
    return narrow(X[:4000], y[:4000], X[4000:], y[4000:], [0.15, 0.25, 0.4, 0.7, 1.2, 3.0])


def letter() -> tuple[Samples, dict[str, Any]]:
    data = load("letter")
    X, y = data["X"].astype(np.float64), data["y"]
    y = np.unique(y, return_inverse=True)[1]
    return (X[:16_000], y[:16_000], X[16_000:], y[16_000:]), PLAIN | {"C": 10.0, "tol": 0.05, "scaling": "standard"}


def mnist() -> tuple[Samples, dict[str, Any]]:
    data = load("mnist")
    X, X_test = (data[part].astype(np.float32) / np.float32(255) for part in ("X", "X_test"))
    params = {"C": 10.0, "tol": 0.02, "n_components": 50, "gammas": GAMMAS}
    return (X, data["y"], X_test, data["y_test"]), PLAIN | params


def mnist100() -> tuple[Samples, dict[str, Any]]:
    samples, params = mnist()
    return samples, params | {"max_kernels": 100}


def learned() -> tuple[Samples, dict[str, Any]]:
    data = load("covtype")
    rows = np.random.default_rng(0).permutation(len(data["y"]))[:70_000]
    X, y = data["X"][rows].astype(np.float64), (data["y"][rows] == 2).astype(np.int32)
    params = {"anchors": "learned:200", "metric": "diagonal", "scaling": "standard", "finish": "mkl", "C": 10.0}
    return (X[:50_000], y[:50_000], X[50_000:], y[50_000:]), PLAIN | params | {"tol": 0.05}


PLAIN = {"anchors": "all", "scaling": "none", "random_state": 0}
PROBLEMS = {
    "banana": banana,
    "covtype": covtype,
    "letter": letter,
    "mnist": mnist,
    "mnist100": mnist100,
    "learned": learned,
}

if __name__ == "__main__":
    main()
