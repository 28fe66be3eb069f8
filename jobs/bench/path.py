"""USPS along two paths: error and cost by the number of kernels and by C, with warm and cold starts.

    python jobs/bench/path.py [--memory 1GB] [--components 40] [--picture FILE.png]

A fifth of the training rows validates. Writes results/path.json: the points, the knees, the test errors of the chosen
models, and the rounds and seconds of independent training runs at the same values of C. --picture draws the path of the
number of kernels for docs/path.md.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from common import load, write

from mllkm_scale import Dataset, PathResult, train, train_path
from mllkm_scale.base.events import Event, Round
from mllkm_scale.data.subset import split
from mllkm_scale.model import evaluate
from mllkm_scale.path.report import HEADINGS, path_picture, table_rows

COUNTS = (200, 140, 100, 70, 50, 30, 20, 10, 5, 3)
CS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--memory", default="1GB")
    parser.add_argument("--components", type=int, default=40)
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    data = load("usps")
    kept, validation = split(Dataset.from_arrays(data["X"], data["y"]), 0.2)
    test = Dataset.from_arrays(data["X_test"], data["y_test"])
    settings = {"memory_budget": arguments.memory, "n_components": arguments.components}
    settings |= {"anchors": "all", "scaling": "none"}
    record: dict[str, Any] = {"setting": {**vars(arguments), "picture": None}}

    by_count, record["kernel_counts"] = follow(kept, validation, test, kernel_counts=COUNTS, **settings)
    _, record["Cs"] = follow(kept, validation, test, Cs=CS, **settings)
    started, rounds = time.perf_counter(), Rounds()
    for C in CS:
        train(kept, C=C, listener=rounds, **settings)
    record["cold"] = {"seconds": time.perf_counter() - started, "rounds": rounds.count}
    print(f"cold: {record['cold']}")
    if arguments.picture is not None:
        path_picture(by_count.points).savefig(arguments.picture, dpi=150)
    print(f"written: {write('path', record)}")


class Rounds:
    """Counts the rounds from their events."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, event: Event) -> None:
        self.count += isinstance(event, Round)


def follow(kept: Dataset, validation: Dataset, test: Dataset, **settings: Any) -> tuple[PathResult, dict[str, Any]]:
    started, rounds = time.perf_counter(), Rounds()
    path = train_path(kept, validation, listener=rounds, **settings)
    seconds = time.perf_counter() - started
    print("\n".join("  ".join(cell.rjust(14) for cell in row) for row in [HEADINGS, *table_rows(path.points)]))
    errors = [evaluate(model, test).error for model in path.models]
    print(f"{seconds:.1f} s, {rounds.count} rounds; test errors: {', '.join(f'{100 * e:.2f} %' for e in errors)}")
    points = [asdict(p) | {"test_error": error} for p, error in zip(path.points, errors, strict=True)]
    return path, {"points": points, "knee": path.knee.name, "seconds": seconds, "rounds": rounds.count}


if __name__ == "__main__":
    main()
