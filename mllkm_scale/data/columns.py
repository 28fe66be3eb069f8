"""Some columns of a data set as a data set of their own, in any order: what a model takes of a wider table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.grid import default_chunk_rows
from mllkm_scale.data.sources import Source
from mllkm_scale.data.tables.columns import Columns

__all__ = ["picked_columns"]


class ColumnSource:
    """Columns of another source by number; windows of its whole rows are read, one at a time."""

    def __init__(self, source: Source, columns: Sequence[int]) -> None:
        self.name = source.name
        self._source, self._columns = source, np.asarray(columns, dtype=np.int64)
        self.shape: tuple[int, ...] = (source.shape[0], len(self._columns))
        self.dtype: np.dtype[Any] = source.dtype
        self._window = default_chunk_rows(source.shape[1])
        self.buffer_bytes = source.buffer_bytes + self._window * source.shape[1] * source.dtype.itemsize

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows `start` to `stop`, of the columns alone."""
        values = np.empty((stop - start, len(self._columns)), dtype=self.dtype)
        for first in range(start, stop, self._window):
            last = min(first + self._window, stop)
            values[first - start : last - start] = self._source.read(first, last)[:, self._columns]
        return values

    def close(self) -> None:
        """Close the other source."""
        self._source.close()


def picked_columns(dataset: Dataset, columns: Sequence[int]) -> Dataset:
    """The columns of these numbers in this order, with the labels; nothing is read or copied now.

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
        picked.named([names[column] for column in columns])
    if held is not None:
        picked.with_columns(Columns(tuple(held[column] for column in columns)))
    return picked
