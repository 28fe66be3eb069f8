"""Rows of Parquet files, or of a folder of them, by path or URL: whole row groups are read, and the last ones are
kept."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.location import Location
from mllkm_scale.data.readers.limits import MOST_COLUMNS, require_width
from mllkm_scale.data.readers.options import ReadOptions
from mllkm_scale.data.readers.parquet import ParquetTable, open_parquet, opened, parquet_labels, plain_dtype
from mllkm_scale.data.tables.coding import Recode, TableCoder, code_rows
from mllkm_scale.data.tables.columns import Columns
from mllkm_scale.errors import DataError

__all__ = ["ParquetLabels", "ParquetRows", "parquet_sources"]

_KEPT = 2  # row groups: the current one, and the one before it, which other threads may still read


def parquet_sources(source: Location, label: str | int | None) -> tuple[ParquetRows, ParquetLabels | None]:
    """All columns except the label column, and the labels. Columns are read once to detect their kinds."""
    table = open_parquet(source, ReadOptions(label_column=label))
    require_width(len(table.names), str(source), MOST_COLUMNS)
    coder = TableCoder(table.names, str(source), positions=table.positions, typed=True)
    while True:
        try:
            for block in table.blocks():
                coder.code(block.features, block.place)
            break
        except Recode:
            coder.restart()
    dtype = plain_dtype(table) if coder.is_plain else np.dtype(np.float64)
    rows = ParquetRows(table, dtype, None if coder.is_plain else coder.columns())
    return rows, None if table.label is None else ParquetLabels(table, table.label)


class _RowGroups:
    """Some columns of a table, by rows."""

    def __init__(self, table: ParquetTable, names: list[str]) -> None:
        self._table, self._names = table, names
        self._starts = np.cumsum([0, *(group.n_rows for group in table.groups)])
        self._lock, self._kept = threading.Lock(), dict[int, list[Any]]()
        share = len(names) / (len(table.names) + 1)
        largest = max(
            (max(group.size_bytes * share, 8 * group.n_rows * len(names)) for group in table.groups), default=0
        )
        self.buffer_bytes = int((_KEPT + 1) * largest)

    def read_columns(self, start: int, stop: int) -> list[Any]:
        """Arrow arrays of rows `start` to `stop`."""
        import pyarrow as pa

        first = max(0, int(np.searchsorted(self._starts, start, side="right")) - 1)
        last = max(first + 1, int(np.searchsorted(self._starts, stop, side="left")))
        parts = []
        for number in range(first, min(last, len(self._table.groups))):
            begin, end = int(self._starts[number]), int(self._starts[number + 1])
            low, high = max(start, begin), min(stop, end)
            columns = [column.slice(low - begin, high - low) for column in self._group(number)]
            parts += list(self._table.written_out(self._names, columns))
        return parts[0] if len(parts) == 1 else [pa.concat_arrays(column) for column in zip(*parts, strict=True)]

    def close(self) -> None:
        """Discard kept row groups; no file is open between reads."""
        with self._lock:
            self._kept = {}

    def _group(self, number: int) -> list[Any]:
        with self._lock:
            if number not in self._kept:
                while len(self._kept) >= _KEPT:
                    del self._kept[next(iter(self._kept))]
                group = self._table.groups[number]
                with opened(self._table.source, group.path) as file:
                    table = file.read_row_group(group.number, columns=self._names, use_threads=False)
                if table.num_rows != group.n_rows:
                    raise DataError(f"{self._table.source} has changed since it was opened: open it again")
                self._kept[number] = [table.column(name).combine_chunks() for name in self._names]
            return self._kept[number]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"} | {"_kept": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())


class ParquetRows(_RowGroups):
    """The features, as numbers and codes of `columns`, which are None if all values are numbers and none is missing."""

    def __init__(self, table: ParquetTable, dtype: np.dtype[Any], columns: Columns | None) -> None:
        super().__init__(table, table.names)
        self.name, self.dtype, self.columns = table.source.name, dtype, columns
        self.feature_names = tuple(table.names)
        self.shape: tuple[int, ...] = (table.n_rows, len(table.names))

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows `start` to `stop`."""
        arrays = self.read_columns(start, stop)
        if self.columns is not None:
            return code_rows(arrays, self.columns, partial(self._table.place, start))
        return np.stack([array.to_numpy(zero_copy_only=False) for array in arrays], axis=1, dtype=self.dtype)


class ParquetLabels(_RowGroups):
    """The column of the labels."""

    def __init__(self, table: ParquetTable, label: str) -> None:
        super().__init__(table, [label])
        self.name, self._label = f"{table.source.name}:{label}", label
        self.shape: tuple[int, ...] = (table.n_rows,)
        self.dtype = self.read(0, min(1, table.n_rows)).dtype if table.n_rows else np.dtype(np.int64)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Labels of rows `start` to `stop`."""
        return parquet_labels(self.read_columns(start, stop)[0], self._label, start, self._table.source)
