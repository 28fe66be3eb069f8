"""Which settings should compete: the error of the winner, for several sets of contenders, and two ways to judge.

    python jobs/bench/selection.py [--tables a,b] [--splits 4]

Of each table with fewer than 2,000 rows, the training rows of a random split of 70/30 (those of tables.py) are split
70/30 once more: contenders compete on the first part, and the winner is tested on the second, so that no test row of
tables.py is looked at. Every strength of every contender is tried, in three folds, and trained on all rows of the
first part. SVC has C and gamma by 3-fold cross-validation. Writes results/selection.json.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
from common import load, write
from machines import tuned_svc
from sklearn.model_selection import train_test_split
from tables import TABLES, TEST_SHARE

from mllkm_scale import Dataset, MLLKMClassifier
from mllkm_scale.base.threads import Threads, n_threads, one_blas_thread
from mllkm_scale.params import Params
from mllkm_scale.plan.contenders import FEW_ROWS, Contender, contenders
from mllkm_scale.plan.training import make_plan
from mllkm_scale.run.selection import judged_by, select

SETS = {
    "learned": ("learned",),
    "all samples": ("auto",),
    "all samples, wide bumps": ("wide",),
    "all samples, wide bumps beside": ("wide", "auto"),
    "learned, and all samples": ("learned", "auto"),
    "learned, and all samples, wide bumps beside": ("learned", "wide", "auto"),
}
Record = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=lambda text: text.split(","), default=list(TABLES))
    parser.add_argument("--splits", type=int, default=4)
    arguments = parser.parse_args()
    found: dict[str, list[Record]] = {}
    for name in arguments.tables:
        data = load(name)
        if len(data["y"]) < FEW_ROWS:
            found[name] = [tried(data, seed) for seed in range(arguments.splits)]
            print(name, f"SVC {100 * np.mean([one['svc'] for one in found[name]]):.2f} %", flush=True)
    means = {"SVC": mean(found, lambda one: one["svc"])}
    for title, kinds in SETS.items():
        for way in ("error", "judged"):
            means[f"{title}, by {way}"] = mean(found, lambda one, k=kinds, w=way: winner(one, k, w))
    for title, value in means.items():
        print(f"{100 * value:6.2f} %  {title}")
    print(f"written: {write('selection', {'setting': vars(arguments), 'means': means, 'tables': found})}")


def tried(data: dict[str, np.ndarray], seed: int) -> Record:
    """What all strengths of all contenders err on held-out rows and on those of the second part."""
    X, y = data["X"].astype(np.float64), data["y"]
    X, _, y, _ = train_test_split(X, y, test_size=TEST_SHARE, stratify=y, random_state=seed)
    X, X_test, y, y_test = train_test_split(X, y, test_size=TEST_SHARE, stratify=y, random_state=1000 + seed)
    svc = tuned_svc(X.shape[1]).fit(X, y)
    record: Record = {"svc": float(np.mean(svc.predict(X_test) != y_test))}
    for rival in contenders(Params(), len(X)):
        kind = "learned" if rival.learned else rival.params.gammas
        held = [held_error(rival, strength, X, y) for strength in rival.strengths]
        tested = [test_error(rival, strength, X, y, X_test, y_test) for strength in rival.strengths]
        judged = [judged_by(error, len(y)) for error in held] if rival.doubted else held
        record[kind] = {"error": held, "judged": judged, "test": tested}
    return record


def held_error(rival: Contender, strength: float | str, X: np.ndarray, y: np.ndarray) -> float:
    """The error of one strength on the rows that are held out in turn."""
    dataset, alone = Dataset.from_arrays(X, y), Contender(rival.params, (strength,))
    with one_blas_thread(), Threads(n_threads(-1)) as threads:
        plan = make_plan(dataset, rival.at(strength))
        found = select(dataset, [alone], plan, threads, lambda event: None, lambda: None, lambda: False)
    if found is None:
        raise SystemExit("a class has a single row, so that none can be held out")
    return found.tried[0].error


def test_error(
    rival: Contender, strength: float | str, X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray
) -> float:
    params = rival.at(strength)
    names = ("anchors", "gammas", "scaling", "metric", "ridge", "C")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        machine = MLLKMClassifier(**{name: getattr(params, name) for name in names}).fit(X, y)
    return float(np.mean(machine.predict(X_test) != y_test))


def winner(one: Record, kinds: tuple[str, ...], way: str) -> float:
    """The test error of the setting with the least held-out error, or of the one that is judged best."""
    settings = [
        (value, error, test)
        for kind in kinds
        for value, error, test in zip(one[kind][way], one[kind]["error"], one[kind]["test"], strict=True)
    ]
    return min(settings, key=lambda setting: setting[:2])[2]


def mean(found: dict[str, list[Record]], error: Any) -> float:
    return float(np.mean([np.mean([error(one) for one in splits]) for splits in found.values()]))


if __name__ == "__main__":
    main()
