"""Processor time of a report and of a short training run, each in a separate process.

    python jobs/bench/report_cost.py [--repeats 3]

The training run has test rows and the defaults; a report should take at most a quarter of its time.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
from common import write
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

SETS = {"iris": load_iris, "wine": load_wine, "breast cancer": load_breast_cancer}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, load in SETS.items():
            data, run = Path(scratch, "data.h5"), Path(scratch, "run")
            X, y = load(return_X_y=True)
            with h5py.File(data, "w") as file:
                for key, values in {"X": X[::2], "y": y[::2], "X_test": X[1::2], "y_test": y[1::2]}.items():
                    file[key] = values
            train = ["train", str(data), "--out", str(run), "--jobs", "1", "--overwrite"]
            plain, whole = (
                statistics.median(cpu_s([*train, option]) for _ in range(repeats))
                for option in ("--no-report", "--report")
            )
            found[name] = {"train_s": plain, "with_report_s": whole, "share": (whole - plain) / plain}
            print(f"{name:<14} {plain:6.2f} s, with a report {whole:6.2f} s: {found[name]['share']:.0%} more")
    write("report_cost", found)


def cpu_s(words: list[str]) -> float:
    """Processor seconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "mllkm_scale.cli", *words], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
