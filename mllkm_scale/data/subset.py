"""A part of a data set as a data set: some rows, or some columns in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.grid import MAX_CHUNK_ROWS, default_chunk_rows
from mllkm_scale.data.sources import Source
from mllkm_scale.data.tables.columns import Columns
from mllkm_scale.errors import DataError, ParameterError

__all__ = ["picked_columns", "split", "subset"]


class SubsetSource:
    """Rows of another source by number, in ascending order.

    They are read in windows of the other source, one at a time: rows that are left out are read, but take no memory.
    """

    def __init__(self, source: Source, rows: NDArray[np.int64], name: str) -> None:
        self.name = name
        self._source, self._rows = source, rows
        self.shape: tuple[int, ...] = (len(rows), *source.shape[1:])
        self.dtype: np.dtype[Any] = source.dtype
        self.item_bytes = getattr(source, "item_bytes", 0)
        width = int(np.prod(source.shape[1:], dtype=np.int64))
        self._window = default_chunk_rows(max(1, width))
        self.buffer_bytes = source.buffer_bytes + self._window * width * source.dtype.itemsize

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows `start` to `stop` of the subset."""
        wanted = self._rows[start:stop]
        if not len(wanted):
            return self._source.read(0, 0)
        windows = np.split(wanted, np.flatnonzero(np.diff(wanted // self._window)) + 1)
        parts = [self._source.read(int(part[0]), int(part[-1]) + 1)[part - part[0]] for part in windows]
        return np.concatenate(parts)

    def close(self) -> None:
        """Close the other source."""
        self._source.close()


class SparseSubset(SubsetSource):
    """Rows of a sparse source by number."""

    def __init__(self, source: Any, rows: NDArray[np.int64], name: str) -> None:
        super().__init__(source, rows, name)
        self._window = MAX_CHUNK_ROWS
        self.n_entries = source.n_entries * len(rows) // max(1, source.shape[0])

    def read_sparse(self, start: int, stop: int) -> Any:
        """Rows `start` to `stop` of the subset."""
        from scipy import sparse

        wanted, source = self._rows[start:stop], cast(Any, self._source)
        windows = np.split(wanted, np.flatnonzero(np.diff(wanted // self._window)) + 1)
        parts = [source.read_sparse(int(part[0]), int(part[-1]) + 1)[part - part[0]] for part in windows]
        return sparse.vstack(parts, format="csr")

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows `start` to `stop` of the subset, dense."""
        dense: NDArray[Any] = self.read_sparse(start, stop).toarray()
        return dense


class ColumnSource:
    """Columns of another source by number; windows of whole rows are read, one at a time."""

    def __init__(self, source: Source, columns: Sequence[int]) -> None:
        self.name = source.name
        self._source, self._columns = source, np.asarray(columns, dtype=np.int64)
        self.shape: tuple[int, ...] = (source.shape[0], len(self._columns))
        self.dtype: np.dtype[Any] = source.dtype
        self._window = default_chunk_rows(source.shape[1])
        self.buffer_bytes = source.buffer_bytes + self._window * source.shape[1] * source.dtype.itemsize

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows `start` to `stop`, with only these columns."""
        values = np.empty((stop - start, len(self._columns)), dtype=self.dtype)
        for first in range(start, stop, self._window):
            last = min(first + self._window, stop)
            values[first - start : last - start] = self._source.read(first, last)[:, self._columns]
        return values

    def close(self) -> None:
        """Close the other source."""
        self._source.close()


def subset(dataset: Dataset, rows: NDArray[Any], what: str = "part") -> Dataset:
    """The rows with these numbers, in ascending order, with labels and weights; nothing is read or copied yet.

    Examples
    --------
    >>> data = Dataset.from_arrays([[0.0], [1.0], [2.0], [3.0]], ["a", "b", "a", "b"])
    >>> some = subset(data, np.array([3, 0]))
    >>> some.chunk(0).tolist(), some.labels().tolist()
    ([[0.0], [3.0]], ['a', 'b'])
    """
    numbers = np.unique(np.asarray(rows, dtype=np.int64))
    if len(numbers) and not 0 <= numbers[0] <= numbers[-1] < dataset.n_rows:
        raise ParameterError(
            f"{dataset.name} has rows 0 to {dataset.n_rows - 1}: {numbers[0]} to {numbers[-1]} were asked for"
        )
    labels, weights = dataset.label_source, dataset.weight_source
    part = Dataset(
        (SparseSubset if dataset.is_sparse else SubsetSource)(dataset.source, numbers, f"{what} of {dataset.name}"),
        None if labels is None else SubsetSource(labels, numbers, f"{what} of {labels.name}"),
        weights=None if weights is None else SubsetSource(weights, numbers, weights.name),
    )
    return part.named_as(dataset)


def split(dataset: Dataset, share: float, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Training rows, and a random share of each class that is held out for validation.

    Parameters
    ----------
    dataset : Dataset
        With labels.
    share : float
        Share of the rows of each class to hold out, between 0 and 1. A class has at least one row in both parts; the
        only row of a class is a training row.
    seed : int
        Seed of the choice.

    Examples
    --------
    >>> data = Dataset.from_arrays(np.arange(10.0)[:, None], [0, 1] * 5)
    >>> kept, held_out = split(data, 0.2)
    >>> kept.n_rows, held_out.n_rows, sorted(held_out.labels().tolist())
    (8, 2, [0, 1])
    """
    if not 0 < share < 1:
        raise ParameterError(f"a share of {share!r} cannot be held out: give a number between 0 and 1, such as 0.2")
    classes, codes = dataset.label_codes()
    rng = np.random.default_rng([seed, 5])
    held_out = np.zeros(dataset.n_rows, dtype=bool)
    for code in range(len(classes)):
        rows = rng.permutation(np.flatnonzero(codes == code))
        held_out[rows[: min(len(rows) - 1, max(1, round(share * len(rows))))]] = True
    if not held_out.any():
        raise DataError(f"{dataset.name} has one row per class, and none to hold out: give separate validation data")
    return subset(dataset, np.flatnonzero(~held_out), "rows"), subset(dataset, np.flatnonzero(held_out), "other rows")


def picked_columns(dataset: Dataset, columns: Sequence[int]) -> Dataset:
    """The columns with these numbers in this order, with the labels; nothing is read or copied yet.

    Examples
    --------
    >>> data = Dataset.from_arrays([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], ["a", "b"], feature_names=["x", "y", "z"])
    >>> some = picked_columns(data, [2, 0])
    >>> some.chunk(0).tolist(), some.labels().tolist(), some.feature_names
    ([[2.0, 0.0], [5.0, 3.0]], ['a', 'b'], ('z', 'x'))
    """
    picked = Dataset(
        ColumnSource(dataset.source, columns), dataset.label_source, weights=dataset.weight_source, path=dataset.path
    )
    names, held = dataset.feature_names, dataset.columns
    if names is not None:
        picked.with_names([names[column] for column in columns])
    if held is not None:
        picked.with_columns(Columns(tuple(held[column] for column in columns)))
    return picked
