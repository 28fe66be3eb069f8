"""Parts: blocks of rows in separate files, which are read as one matrix.

Blocks of a dask collection are computed once, by the process that has them, and written here. Then the number of rows
of a block is known, and the levels of its categories: `joined` numbers the levels of all parts in the order of their
first rows, as a pass over the whole table would.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.files.folders import writing_scratch
from mllkm_scale.base.files.npy import map_npy
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.grid import default_chunk_rows
from mllkm_scale.data.labels import as_label_vector
from mllkm_scale.data.sources import ArraySource, Source, require_plain_dtype
from mllkm_scale.data.tables.coding import TableCoder
from mllkm_scale.data.tables.columns import CATEGORY, NUMBER, Column, Columns, LevelCount
from mllkm_scale.data.tables.frames import as_arrow, has_plain_numbers, is_frame
from mllkm_scale.errors import DataError

__all__ = ["Part", "TableOptions", "joined", "write_block"]


@dataclass(frozen=True)
class TableOptions:
    """Columns of a table that are categories or numbers, independent of their type, by name or position."""

    categories: tuple[str | int, ...] = ()
    as_number: tuple[str | int, ...] = ()


@dataclass(frozen=True)
class Part:
    """A file of rows, or of labels.

    For a block with named columns, `missing` says whether values are missing, and `empty` which columns have no values.
    `columns` are their kinds and levels, None if all of them are numbers.
    """

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    columns: Columns | None = None
    missing: bool = False
    empty: NDArray[np.bool_] | None = None


def write_block(
    rows: Any, labels: Any, folder: Path, number: int, width: int, options: TableOptions
) -> tuple[Part, Part | None]:
    """Write a block of rows, an array or a data frame, and their labels, if there are any."""
    part = _write_rows(rows, folder, number, width, options)
    return part, None if labels is None else _write_labels(labels, folder, number, part.shape[0])


def _write_rows(block: Any, folder: Path, number: int, width: int, options: TableOptions) -> Part:
    name = f"X, block {number} (0-based)"
    if is_frame(block):
        values, columns = _frame_rows(block, name, options)
        absent = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, dtype=bool)
        told: dict[str, Any] = {"missing": bool(absent.any()), "empty": absent.all(axis=0)}
    else:
        values, columns, told = np.asarray(block), None, {}
    if values.ndim != 2 or values.shape[1] != width:
        raise DataError(f"{name} has shape {values.shape}: it must have a row per sample, of {width} features")
    if values.dtype.kind not in "fiub":
        raise DataError(f"{name} has type {values.dtype}: features must be real numbers; X.astype(float) makes them so")
    path = _written(values, folder, f"X-{number:06d}")
    return Part(path, values.shape, values.dtype, columns, **told)


def _write_labels(block: Any, folder: Path, number: int, n_rows: int) -> Part:
    name = f"y, block {number} (0-based)"
    values = block.to_numpy() if hasattr(block, "to_numpy") else np.asarray(block)
    if values.dtype == object and len(values) and not any(isinstance(value, str) for value in values.flat):
        try:
            values = values.astype(np.int64 if all(float(value).is_integer() for value in values.flat) else np.float64)
        except (TypeError, ValueError):
            raise DataError(f"{name} holds values that are no labels, or missing ones: give integers or text") from None
    labels = as_label_vector(values, name)
    if len(labels) != n_rows:
        raise DataError(
            f"{name} has {len(labels)} labels, but block {number} of X has {n_rows} rows: give X and y the same chunks"
            " (rechunk) or partitions (repartition)"
        )
    return Part(_written(labels, folder, f"y-{number:06d}"), labels.shape, labels.dtype)


def joined(parts: Sequence[Part], labels: Sequence[Part] | NDArray[Any] | None, names: Sequence[str] | None) -> Dataset:
    """All parts in order as a data set, which can be read as long as the folder of the files exists."""
    parts = [part for part in parts if part.shape[0]]
    if not parts:
        raise DataError("X has no rows (0 sample(s)) while a minimum of 1 is required: give at least one")
    source, columns = PartsSource(parts, "X"), _columns_of(parts, names)
    if columns is not None:
        source.encode(columns)
    y: Source | None
    if labels is None or isinstance(labels, np.ndarray):
        y = None if labels is None else ArraySource(labels, "y")
    else:
        y = PartsSource([part for part in labels if part.shape[0]], "y")
    dataset = Dataset(source, y, path=parts[0].path.parent).with_columns(columns)
    return dataset if names is None else dataset.with_names(names)


class PartsSource:
    """Rows of parts in order; codes of levels of a part are mapped to those of the whole table."""

    def __init__(self, parts: Sequence[Part], name: str) -> None:
        self.name = name
        kinds = {part.dtype.kind == "U" for part in parts}
        if len(kinds) > 1:
            raise DataError(f"{name} has blocks of text and blocks of numbers: give one type, with {name}.astype(str)")
        self.dtype: np.dtype[Any] = np.dtype(np.str_) if kinds == {True} else np.result_type(*(p.dtype for p in parts))
        require_plain_dtype(self.dtype, name)
        self._paths = [str(part.path) for part in parts]
        self._starts = np.cumsum([0, *(part.shape[0] for part in parts)])
        self.shape: tuple[int, ...] = (int(self._starts[-1]), *parts[0].shape[1:])
        width = int(np.prod(self.shape[1:], dtype=np.int64))
        # Pages of mapped files, and a copy if a chunk spans two parts.
        self.buffer_bytes = 2 * default_chunk_rows(max(1, width)) * width * max(8, self.dtype.itemsize)
        self._levels = [part.columns for part in parts]
        self._codes: list[dict[int, NDArray[np.float64]]] = [{} for _ in parts]

    def encode(self, columns: Columns) -> None:
        """Return rows as numbers and codes of these columns from now on."""
        self.dtype = np.dtype(np.float64)
        known = {
            j: {level: code for code, level in enumerate(column.levels)}
            for j, column in enumerate(columns.columns)
            if column.kind == CATEGORY
        }
        for own, codes in zip(self._levels, self._codes, strict=True):
            for j, places in known.items():
                levels = () if own is None else own[j].levels
                codes[j] = np.array([places[level] for level in levels], dtype=np.float64)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows `start` to `stop`."""
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        pieces: list[NDArray[Any]] = []
        for number in range(min(first, len(self._paths) - 1), len(self._paths)):
            begin, end = int(self._starts[number]), int(self._starts[number + 1])
            if begin >= stop and pieces:
                break
            pieces.append(self._piece(number, max(start, begin) - begin, min(stop, end) - begin))
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def close(self) -> None:
        """Do nothing: a file is open only while it is read."""

    def _piece(self, number: int, start: int, stop: int) -> NDArray[Any]:
        try:
            stored = map_npy(Path(self._paths[number]), DataError)
        except OSError as error:
            raise DataError(f"{self._paths[number]}, a part of {self.name}, cannot be read: train again") from error
        values = np.array(stored[start:stop], dtype=None if self.dtype.kind == "U" else self.dtype)
        for j, codes in self._codes[number].items():
            given = ~np.isnan(values[:, j])
            values[given, j] = codes[values[given, j].astype(np.int64)]
        return values


