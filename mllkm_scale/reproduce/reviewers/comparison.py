"""A comparison that the reviewers asked for: an experiment with tables and a picture.

Some are run on many splits of the small data sets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mllkm_scale.reproduce.parts import Parts, Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.errors import FetchError
from mllkm_scale.reproduce.measure import samples
from mllkm_scale.reproduce.methods import C

__all__ = ["Comparison", "Tell", "over_small_sets"]

DATA = ("ionosphere", "sonar", "heart", "diabetes", "banana")
QUICK = ("heart",)
SPLITS, QUICK_SPLITS = 10, 2
ROWS = 1_000  # of a data set at most
Tell = Callable[[str], None]


def over_small_sets(
    question: str, answer: Callable[[Array, Array, int], Record], parts: Parts, tell: Tell, quick: bool
) -> Record:
    """`answer(X, y, splits)` for every available data set, or its stored record."""
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


@dataclass(frozen=True)
class Comparison:
    """A question of the reviewers, and the experiment that answers it.

    `run(parts, tell, quick)` returns a record; parts that are already in `parts` are not computed again. With `quick`,
    the experiment is a small test, and its figures are meaningless.
    """

    name: str
    question: str
    run: Callable[[Parts, Tell, bool], Record]
    markdown: Callable[[Record], list[str]]
    draw: Callable[[Record], Figure]
