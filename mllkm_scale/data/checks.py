"""The pass over the data before training: invalid data are refused, with row and column."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.executor import Executor, ThreadExecutor
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.labels import require_classes
from mllkm_scale.errors import DataError

__all__ = ["DataSummary", "check", "require_finite"]


@dataclass(frozen=True)
class DataSummary:
    """The result of a pass over a data set.

    `classes` and `class_counts` are empty for data without labels; `constant_columns` counts the features
    that never change. Of the others, the range of the `widest` is `spread` times that of the `narrowest`.
    """

    n_rows: int
    n_features: int
    dtype: np.dtype[Any]
    classes: tuple[Any, ...]
    class_counts: tuple[int, ...]
    minimum: float
    maximum: float
    constant_columns: int
    widest: int
    narrowest: int
    spread: float


@dataclass(frozen=True)
class RangesWork:
    """Computes the smallest and largest value of every column of some chunks; refuses values that are not finite."""

    dataset: Dataset

    @property
    def unit_work(self) -> float:
        return 10.0 * self.dataset.chunk_rows * self.dataset.n_features

    @property
    def paths(self) -> tuple[Path, ...]:
        return self.dataset.paths

    def __call__(self, units: range) -> tuple[NDArray[Any], NDArray[Any]]:
        least, largest = self._ranges(*self.dataset.bounds(units[0]))
        for unit in units[1:]:
            lows, highs = self._ranges(*self.dataset.bounds(unit))
            np.minimum(least, lows, out=least)
            np.maximum(largest, highs, out=largest)
        return least, largest

    def describe(self, units: range) -> str:
        return f"chunks {units[0]} to {units[-1]} of {self.dataset.name}, to be checked"

    def _ranges(self, start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any]]:
        chunk = self.dataset.part(start, stop)
        missing = np.isnan(chunk) if self.dataset.columns is not None else None  # a table may have missing values
        if missing is None or not missing.any():
            require_finite(chunk, start, self.dataset.name, "train")
            return chunk.min(axis=0), chunk.max(axis=0)
        require_finite(np.where(missing, 0.0, chunk), start, self.dataset.name, "train")
        return np.where(missing, np.inf, chunk).min(axis=0), np.where(missing, -np.inf, chunk).max(axis=0)


def check(dataset: Dataset, executor: Executor | None = None) -> DataSummary:
    """Read a data set once, refuse data that cannot be used for training, and summarise the rest.

    The pass over the samples is done by the executor, if one is given.

    Raises
    ------
    DataError
        NaN or infinity among the samples; labels that are missing, continuous, of one class or of too many.

    Examples
    --------
    >>> summary = check(Dataset.from_arrays([[0.0, 1.0], [2.0, 1.0]], ["no", "yes"]))
    >>> summary.classes, summary.class_counts, summary.maximum, summary.constant_columns
    (('no', 'yes'), (1, 1), 2.0, 1)
    """
    classes: tuple[Any, ...] = ()
    counts: tuple[int, ...] = ()
    if dataset.has_labels:
        found, codes = dataset.label_codes()
        require_classes(found, dataset.label_name)
        classes, counts = tuple(found.tolist()), tuple(np.bincount(codes, minlength=len(found)).tolist())
        del codes

    low = np.full(dataset.n_features, np.inf)
    high = np.full(dataset.n_features, -np.inf)
    for least, largest in (executor or ThreadExecutor()).start(RangesWork(dataset.unlabelled()), dataset.n_chunks):
        np.minimum(low, least, out=low)
        np.maximum(high, largest, out=high)
    empty = low > high  # columns all of whose values are missing
    low[empty] = high[empty] = 0.0
    with np.errstate(over="ignore"):
        ranges = high - low
    widest, narrowest = int(np.argmax(ranges)), int(np.argmin(np.where(ranges > 0, ranges, np.inf)))
    return DataSummary(
        n_rows=dataset.n_rows,
        n_features=dataset.n_features,
        dtype=dataset.dtype,
        classes=classes,
        class_counts=counts,
        minimum=float(low.min()),
        maximum=float(high.max()),
        constant_columns=int(np.count_nonzero(low == high)),
        widest=widest,
        narrowest=narrowest,
        spread=float(ranges[widest] / ranges[narrowest]) if ranges[narrowest] > 0 else 1.0,
    )


def require_finite(rows: NDArray[Any], first_row: int, name: str, then: str) -> None:
    """Refuse rows with NaN or infinity; the message names the place of the first one.

    Parameters
    ----------
    rows : array (m, d)
    first_row : int
        Number of the first row in the data set.
    name : str
        Name of the data set for the message.
    then : str
        The next step in the remedy: "train" or "predict".

    Examples
    --------
    >>> require_finite(np.array([[0.0, np.inf]]), 20, "new.h5", "predict")
    Traceback (most recent call last):
    mllkm_scale.errors.DataError: new.h5 has infinity at row 20, column 1 (0-based): remove or replace it, then predict
    """
    finite = np.isfinite(rows)
    if finite.all():
        return
    row, column = np.argwhere(~finite)[0]
    what = "NaN" if np.isnan(rows[row, column]) else "infinity"
    raise DataError(
        f"{name} has {what} at row {first_row + row}, column {column} (0-based): remove or replace it, then {then}"
    )
