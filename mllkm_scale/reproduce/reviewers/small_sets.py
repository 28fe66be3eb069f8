"""The small data sets, on which a question can be asked on many splits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.errors import FetchError
from mllkm_scale.reproduce.methods import C
from mllkm_scale.reproduce.parts import Parts, Record
from mllkm_scale.reproduce.reviewers.comparison import Tell
from mllkm_scale.reproduce.samples import samples

__all__ = ["over_small_sets"]

DATA = ("ionosphere", "sonar", "heart", "diabetes", "banana")
QUICK = ("heart",)
SPLITS, QUICK_SPLITS = 10, 2
ROWS = 1_000  # of a data set at most


def over_small_sets(
    question: str, answer: Callable[[Array, Array, int], Record], parts: Parts, tell: Tell, quick: bool
) -> Record:
    """`answer(X, y, splits)` for every data set that can be had, or what was kept of it."""
    record: Record = {}
    splits = QUICK_SPLITS if quick else SPLITS
    for name in QUICK if quick else DATA:
        try:
            X, y = samples(name, tell)
        except FetchError as error:
            tell(f"{name} is left out: {error}")
            continue
        rows = np.sort(np.random.default_rng(0).permutation(len(y))[:ROWS])
        setting = {"rows": len(rows), "splits": splits, "C": C}
        found = parts.found(f"{question}-{name}", setting)
        if found is None:
            found = answer(X[rows], y[rows], splits)
            parts.keep(f"{question}-{name}", setting, found)
        record[name] = found
        tell(f"{name}: {splits} splits")
    return record
