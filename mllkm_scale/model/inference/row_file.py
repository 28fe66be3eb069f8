"""Where rows to be predicted come from: HDF5, zarr, text, a pipe, or any format that can be converted.

What is read is handed on block by block, and never held as a whole.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.location import URL, Location, is_parquet
from mllkm_scale.data.converters.conversion import FORMATS, format_of, require_parquet, require_readable
from mllkm_scale.data.converters.idx import convert_idx
from mllkm_scale.data.converters.libsvm import convert_libsvm
from mllkm_scale.data.converters.npy import convert_npy
from mllkm_scale.data.converters.npz import convert_npz
from mllkm_scale.data.converters.options import ConvertOptions
from mllkm_scale.data.converters.writer import ArrayWriter
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.first_step import FirstStep
from mllkm_scale.data.readers.options import Progress
from mllkm_scale.data.readers.parquet import open_parquet
from mllkm_scale.data.readers.records import csv_records
from mllkm_scale.data.sources import one_line
from mllkm_scale.data.sparse.reduction import Reduction
from mllkm_scale.data.stored_columns import FEATURE_NAMES
from mllkm_scale.data.tables.coding import code_rows
from mllkm_scale.data.tables.columns import Column, Columns
from mllkm_scale.data.tables.encoding import Encoding
from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.model.inference.blocks import Rows
from mllkm_scale.model.inference.csv_rows import csv_rows, piped_records
from mllkm_scale.model.names import Features, MatchedColumns

__all__ = ["PIPE", "ROW_FORMATS", "RowFile"]

PIPE = "-"
_MOST_NAME_BYTES = 2**26
_DATASETS, _TEXT = ("hdf5", "zarr"), ("csv", "tsv")
ROW_FORMATS = (*_DATASETS, *FORMATS)
_OPTIONS = {
    "x": (*_DATASETS, "npz"),
    "label_column": (*_TEXT, "parquet"),
    "header": _TEXT,
}
_CONVERTERS: dict[str, Callable[[Path, ArrayWriter, ConvertOptions, Progress], None]] = {
    "libsvm": convert_libsvm,
    "npz": convert_npz,
    "npy": convert_npy,
    "idx": convert_idx,
}
Take = Callable[[Rows], None]


@dataclass(frozen=True)
class RowFile:
    """A file with rows, or standard input; see `predict_file` for what the options mean."""

    path: Location
    format: str
    x: str | None
    label_column: str | int | None
    header: bool | None
    by_position: bool = False

    @classmethod
    def of(
        cls,
        source: Location,
        format: str | None,
        x: str | None,
        label_column: str | int | None,
        header: bool | None,
        by_position: bool = False,
    ) -> RowFile:
        """Refused if the format is not known, or an option does not belong to it."""
        kind = format or _format_of(source)
        if kind not in ROW_FORMATS:
            raise ParameterError(f"format={format!r} is not known: choose one of {', '.join(ROW_FORMATS)}")
        if str(source) == PIPE and kind not in _TEXT:
            raise ParameterError(f"standard input cannot be {kind}: give the path of the file, or pipe csv or tsv")
        given = {"x": x is not None, "label_column": label_column is not None, "header": header is not None}
        for option, is_given in given.items():
            if is_given and kind not in _OPTIONS[option]:
                formats = ", ".join(_OPTIONS[option])
                raise ParameterError(f"{option} does not belong to the format {kind} but to {formats}: leave it out")
        if isinstance(label_column, str) and header is False:
            raise ParameterError(f"label_column={label_column!r} needs a header: give its position instead")
        return cls(source, kind, x, label_column, header, by_position)

    @property
    def is_dataset(self) -> bool:
        """Whether rows can be read in any order, by workers too."""
        return self.format in _DATASETS

    @property
    def name(self) -> str:
        """How messages call it."""
        return "standard input" if str(self.path) == PIPE else str(self.path)

    def dataset(self) -> Dataset:
        """The data set that an HDF5 file or a zarr group holds."""
        return Dataset.open(self.path, self.x or "X", None)

    def walk(
        self,
        features: Features,
        take: Take,
        progress: Progress,
        matched: Callable[[MatchedColumns], object],
        step: FirstStep | None = None,
    ) -> None:
        """Hand on all rows of a file that is no data set, in order, as features if a step makes these.

        `features` are the columns of the file that are taken; `progress` gets bytes or rows of the file, and
        `matched` the columns that were matched by name.
        """
        options = ConvertOptions(x=self.x, label_column=self.label_column, header=self.header)
        encoding = step if isinstance(step, Encoding) else None
        if isinstance(step, Reduction):
            if self.format != "libsvm":
                take = _reducing(take, step)
            options = replace(options, sparse=self.format == "libsvm")
        if self.by_position:
            features = replace(features, names=None)
        if self.format in _TEXT:
            self._walk_text(features, take, progress, options, matched, encoding)
            return
        if self.format == "parquet":
            require_parquet(self.path)
            self._walk_parquet(features, take, progress, options, matched, encoding)
            return
        path = require_readable(self.path, self.format)
        columns = features.match(_npz_names(path, self.x or "X"), self.name) if self.format == "npz" else None
        encoded = take if encoding is None else _encoding(take, encoding)
        reduction = step if isinstance(step, Reduction) else None
        taker = _Taker(self.name, encoded, features.count if self.format == "libsvm" else None, columns, reduction)
        if columns is not None:
            matched(columns)
        with _readable(self.name):
            _CONVERTERS[self.format](path, taker, options, progress)
        if not taker.n_rows:
            wanted = f" under the name {self.x or 'X'}" if self.format == "npz" else ""
            raise DataError(f"{self.name} holds no rows{wanted}: give at least one")

    def _walk_parquet(
        self,
        features: Features,
        take: Take,
        progress: Progress,
        options: ConvertOptions,
        matched: Callable[[MatchedColumns], object],
        encoding: Encoding | None,
    ) -> None:
        def pick(names: Sequence[str] | None) -> Sequence[int] | None:
            by_name = features.match(names, self.name)
            if by_name is None:
                return None
            matched(by_name)
            return by_name.positions

        n_rows = 0
        table = open_parquet(self.path, options, pick)
        if len(table.names) != features.count:
            raise DataError(
                f"{self.name} has {len(table.names)} features per row, but the model was trained with"
                f" {features.count}: give the same features in the same order"
            )
        columns = Columns(tuple(Column(name) for name in table.names)) if encoding is None else encoding.columns
        for block in table.blocks():
            X = code_rows(block.features, columns, block.place, missing_allowed=encoding is not None)
            take(Rows(X if encoding is None else encoding.apply(X), block.first, self.name))
            n_rows = block.first + block.n_rows
            progress(n_rows, table.n_rows)
        if not n_rows:
            raise DataError(f"{self.name} holds no rows: give at least one")

    def _walk_text(
        self,
        features: Features,
        take: Take,
        progress: Progress,
        options: ConvertOptions,
        matched: Callable[[MatchedColumns], object],
        encoding: Encoding | None,
    ) -> None:
        if str(self.path) == PIPE:
            if sys.stdin is None or sys.stdin.closed:
                raise DataError("standard input is closed: pipe rows into it, or give the path of a file")
            blocks = piped_records(sys.stdin, self.name)
        else:
            blocks = csv_records(require_readable(self.path, self.format), progress)
        done = 0
        with _readable(self.name):
            delimiter = "\t" if self.format == "tsv" else None
            for X in csv_rows(blocks, self.name, options, delimiter, features, encoding, matched):
                take(Rows(X, done, self.name))
                done += len(X)


def _encoding(take: Take, encoding: Encoding) -> Take:
    """Takes rows of numbers, and hands them on as features."""

    def taken(rows: Rows) -> None:
        translation = encoding.translation(None, rows.X.shape[1], rows.name)
        X = encoding.apply(translation.apply(rows.X, rows.first_row, rows.name))
        take(Rows(X, rows.first_row, rows.name))

    return taken


def _reducing(take: Take, reduction: Reduction) -> Take:
    """Takes dense rows of many columns, and hands them on as features."""
    return lambda rows: take(Rows(reduction.apply(rows.X), rows.first_row, rows.name))


class _Taker:
    """Takes the array X of a converter, and leaves the others; rows of a sparse format are filled up.

    Where `columns` are given, these are what is taken of each row.
    """

    def __init__(
        self,
        name: str,
        take: Take,
        fill_up_to: int | None,
        columns: MatchedColumns | None,
        reduction: Reduction | None = None,
    ) -> None:
        self.n_rows = 0
        self._reduction = reduction
        self._name, self._take, self._fill_up_to, self._columns = name, take, fill_up_to, columns

    def append(self, name: str, block: NDArray[Any]) -> None:
        if name != "X":
            return
        rows = block if self._fill_up_to is None else _filled_up(block, self._fill_up_to)
        if rows.ndim != 2 or rows.dtype.kind not in "fiub":
            raise DataError(f"{self._name} has X of shape {rows.shape} and type {rows.dtype}: give rows of numbers")
        if self._columns is not None and rows.shape[1] != self._columns.n_columns:
            raise DataError(
                f"{self._name} has {self._columns.n_columns} feature_names, but {rows.shape[1]} columns: name each"
            )
        if self._columns is not None and not self._columns.in_place:
            rows = rows[:, list(self._columns.positions)]
        self._take(Rows(rows, self.n_rows, self._name))
        self.n_rows += len(rows)

    def append_sparse(self, name: str, rows: Any) -> None:
        assert self._reduction is not None
        width = self._reduction.n_columns
        if rows.shape[1] > width:
            raise DataError(
                f"{self._name} has {rows.shape[1]} features per row, but the model was trained with {width}: give the"
                " same features in the same order"
            )
        rows.resize(rows.shape[0], width)
        self._take(Rows(self._reduction.apply(rows), self.n_rows, self._name))
        self.n_rows += rows.shape[0]

    def append_labels(self, name: str, block: NDArray[Any]) -> None:
        if name == "X":
            raise DataError(f"{self._name} has X of shape {block.shape}: give rows of numbers")

    def write_scalar(self, name: str, value: NDArray[Any]) -> None:
        """Scalars are no rows."""

    def write_names(self, names: Sequence[str]) -> None:
        """Names were read before, where the format has some."""

    def require_space(self, size_bytes: int) -> None:
        """The rows are not written."""


def _filled_up(rows: NDArray[Any], width: int) -> NDArray[Any]:
    """Rows of a sparse file end with the last feature that is not zero in any of them."""
    return np.pad(rows, ((0, 0), (0, max(0, width - rows.shape[1]))))


def _format_of(source: Location) -> str:
    if str(source) == PIPE:
        return "csv"
    if is_parquet(source):
        return "parquet"
    if isinstance(source, URL) or source.is_dir():
        return "zarr"
    return format_of(source) or "hdf5"


@contextmanager
def _readable(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{name} cannot be read ({one_line(error)}): copy it again") from error


def _npz_names(path: Path, x: str) -> list[str] | None:
    """The text of the array feature_names beside x; None if there is none that can be read."""
    group = x.rpartition("/")[0]
    member = f"{group}/{FEATURE_NAMES}" if group else FEATURE_NAMES
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo(f"{member}.npy").file_size > _MOST_NAME_BYTES:
                return None
        with np.load(path, allow_pickle=False) as arrays:
            names = arrays[member]
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
        return None  # damage is reported when the rows are read
    return names.tolist() if names.ndim == 1 and names.dtype.kind == "U" else None
