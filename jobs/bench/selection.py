"""Which settings to compare by default: the error of the best setting, for several sets of settings.

    python jobs/bench/selection.py [--tables a,b] [--splits 4]

For each table whose first part has at most 1,000 rows, the training rows of a random split of 70/30 (as in tables.py)
are split 70/30 again. Settings are compared on the first part, and the best one is tested on the second part, so that
no test row of tables.py is used. Every contender is trained on all rows of the first part. SVC has C and gamma by
3-fold cross-validation. Writes results/selection.json.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
from common import load, write
from machines import tuned_svc
from sklearn.model_selection import train_test_split
from tables import TABLES, TEST_SHARE

from mllkm_scale import Dataset, MLLKMClassifier
from mllkm_scale.base.threads import Threads, n_threads, one_blas_thread
from mllkm_scale.params import Params, resolve
from mllkm_scale.plan.contenders import FEW_ROWS, contenders
from mllkm_scale.plan.training import make_plan
from mllkm_scale.run.session import Resources
from mllkm_scale.run.tuning.selection import Selection, Tried, certified_if_as_good, select

Record = dict[str, Any]


def _earlier(one: Record) -> bool:
    """Three ridges in a metric, wide bumps, those weighed by MKL; and all samples with wide bumps."""
    return one["metric"] == "diagonal" or (one["anchors"] == "all" and one["gammas"] == "wide")


def _plain(one: Record) -> bool:
    """Learned kernels without a metric."""
    return one["anchors"] == "learned" and one["metric"] is None


def _all_widths(one: Record) -> bool:
    """All samples with bumps of all widths, and C as for narrow ones."""
    return one["anchors"] == "all" and one["gammas"] == "auto"


SETS: dict[str, Callable[[Record], bool]] = {
    "those that compete": lambda one: one["competes"],
    "those of an earlier version": _earlier,
    "with all of them": lambda one: True,
    "without all samples": lambda one: one["competes"] and one["anchors"] == "learned",
    "without learned kernels": lambda one: one["competes"] and one["anchors"] == "all",
    "without features as they are": lambda one: one["competes"] and not _plain(one),
    "without wide bumps": lambda one: one["competes"] and one["gammas"] != "wide",
    "without narrow bumps": lambda one: one["competes"] and one["gammas"] != "narrow",
    "with bumps of all widths instead of narrow ones": lambda one: (
        _all_widths(one) or (one["competes"] and one["gammas"] != "narrow")
    ),
    "without those weighed by MKL": lambda one: one["competes"] and one["finish"] != "mkl",
}


def with_others(rivals: list[Params]) -> list[Params]:
    """The contenders, and the settings that earlier versions used instead of some of them."""
    learned, samples = rivals[0], rivals[-1]
    others = [replace(learned, ridge=0.1), replace(learned, ridge=128.0), replace(learned, gammas="wide")]
    return [*rivals, *others, replace(samples, gammas="auto")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=lambda text: text.split(","), default=list(TABLES))
    parser.add_argument("--splits", type=int, default=4)
    arguments = parser.parse_args()
    found: dict[str, list[Record]] = {}
    for name in arguments.tables:
        data = load(name)
        if (1.0 - TEST_SHARE) ** 2 * len(data["y"]) <= FEW_ROWS:
            found[name] = [tried(data, seed) for seed in range(arguments.splits)]
            print(name, f"SVC {100 * np.mean([one['svc'] for one in found[name]]):.2f} %", flush=True)
    means = means_of(found)
    for title, value in means.items():
        print(f"{100 * value:6.2f} %  {title}")
    print(f"written: {write('selection', {'setting': vars(arguments), 'means': means, 'tables': found})}")


def means_of(found: dict[str, list[Record]]) -> dict[str, float]:
    """The mean test error of SVC, of the winners of every set, and of those with the lowest error alone."""
    means = {"SVC": mean(found, lambda one: one["svc"])}
    for title, competes in SETS.items():
        means[title] = mean(found, lambda one, c=competes: winner(one, c))
    competing = SETS["those that compete"]
    means["without preferring machines of MKL"] = mean(found, lambda one: winner(one, competing, mkl_first=False))
    return means


def tried(data: dict[str, np.ndarray], seed: int) -> Record:
    """The errors of the contenders on held-out rows and on the second part."""
    X, y = data["X"].astype(np.float64), data["y"]
    X, _, y, _ = train_test_split(X, y, test_size=TEST_SHARE, stratify=y, random_state=seed)
    X, X_test, y, y_test = train_test_split(X, y, test_size=TEST_SHARE, stratify=y, random_state=1000 + seed)
    svc = tuned_svc(X.shape[1]).fit(X, y)
    n_outputs = len(np.unique(y)) if len(np.unique(y)) > 2 else 1
    dataset, competing = Dataset.from_arrays(X, y), contenders(resolve(random_state=0), len(X), n_outputs)
    rivals = with_others(competing)
    with one_blas_thread(), Threads(n_threads(-1)) as threads:
        found = select(dataset, rivals, Resources.of(make_plan(dataset, rivals[0]), threads))
    if found is None:
        raise SystemExit("a class has a single row, so that none can be held out")
    settings = [
        one
        | {"competes": at < len(competing), "gammas": one["gammas"] or "auto"}
        | {"test": test_error(found_at(found, at), X, y, X_test, y_test)}
        for at, one in enumerate(found.as_dict()["tried"])
    ]
    return {"svc": float(np.mean(svc.predict(X_test) != y_test)), "settings": settings}


def found_at(found: Selection, at: int) -> Params:
    return replace(found, taken=at).settled(resolve(random_state=0))


def test_error(params: Params, X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> float:
    names = ("anchors", "gammas", "scaling", "metric", "ridge", "C", "finish")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        machine = MLLKMClassifier(**{name: getattr(params, name) for name in names}).fit(X, y)
    return float(np.mean(machine.predict(X_test) != y_test))


def winner(one: Record, competes: Callable[[Record], bool], mkl_first: bool = True) -> float:
    """The test error of the setting that wins among some of them; machines of MKL may be preferred."""
    settings = [setting for setting in one["settings"] if competes(setting)]
    rivals = [Tried(**{field.name: setting[field.name] for field in fields(Tried)}) for setting in settings]
    best = min(range(len(rivals)), key=lambda at: (-rivals[at].rows, rivals[at].judged))
    if mkl_first:
        best = min(certified_if_as_good(rivals, best, rivals[best].rows), key=lambda at: rivals[at].judged)
    return float(settings[best]["test"])


def mean(found: dict[str, list[Record]], error: Any) -> float:
    return float(np.mean([np.mean([error(one) for one in splits]) for splits in found.values()]))


if __name__ == "__main__":
    main()
