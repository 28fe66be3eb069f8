"""Sixteen small and medium-sized tables: MLLKM with its defaults, a tuned SVC and LightGBM.

    python jobs/bench/tables.py [--tables a,b] [--splits N] [--first-seed 0] [--methods mllkm,svc,lightgbm]
                                [--param NAME=VALUE ...] [--name tables]

Stratified random splits of 70/30, the same for every method: ten for tables with fewer than 2,000 rows, three for
others. SVC (RBF) on standardised features searches a grid of 30 settings by 3-fold cross-validation, and its training
time is that of the whole search. LightGBM has 500 trees and its defaults. MLLKM has its defaults, except parameters
given by --param. A fit that fails is reported, and the others continue; tables with failures are left out of the
comparison over tables. Writes results/tables.json after each table, and prints its row.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from common import read, write
from machines import tuned_svc
from scipy.stats import rankdata
from sklearn.datasets import make_blobs
from sklearn.model_selection import train_test_split

from mllkm_scale import MLLKMClassifier
from mllkm_scale.errors import MLLKMError
from mllkm_scale.reproduce.significance import corrected_t_test, ranks

TABLES = (
    "ionosphere",
    "sonar",
    "heart",
    "diabetes",
    "australian",
    "mammographic",
    "wdbc",
    "vehicle",
    "vowel",
    "contraceptive",
    "movement_libras",
    "banana",
    "twonorm",
    "texture",
    "optdigits",
    "penbased",
)
METHODS = ("mllkm", "svc", "lightgbm")
TEST_SHARE = 0.3
MANY_ROWS = 2_000  # tables with as many have FEW_SPLITS
MANY_SPLITS, FEW_SPLITS = 10, 3
Record = dict[str, Any]
Maker = Callable[[int], Any]  # makes a classifier for a number of features


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=_names, default=list(TABLES), help="names, separated by commas")
    parser.add_argument("--splits", type=int, help="of every table; by default 10, or 3 from 2,000 rows on")
    parser.add_argument("--first-seed", type=int, default=0, help="seed of the first split")
    parser.add_argument("--methods", type=_names, default=list(METHODS), help="some of mllkm, svc and lightgbm")
    parser.add_argument("--param", action="append", default=[], metavar="NAME=VALUE", help="of MLLKM; may be repeated")
    parser.add_argument("--name", default="tables", help="results/NAME.json is written")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.methods if name not in METHODS]:
        parser.error(f"--methods: {', '.join(unknown)} is none of {', '.join(METHODS)}")
    if arguments.splits is not None and arguments.splits < 1:
        parser.error("--splits: at least 1 is needed")
    try:
        params = dict(parameter(text) for text in arguments.param)
        MLLKMClassifier(**params)
    except (ValueError, TypeError) as error:
        parser.error(f"--param: {error}")
    makers, missing = available(arguments.methods, params)
    for name, reason in missing.items():
        print(f"{name} is left out: {reason}")
    result: Record = {"setting": vars(arguments), "params": params, "missing": missing, "tables": {}}
    warm_up(makers)
    print(head(makers), flush=True)
    for name in arguments.tables:
        result["tables"][name] = row = evaluate(name, makers, arguments)
        print(line(name, row), flush=True)
        result["summary"] = summary(result["tables"], list(makers))
        path = write(arguments.name, result)
    print("\n".join(["", *summary_lines(result["summary"])]))
    print(f"written: {path}")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def parameter(text: str) -> tuple[str, Any]:
    """NAME=VALUE; the value is parsed as JSON, and is text if that fails.

    >>> parameter("gammas=[0.5, 1]"), parameter("C=auto")
    (('gammas', [0.5, 1]), ('C', 'auto'))
    """
    name, found, value = text.partition("=")
    if not found:
        raise ValueError(f"{text!r} is not of the form NAME=VALUE")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def available(methods: Sequence[str], params: Record) -> tuple[dict[str, Maker], dict[str, str]]:
    """Makers of the classifiers by method, and the reasons why methods are missing."""

    def lightgbm(_: int) -> Any:
        from lightgbm import LGBMClassifier

        return LGBMClassifier(n_estimators=500, n_jobs=os.cpu_count(), verbose=-1)

    makers: dict[str, Maker] = {"mllkm": lambda _: MLLKMClassifier(**params), "svc": tuned_svc, "lightgbm": lightgbm}
    missing = {}
    if "lightgbm" in methods and find_spec("lightgbm") is None:
        missing["lightgbm"] = "not installed: pip install --group bench"
    return {name: makers[name] for name in methods if name not in missing}, missing


def warm_up(makers: dict[str, Maker]) -> None:
    """Fit once for two classes and for three, so that compilation and the start of processes are not timed."""
    for n_classes in (2, 3):
        X, y = make_blobs(120, n_features=4, centers=n_classes, cluster_std=4.0, random_state=0)
        for make in makers.values():
            fit(make, X, y, X, y)


def evaluate(name: str, makers: dict[str, Maker], arguments: argparse.Namespace) -> Record:
    """The row of a table: its size, and errors and seconds of every method on the same splits."""
    try:
        data = read(name)
        X, y = data["X"].astype(np.float64), data["y"]
    except (MLLKMError, OSError, KeyError, ValueError) as error:
        return {"missing": f"cannot be read: {error}"}
    n_splits = arguments.splits or (MANY_SPLITS if len(X) < MANY_ROWS else FEW_SPLITS)
    fits: dict[str, list[Record]] = {method: [] for method in makers}
    for seed in range(arguments.first_seed, arguments.first_seed + n_splits):
        X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=TEST_SHARE, stratify=y, random_state=seed)
        for method, make in makers.items():
            fits[method].append(fit(make, X_train, y_train, X_test, y_test))
    size = {"rows": len(X), "features": X.shape[1], "classes": len(np.unique(y)), "splits": n_splits}
    return size | {"methods": {method: condensed(found) for method, found in fits.items()}}


def fit(make: Maker, X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> Record:
    """Error and seconds of one training run, for MLLKM also kernels, gap and status; or the reason of a failure."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            started = time.perf_counter()
            machine = make(X.shape[1]).fit(X, y)
            record: Record = {"train_s": time.perf_counter() - started}
            record["error"] = float(np.mean(machine.predict(X_test) != y_test))
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
    if isinstance(machine, MLLKMClassifier):
        record |= {"kernels": machine.weights_.shape[-1], "gap": machine.gap_, "status": machine.status_}
    elif hasattr(machine, "best_params_"):
        record["chosen"] = machine.best_params_
    return record


