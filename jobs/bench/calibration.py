"""Calibration of probabilities on tables: splits of the training rows, default parameters.

    python jobs/bench/calibration.py [--tables heart,diabetes,...] [--splits 4] [--most 2000]

Each table is split by seed into training rows, of a limited number, and test rows; official test rows are not used. For
all splits of a table together, it prints the calibration error (as in `Evaluation`), log loss and Brier score, and the
values for a slope of 1. The calibration error of few rows is never 0: "chance" is its mean, and "95 %" its quantile,
for classes drawn with exactly the predicted probabilities.

Writes results/calibration.json.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

import numpy as np
from common import load, write
from sklearn.model_selection import StratifiedShuffleSplit

from mllkm_scale import Dataset, Model, train
from mllkm_scale.base.arrays import Array
from mllkm_scale.model import evaluate
from mllkm_scale.model.calibration import Calibration

TABLES = "heart,diabetes,australian,ionosphere,mammographic,contraceptive,vehicle,banana,twonorm,adult,ijcnn1"
BINS, DRAWS = 10, 2000
PLAIN = Calibration("temperature", 1.0)


def measured(models: list[Model], parts: list[Dataset]) -> dict[str, float]:
    """Means over the rows of all parts."""
    found = [evaluate(model, part) for model, part in zip(models, parts, strict=True)]
    n = sum(each.n for each in found)
    return {name: sum(getattr(each, name) * each.n for each in found) / n for name in ("error", "log_loss", "brier")}


def pooled_error(models: list[Model], parts: list[Dataset], draws: int = 0) -> tuple[float, Array]:
    """The mean difference between the largest probability and the frequency of its class, over the rows of all parts.

    Also the same in `draws` simulations, whose classes are drawn with the predicted probabilities. A row that is
    measured in several splits has the same class in all of them, as in the data.
    """
    largest, right, bins, rows = [], [], [], []
    for model, part in zip(models, parts, strict=True):
        p = model.predict_proba(part.chunk(0))
        largest.append(p.max(axis=1))
        right.append(model.classes[p.argmax(axis=1)] == part.labels())
        bins.append(np.minimum((largest[-1] * BINS).astype(int), BINS - 1))
        rows.append([chunk.tobytes() for chunk in part.chunk(0)])
    p, true, at = np.concatenate(largest), np.concatenate(right), np.concatenate(bins)
    _, same = np.unique(np.concatenate(rows), return_inverse=True)
    rng = np.random.default_rng(0)
    chance = [rng.random(same.max() + 1)[same] < p for _ in range(draws)]
    off = [np.abs(np.bincount(at, drawn - p, minlength=BINS)).sum() / len(p) for drawn in (true, *chance)]
    return float(off[0]), np.array(off[1:])


def of_table(name: str, splits: int, most: int) -> dict[str, Any]:
    """The measurements of one table."""
    data = load(name)
    X, y = data["X"], data["y"]
    sizes = {"train_size": min(most, int(0.6 * len(X))), "test_size": min(most, int(0.4 * len(X)))}
    models, parts, seconds = [], [], 0.0
    for rows, others in StratifiedShuffleSplit(splits, random_state=0, **sizes).split(X, y):
        started = time.perf_counter()
        models.append(train(Dataset.from_arrays(X[rows], y[rows])).model)
        seconds += time.perf_counter() - started
        parts.append(Dataset.from_arrays(X[others], y[others], chunk_rows=len(others)))
    error, chance = pooled_error(models, parts, DRAWS)
    plain = [replace(model, calibration=PLAIN) for model in models]
    return {
        "rows": sizes["train_size"],
        "methods": sorted({model.require_calibration().method for model in models}),
        **measured(models, parts),
        "calibration_error": error,
        "by_chance": float(chance.mean()),
        "by_chance_95": float(np.quantile(chance, 0.95)),
        "share_of_chance_above": float(np.mean(chance >= error)),
        "with_slope_1": pooled_error(plain, parts)[0],
        "log_loss_with_slope_1": measured(plain, parts)["log_loss"],
        "train_s": seconds / splits,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=TABLES)
    parser.add_argument("--splits", type=int, default=4)
    parser.add_argument("--most", type=int, default=2000)
    options = parser.parse_args()
    results = {}
    print(
        f"{'table':<16} {'rows':>5} {'ECE':>7} {'chance':>7} {'95 %':>7} {'slope 1':>8}"
        f" {'log loss':>9} {'slope 1':>8} {'Brier':>7} {'error':>7}"
    )
    for name in options.tables.split(","):
        results[name] = found = of_table(name, options.splits, options.most)
        print(
            f"{name:<16} {found['rows']:>5} {found['calibration_error']:>7.4f} {found['by_chance']:>7.4f}"
            f" {found['by_chance_95']:>7.4f} {found['with_slope_1']:>8.4f}"
            f" {found['log_loss']:>9.4f} {found['log_loss_with_slope_1']:>8.4f} {found['brier']:>7.4f}"
            f" {found['error']:>7.4f}  {', '.join(found['methods'])}",
            flush=True,
        )
    above = [name for name, found in results.items() if found["calibration_error"] > found["by_chance_95"]]
    print(f"above what chance explains (95 %): {', '.join(above) or 'none'}")
    mean = float(np.mean([found["calibration_error"] for found in results.values()]))
    print(f"{'mean':<16} {'':>5} {mean:>7.4f}")
    write("calibration.json", {"splits": options.splits, "tables": results, "mean_calibration_error": mean})


if __name__ == "__main__":
    main()
