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

__all__ = ["FOLDS", "Fold", "Trial", "error_of", "folds_of", "log_losses", "make_trial", "predicted"]


FOLDS = 3
_FACTORS = np.geomspace(1 / 64, 256, 43)  # of scores, from those that say next to nothing to those that are sure


@dataclass(frozen=True)
class Fold:
    """Numbers of rows in ascending order: those to train on, and those that are held out."""

    rest: Array
    held: Array


@dataclass(frozen=True)
class Trial:
    """A problem to train on, and prepared rows that it does not have, with their weights and numbers of classes."""

    problem: Problem
    rows: Array
    codes: Array
    weights: Array

    def close(self) -> None:
        self.problem.close()


def folds_of(
    codes: Array, seed: int, few_rows: int, most_rows: int | None = None, most_held: int | None = None
) -> Iterator[Fold]:
    """Each of three folds is held out in turn, or with more than a few rows one of them; all classes are in each.

    A class with a single row is always trained on, and in no fold. With `most_rows`, about so many are trained on at
    most, and as many held out, or `most_held`: of each class its share, and one row at least.
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
            rest, held = _share(rest, codes, most_rows, rng), _share(held, codes, most_held or most_rows, rng)
        yield Fold(rest, held)


def _share(rows: Array, codes: Array, most: int, rng: np.random.Generator) -> Array:
    """At most about so many of the rows, of each class its share but one at least."""
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
    """Share of the weight of rows that are predicted wrongly by the scores F (rows, K)."""
    return weighted_mean(predicted(F) != codes, weights)


def log_losses(F: Array, codes: Array, weights: Array) -> Array:
    """Log loss of every row, the probabilities being the softmax of s F: s is the best of some factors for the weights.

    Scores that are right by as much as others are wrong lose log 2 each:

    >>> log_losses(np.array([[1.0], [1.0]]), np.array([0, 1]), np.ones(2)).round(1)
    array([0.7, 0.7])
    """
    F = np.column_stack([-0.5 * F[:, 0], 0.5 * F[:, 0]]) if F.shape[1] == 1 else F
    behind = F - F[np.arange(len(codes)), codes][:, None]
    each = (np.logaddexp.reduce(factor * behind, axis=1) for factor in _FACTORS)
    return min(each, key=lambda losses: weighted_mean(losses, weights))