def condensed(fits: list[Record]) -> Record:
    """Means over the splits whose fit did not fail, and the results of every split."""
    worked = [record for record in fits if "failed" not in record]
    row: Record = {"splits": fits, "failed": len(fits) - len(worked)}
    if worked:
        errors = [record["error"] for record in worked]
        row |= {"error": float(np.mean(errors)), "std": float(np.std(errors))}
        row["train_s"] = float(np.mean([record["train_s"] for record in worked]))
        if "kernels" in worked[0]:
            row["kernels"] = float(np.mean([record["kernels"] for record in worked]))
    return row


def summary(tables: dict[str, Record], methods: list[str]) -> Record:
    """The methods over all tables on which no fit failed.

    `train_s` is the sum over the tables of the mean time of a training run: the time to train once on each of them.
    """
    whole = {name: row["methods"] for name, row in tables.items() if _is_whole(row)}
    found: Record = {"tables": len(whole), "left_out": [name for name in tables if name not in whole]}
    if not whole:
        return found
    errors = np.array([[row[method]["error"] for method in methods] for row in whole.values()])
    found["mean_error"] = dict(zip(methods, errors.mean(axis=0).tolist(), strict=True))
    found["train_s"] = {method: sum(row[method]["train_s"] for row in whole.values()) for method in methods}
    if "svc" in methods:
        found["times_svc"] = {method: found["train_s"][method] / found["train_s"]["svc"] for method in methods}
    if len(methods) > 1:
        found["mean_rank"] = dict(zip(methods, rankdata(errors, axis=1).mean(axis=0).tolist(), strict=True))
        if len(whole) > 1:
            over_tables = ranks(-errors)
            found["friedman_p"] = over_tables.friedman_p if np.isfinite(over_tables.friedman_p) else None
            found["critical_difference"] = over_tables.critical_difference
        found["against"] = {
            method: duel([(row["mllkm"], row[method]) for row in whole.values()])
            for method in methods
            if method != "mllkm" and "mllkm" in methods
        }
    return found


