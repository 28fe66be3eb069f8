"""Tables with text, as they are: one conversion and one training each, against scikit-learn's gradient boosting.

    python jobs/bench/text_tables.py [--splits 3] [--tables crx german] [--time-limit 60]

Each table is split into training rows (70 %) and test rows, which are written as CSV files of their own: nothing else
is prepared by hand. `mllkm convert` and `mllkm train` get the training rows by their defaults, and the model predicts
the CSV file of the test rows. HistGradientBoostingClassifier gets pandas columns of the type category, with its
defaults.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from common import ROOT, write
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedShuffleSplit

TABLES = ("chess", "crx", "german", "mushroom", "splice")


def folder() -> Path:
    """Where the tables are: `tables` in MLLKM_DATA, or in shared/data beside this one."""
    place = Path(os.environ.get("MLLKM_DATA", ROOT.parent / "shared" / "data")) / "tables"
    if not place.is_dir():
        sys.exit(f"{place} is not there: set MLLKM_DATA to a folder that has tables/*.csv")
    return place


def outer_splits(y: np.ndarray, n_splits: int = 3) -> list[tuple[np.ndarray, np.ndarray]]:
    """Training and test rows of each split."""
    return list(StratifiedShuffleSplit(n_splits, test_size=0.3, random_state=0).split(np.zeros(len(y)), y))


def run(*words: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "mllkm_scale", *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def measured(train: pd.DataFrame, test: pd.DataFrame, options: list[str]) -> tuple[float, float]:
    """Error on the test rows, and seconds, of the commands."""
    with tempfile.TemporaryDirectory() as scratch:
        here = Path(scratch)
        train.to_csv(here / "train.csv", index=False)
        test.to_csv(here / "test.csv", index=False)
        started = time.perf_counter()
        run("convert", here / "train.csv", here / "train.h5")
        run("train", here / "train.h5", "--out", here / "run", *options)
        seconds = time.perf_counter() - started
        run("predict", here / "run", here / "test.csv", "--label-column", "class", "--out", here / "labels.csv")
        labels = pd.read_csv(here / "labels.csv", dtype=str)["prediction"].to_numpy()
    return float((labels != test["class"].to_numpy(dtype=str)).mean()), seconds


def boosted(train: pd.DataFrame, test: pd.DataFrame) -> tuple[float, float]:
    """The same of gradient boosting with native categories."""
    whole = pd.concat([train, test]).drop(columns="class")
    for name in whole.columns:
        if not pd.api.types.is_numeric_dtype(whole[name]):
            whole[name] = whole[name].astype("category")
    started = time.perf_counter()
    model = HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=0)
    model.fit(whole[: len(train)], train["class"])
    seconds = time.perf_counter() - started
    return float((model.predict(whole[len(train) :]) != test["class"]).mean()), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--tables", nargs="*", default=list(TABLES))
    parser.add_argument("--time-limit", type=float, help="seconds of a training; by default none")
    args = parser.parse_args()
    options = ["--no-report"] + ([] if args.time_limit is None else ["--time-limit", str(args.time_limit)])
    tables = {}
    for name in args.tables:
        table = pd.read_csv(folder() / f"{name}.csv", keep_default_na=False)
        found = []
        for kept, held in outer_splits(table["class"].to_numpy(), args.splits):
            train, test = table.iloc[kept], table.iloc[held]
            found.append([*measured(train, test, options), *boosted(train, test)])
        errors = np.array(found).mean(axis=0)
        tables[name] = dict(
            zip(("mllkm_error", "mllkm_s", "boosting_error", "boosting_s"), errors.tolist(), strict=True)
        ) | {"splits": found}
        print(
            f"{name:10} mllkm {100 * errors[0]:5.2f} % in {errors[1]:5.1f} s,"
            f" boosting {100 * errors[2]:5.2f} % in {errors[3]:4.1f} s",
            flush=True,
        )
    means = {
        key: float(np.mean([table[key] for table in tables.values()])) for key in ("mllkm_error", "boosting_error")
    }
    print(f"mean       mllkm {100 * means['mllkm_error']:.2f} %, boosting {100 * means['boosting_error']:.2f} %")
    print(write("text-tables", {"tables": tables, "means": means}))


if __name__ == "__main__":
    main()
