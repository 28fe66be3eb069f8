"""The paper's four UCI data sets: mean accuracy over 10 random splits of 70/30, with one setting for all four.

    python jobs/bench/uci.py [--splits 10] [--first-seed 0] [--family gaussian] [--componentwise]

Prints a table beside the paper's best MLLKM row, and writes results/uci.json.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from common import load, write

from mllkm_scale import MLLKMClassifier

PAPER = {"ionosphere": 94.0, "sonar": 81.0, "heart": 82.2, "diabetes": 76.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--map", default="gaussian")
    parser.add_argument("--componentwise", action="store_true")
    arguments = parser.parse_args()
    rows = {}
    for name, paper in PAPER.items():
        rows[name] = evaluate(name, arguments) | {"paper": paper}
        row = rows[name]
        print(
            f"{name:12s} {row['mean']:5.1f} +- {row['std']:.1f} %   paper {paper:.1f} %   kernels {row['kernels']:.0f}"
            f"   {row['seconds']:.1f} s",
            flush=True,
        )
    print(f"written: {write('uci', {'setting': vars(arguments), 'rows': rows})}")


def evaluate(name: str, arguments: argparse.Namespace) -> dict[str, object]:
    data = load(name)
    X, y = data["X"].astype(np.float64), data["y"]
    accuracies, kernels, started = [], [], time.perf_counter()
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.splits):
        order = np.random.default_rng(seed).permutation(len(X))
        train, test = np.split(order, [round(0.7 * len(X))])
        machine = MLLKMClassifier(map=arguments.map, componentwise=arguments.componentwise).fit(X[train], y[train])
        accuracies.append(100.0 * machine.score(X[test], y[test]))
        kernels.append(len(machine.weights_))
    return {
        "mean": float(np.mean(accuracies)),
        "std": float(np.std(accuracies)),
        "kernels": float(np.mean(kernels)),
        "seconds": time.perf_counter() - started,
        "accuracies": accuracies,
    }


if __name__ == "__main__":
    main()