def _is_whole(row: Record) -> bool:
    return "missing" not in row and not any(method["failed"] for method in row["methods"].values())


def duel(pairs: list[tuple[Record, Record]]) -> dict[str, int]:
    """Tables on which the first method's mean error is lower, equal and higher; and by the corrected t-test at 5 %.

    Two splits are too few for the test: their differences may be equal by chance.
    """
    counts = dict.fromkeys(("wins", "ties", "losses", "clear_wins", "clear_losses"), 0)
    for ours, other in pairs:
        outcome = ("ties", "wins", "losses")[int(np.sign(other["error"] - ours["error"]))]
        counts[outcome] += 1
        differences = np.array(
            [b["error"] - a["error"] for a, b in zip(ours["splits"], other["splits"], strict=True)], dtype=np.float64
        )
        if outcome != "ties" and len(differences) >= FEW_SPLITS and corrected_t_test(differences, TEST_SHARE) < 0.05:
            counts[f"clear_{outcome}"] += 1
    return counts


def head(methods: Iterable[str]) -> str:
    return f"{'':16s} {'rows':>6s} {'d':>3s} {'c':>3s}" + "".join(f"  {name:>24s}" for name in methods)


def line(name: str, row: Record) -> str:
    """The size of a table, and for every method error, standard deviation and the seconds of a training run."""
    if "missing" in row:
        return f"{name:16s} {row['missing']}"
    text, reasons = f"{name:16s} {row['rows']:6d} {row['features']:3d} {row['classes']:3d}", []
    for method, found in row["methods"].items():
        cell = "failed"
        if "error" in found:
            cell = f"{100 * found['error']:.2f} +- {100 * found['std']:.2f} % {found['train_s']:7.2f} s"
        text += f"  {cell:>24s}"
        if found["failed"]:
            reason = next(record["failed"] for record in found["splits"] if "failed" in record)
            reasons.append(f"    {method} failed on {found['failed']} of {len(found['splits'])} splits: {reason}")
    return "\n".join([text, *reasons])


def summary_lines(found: Record) -> list[str]:
    lines = [f"{found['tables']} tables; left out: {', '.join(found['left_out']) or 'none'}"]
    for method, error in found.get("mean_error", {}).items():
        text = f"{method:10s} mean error {100 * error:.2f} %, {found['train_s'][method]:.1f} s"
        if "times_svc" in found:
            text += f" ({found['times_svc'][method]:.2f} times SVC)"
        lines.append(text + (f", mean rank {found['mean_rank'][method]:.2f}" if "mean_rank" in found else ""))
    if "critical_difference" in found:
        p = found["friedman_p"]
        friedman = "" if p is None else f"Friedman's p = {p:.2g}; "
        lines.append(
            f"{friedman}critical difference of two mean ranks {found['critical_difference']:.2f} (Nemenyi, 5 %)"
        )
    for method, counts in found.get("against", {}).items():
        lines.append(
            f"MLLKM against {method}: {counts['wins']} wins, {counts['ties']} ties, {counts['losses']} losses"
            f" ({counts['clear_wins']} and {counts['clear_losses']} significant)"
        )
    return lines


if __name__ == "__main__":
    main()
