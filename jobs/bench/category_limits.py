"""The number of levels up to which indicators are better for a category, and the number of rows below which a level is
rare.

    python jobs/bench/category_limits.py [--splits 3] [--tables crx german]

Tables with text are converted, and their training rows (70 %, those of jobs/bench/text_tables.py) are split again and
again. The settings are compared with two machines that train quickly: an RBF SVM with the best of four C for each table
and setting, and learned kernels without MKL.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from common import write
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from text_tables import TABLES, folder, outer_splits

from mllkm_scale import Dataset, train
from mllkm_scale.data import convert
from mllkm_scale.data.subset import subset
from mllkm_scale.data.tables.fitting import fit_encoding

LIMITS = (2, 4, 8, 16, 32)
LEAST_ROWS = (2, 5, 10)
CS = (0.3, 1.0, 10.0, 100.0)


def encoded(part: Dataset, held: Dataset, most: int, least: int) -> tuple[Dataset, Dataset]:
    encoding, folds = fit_encoding(part, most_indicators=most, least_rows=least)
    return encoding.dataset(part, folds), encoding.dataset(held)


def judged(part: Dataset, held: Dataset) -> dict[str, list[float]]:
    """Error of an SVM for each C, and of learned kernels."""
    X, y = part.part(0, part.n_rows), part.labels()
    Z, z = held.part(0, held.n_rows), held.labels()
    scaler = StandardScaler().fit(X)
    X, Z = scaler.transform(X), scaler.transform(Z)
    svm = [float(1 - SVC(C=C).fit(X, y).score(Z, z)) for C in CS]
    model = train(part, anchors="learned", ridge=8.0, finish="none", scaling="standard", n_jobs=1).model
    wrong = sum(int((labels != z[start : start + len(labels)]).sum()) for start, labels in model.predict_chunks(held))
    return {"svm": svm, "learned": [wrong / len(z)]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--tables", nargs="*", default=list(TABLES))
    args = parser.parse_args()
    settings = [(most, 2) for most in LIMITS] + [(32, least) for least in LEAST_ROWS[1:]]
    errors: dict[str, dict[str, dict[str, float]]] = {}
    for name in args.tables:
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch, f"{name}.h5")
            convert(folder() / f"{name}.csv", path)
            with Dataset.open(path) as data:
                train_rows = subset(data, outer_splits(data.labels())[0][0])
                y = train_rows.labels()
                inner = StratifiedShuffleSplit(args.splits, test_size=0.3, random_state=1).split(np.zeros(len(y)), y)
                found: dict[tuple[int, int], dict[str, list[list[float]]]] = {}
                for kept, held in inner:
                    for setting in settings:
                        parts = encoded(subset(train_rows, kept), subset(train_rows, held), *setting)
                        for machine, values in judged(*parts).items():
                            found.setdefault(setting, {}).setdefault(machine, []).append(values)
        errors[name] = {
            f"most {most}, least {least}": {
                machine: float(np.min(np.mean(values, axis=0))) for machine, values in machines.items()
            }
            for (most, least), machines in found.items()
        }
        for setting, machines in errors[name].items():
            print(name, setting, {machine: f"{100 * error:.2f} %" for machine, error in machines.items()}, flush=True)
    means = {
        f"most {most}, least {least}": {
            machine: float(np.mean([errors[name][f"most {most}, least {least}"][machine] for name in errors]))
            for machine in ("svm", "learned")
        }
        for most, least in settings
    }
    for setting, machines in means.items():
        print("mean", setting, {machine: f"{100 * error:.2f} %" for machine, error in machines.items()})
    print(write("category-limits", {"errors": errors, "means": means}))


if __name__ == "__main__":
    main()