def _frame_rows(frame: Any, name: str, options: TableOptions) -> tuple[NDArray[Any], Columns | None]:
    if has_plain_numbers(frame) and options == TableOptions():
        return frame.to_numpy(dtype=np.result_type(*frame.dtypes)), None
    table = as_arrow(frame, name)
    coder = TableCoder(table.column_names, name, options.categories, options.as_number, typed=True)
    rows = coder.code(table.columns, lambda row, j: f"{name}: row {row}, column {coder.names[j]!r} (0-based)")
    return rows, coder.columns()


def _columns_of(parts: Sequence[Part], names: Sequence[str] | None) -> Columns | None:
    """The columns of all parts; None if all values are numbers and none is missing."""
    if names is None or not any(part.columns is not None or part.missing for part in parts):
        return None
    count, columns = LevelCount("X"), []
    for j, name in enumerate(names):
        kind, levels = NUMBER, dict[str, None]()
        told: str | None = None
        for part in parts:
            if part.empty is not None and part.empty[j]:
                continue
            own = Column(name) if part.columns is None else part.columns[j]
            if told is not None and own.kind != told:
                raise DataError(
                    f"X: column {name!r} is a {told} in some blocks and a {own.kind} in others: give it one type"
                )
            told = kind = own.kind
            levels |= dict.fromkeys(own.levels)
        count.add(tuple(levels), name, len(levels))
        columns.append(Column(name, kind, tuple(levels)))
    return Columns(tuple(columns))


def _written(values: NDArray[Any], folder: Path, stem: str) -> Path:
    """Write an array to a file atomically, because another worker may write the same block."""
    path = folder / f"{stem}.npy"
    partial = folder / f"{stem}-{secrets.token_hex(4)}.partial"
    with writing_scratch(folder):
        try:
            with partial.open("wb") as file:
                np.save(file, np.ascontiguousarray(values), allow_pickle=False)
            os.replace(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    return path
