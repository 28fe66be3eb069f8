"""Covertype, class 2 against the rest, 581,012 x 54: growth of time and memory with the rows, compared with other
methods.

    python jobs/bench/covtype.py [--sizes N ...] [--C 10] [--gammas G ...] [--tol 0.05] [--memory 2GB] [--anchors all]
                                 [--time-limit 3600] [--peers linear nystroem lightgbm]

Four fifths of the rows, chosen at random, are for training and the rest for testing; a size uses the first training
rows. Features are scaled to [0, 1]: most are rare indicators, which scaling to unit variance would inflate. Each
training run is a separate process with its own peak memory; a run that reaches the time limit ends after its round,
with its current gap. Time and peak memory grow as powers of the rows: the exponents are the slopes of straight lines
through their logarithms, by least squares. The peers are LinearSVC, Nystroem with 1,000 landmarks before LinearSVC (13
GB for all rows), and LightGBM if it is installed, on the largest size. Writes results/covtype.json with the history of
the rounds, and prints a line per size and a table.
"""

from __future__ import annotations

import argparse
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from child import train_in_child
from common import exponent, load, write, write_hdf5
from machines import peer, table

PEERS = ("linear", "nystroem", "lightgbm")
SIZES = [464_809 // part for part in (16, 8, 4, 2, 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="training rows, at most 464809")
    parser.add_argument("--C", type=float, default=10.0)
    parser.add_argument("--gammas", type=float, nargs="*", help="automatic if not given; for features from 0 to 1")
    parser.add_argument("--tol", type=float, default=0.05)
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--anchors", type=anchors, default="all", help="a number of random rows, all or kmeans:N")
    parser.add_argument("--time-limit", type=float, default=3600.0, help="seconds for each size")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    arguments = parser.parse_args()
    data = load("covtype")
    X, y = data["X"], (data["y"] == 2).astype(np.int32)
    rows, test = np.split(np.random.default_rng(0).permutation(len(y)), [4 * len(y) // 5])
    ours = grow({size: rows[:size] for size in sorted(arguments.sizes)}, X, y, test, arguments)
    largest = max(ours)
    machines = {"mllkm": ours[largest]}
    for name in arguments.peers:
        machines[name] = peer_record(name, *(part[at] for at in (rows[:largest], test) for part in (X, y)))
    exponents = {name: exponent(ours, name) for name in ("train_s", "peak_bytes")} if len(ours) > 1 else None
    if exponents:
        print(f"time grows as rows^{exponents['train_s']:.2f}, peak memory as rows^{exponents['peak_bytes']:.2f}")
    print(f"{largest} rows:\n{table(machines, accuracy=True)}")
    result = {"setting": vars(arguments), "sizes": ours, "exponents": exponents, "machines": machines}
    print(f"written: {write('covtype', result)}")


def grow(
    sizes: dict[int, np.ndarray], X: np.ndarray, y: np.ndarray, test: np.ndarray, arguments: argparse.Namespace
) -> dict[int, dict[str, Any]]:
    """The records of training runs on these numbers of rows."""
    params = {
        "C": arguments.C,
        "gammas": arguments.gammas or "auto",
        "tol": arguments.tol,
        "scaling": "minmax",
        "anchors": arguments.anchors,
        "memory_budget": arguments.memory,
        "time_limit": arguments.time_limit,
    }
    records = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_hdf5(folder / "test.h5", X[test], y[test])
        for size, rows in sizes.items():
            write_hdf5(folder / "train.h5", X[rows], y[rows])
            records[size] = train_in_child(folder / "train.h5", folder / "test.h5", folder / f"run-{size}", params)
            print(f"{size:7d} rows: {line(records[size])}", flush=True)
    return records


def anchors(text: str) -> str | int:
    return int(text) if text.isdigit() else text


def line(record: dict[str, Any]) -> str:
    accuracy, gap = 100.0 - record["test_error_percent"], 100.0 * record["gap"]
    return (
        f"accuracy {accuracy:.2f} %, {record['train_s']:.1f} s, peak {record['peak']}, gap {gap:.2f} %"
        f" ({record['status']}), {record['size']}"
    )


def peer_record(name: str, X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> dict[str, Any]:
    if name == "lightgbm" and find_spec(name) is None:
        return {"missing": "not installed: pip install --group bench"}
    return peer(peer_named(name), X, y, X_test, y_test)


def peer_named(name: str) -> Any:
    from sklearn.kernel_approximation import Nystroem
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler
    from sklearn.svm import LinearSVC

    if name == "lightgbm":
        from lightgbm import LGBMClassifier

        return LGBMClassifier(n_estimators=500, num_leaves=127, random_state=0, verbose=-1)
    if name == "linear":
        return make_pipeline(MinMaxScaler(), LinearSVC(C=1.0))
    landmarks = Nystroem(gamma=1.0, n_components=1000, random_state=0)
    return make_pipeline(MinMaxScaler(), landmarks, LinearSVC(C=1.0))


if __name__ == "__main__":
    main()
