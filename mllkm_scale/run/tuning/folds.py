"""Folds: rows to train on, and rows that are held out to measure errors on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.weighted import weighted_mean
from mllkm_scale.data import Dataset
from mllkm_scale.data.subset import subset
from mllkm_scale.run.problem import Problem

__all__ = [
    "FOLDS",
    "Fold",
    "Trial",
    "error_of",
    "folds_of",
    "log_losses",
    "make_trial",
    "predicted",
    "share_of",
    "squared_losses",
]


FOLDS = 3
_FACTORS = np.geomspace(1 / 64, 256, 43)  # of scores, from nearly uninformative ones to nearly certain ones


@dataclass(frozen=True)
class Fold:
    """Row numbers in ascending order: training rows and held-out rows."""

    rest: Array
    held: Array


@dataclass(frozen=True)
class Trial:
    """A problem to train on, and prepared held-out rows with their classes and weights."""

    problem: Problem
    rows: Array
    codes: Array
    weights: Array

    def close(self) -> None:
        self.problem.close()


def folds_of(
    codes: Array, seed: int, few_rows: int, most_rows: int | None = None, most_held: int | None = None
) -> Iterator[Fold]:
    """Folds in which each third is held out in turn, or only one of them with more than `few_rows`; all classes are in
    each fold.

    The row of a class with a single row is always a training row. With `most_rows`, there are at most about this number
    of training rows, and as many held-out rows, or `most_held`. Each class has its share of them, and at least one row.
    """
    fold = np.full(len(codes), -1)
    rng = np.random.default_rng([seed, 16])
    place = 0
    for code in range(int(codes.max()) + 1):
        rows = rng.permutation(np.flatnonzero(codes == code))
        if len(rows) > 1:
            fold[rows] = (place + np.arange(len(rows))) % FOLDS
            place += len(rows)
    for number in range(FOLDS if len(codes) <= few_rows else 1):
        held, rest = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
        if not len(held) or len(np.unique(codes[rest])) != len(np.unique(codes)):
            continue
        if most_rows is not None:
            rest, held = share_of(rest, codes, most_rows, rng), share_of(held, codes, most_held or most_rows, rng)
        yield Fold(rest, held)


def share_of(rows: Array, codes: Array, most: int, rng: np.random.Generator) -> Array:
    """At most about `most` of the rows, in ascending order: a share of each class, and at least one row of it."""
    if len(rows) <= most:
        return rows
    kept = []
    for code in np.unique(codes[rows]):
        own = rng.permutation(rows[codes[rows] == code])
        kept.append(own[: max(1, round(len(own) * most / len(rows)))])
    return np.sort(np.concatenate(kept))


def make_trial(dataset: Dataset, codes: Array, fold: Fold, build: Callable[[Dataset], Problem]) -> Trial:
    """The problem that `build` makes of the rows to train on, and the rows that are held out."""
    problem = build(subset(dataset, fold.rest, "rows"))
    rows = problem.preprocessor.transform(dataset.rows(fold.held), np.float64)
    weights = dataset.weights()
    return Trial(problem, rows, codes[fold.held], np.ones(len(rows)) if weights is None else weights[fold.held])


def predicted(F: Array) -> Array:
    """The numbers of the classes that the scores F (rows, K) predict."""
    return (F[:, 0] > 0).astype(np.int64) if F.shape[1] == 1 else F.argmax(axis=1)


def error_of(F: Array, codes: Array, weights: Array) -> float:
    """Weighted share of the rows that the scores F (rows, K) misclassify."""
    return weighted_mean(predicted(F) != codes, weights)


def log_losses(F: Array, codes: Array, weights: Array) -> Array:
    """Log loss of every row; the probabilities are the softmax of s F, with the best of some factors s.

    If some scores are right by as much as others are wrong, each has a loss of log 2:

    >>> log_losses(np.array([[1.0], [1.0]]), np.array([0, 1]), np.ones(2)).round(1)
    array([0.7, 0.7])
    """
    F = np.column_stack([-0.5 * F[:, 0], 0.5 * F[:, 0]]) if F.shape[1] == 1 else F
    behind = F - F[np.arange(len(codes)), codes][:, None]
    each = (np.logaddexp.reduce(factor * behind, axis=1) for factor in _FACTORS)
    return min(each, key=lambda losses: weighted_mean(losses, weights))


def squared_losses(F: Array, codes: Array, weights: Array) -> Array:
    """Squared distance of the probability of the true class from one, for every row; probabilities as in `log_losses`.

    >>> squared_losses(np.array([[1.0], [1.0]]), np.array([0, 1]), np.ones(2)).round(2)
    array([0.25, 0.25])
    """
    return np.square(np.expm1(-log_losses(F, codes, weights)))
