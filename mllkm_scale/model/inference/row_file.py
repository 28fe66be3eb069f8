"""Sources of rows to predict: HDF5, zarr, text, a pipe, or any format that can be converted.

Rows are passed on block by block, and never held as a whole.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mllkm_scale.base.files.npy import ZIP_DAMAGE
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
from mllkm_scale.model.inference.row_sink import RowSink, Take
from mllkm_scale.model.names import Features, MatchedColumns

__all__ = ["PIPE", "RowFile"]

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


@dataclass(frozen=True)
class _Reading:
    """What to read of a file, and who takes it: the columns, their encoding, and the callbacks of `RowFile.walk`."""

    features: Features
    take: Take
    progress: Progress
    options: ConvertOptions
    matched: Callable[[MatchedColumns], object]
    encoding: Encoding | None


@dataclass(frozen=True)
class RowFile:
    """A file with rows, or standard input; see `predict_file` for the options."""

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
        """The file with these options; an error if the format is unknown, or an option does not apply to it."""
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
        """Whether rows can be read in any order, also by workers."""
        return self.format in _DATASETS

    @property
    def name(self) -> str:
        """The name for messages."""
        return "standard input" if str(self.path) == PIPE else str(self.path)

    def dataset(self) -> Dataset:
        """The data set of an HDF5 file or a zarr group."""
        return Dataset.open(self.path, self.x or "X", None)

    def walk(
        self,
        features: Features,
        take: Take,
        progress: Progress,
        matched: Callable[[MatchedColumns], object],
        step: FirstStep | None = None,
    ) -> None:
        """Pass on all rows of a file that is not a data set, in order, converted to features by the first step, if
        there is one.

        `features` are the columns of the file to read; `progress` gets bytes or rows of the file, and `matched` the
        columns that were matched by name.
        """
        options = ConvertOptions(x=self.x, label_column=self.label_column, header=self.header)
        encoding = step if isinstance(step, Encoding) else None
        if isinstance(step, Reduction):
            if self.format != "libsvm":
                take = _reducing(take, step)
            options = replace(options, sparse=self.format == "libsvm")
        if self.by_position:
            features = replace(features, names=None)
        reading = _Reading(features, take, progress, options, matched, encoding)
        if self.format in _TEXT:
            self._walk_text(reading)
            return
        if self.format == "parquet":
            require_parquet(self.path)
            self._walk_parquet(reading)
            return
        path = require_readable(self.path, self.format)
        columns = features.match(_npz_names(path, self.x or "X"), self.name) if self.format == "npz" else None
        encoded = take if encoding is None else _encoding(take, encoding)
        reduction = step if isinstance(step, Reduction) else None
        sink = RowSink(self.name, encoded, features.count if self.format == "libsvm" else None, columns, reduction)
        if columns is not None:
            matched(columns)
        with _readable(self.name):
            _CONVERTERS[self.format](path, sink, options, progress)
        if not sink.n_rows:
            wanted = f" under the name {self.x or 'X'}" if self.format == "npz" else ""
            raise DataError(f"{self.name} holds no rows{wanted}: give at least one")

    def _walk_parquet(self, reading: _Reading) -> None:
        features, encoding = reading.features, reading.encoding

        def pick(names: Sequence[str] | None) -> Sequence[int] | None:
            by_name = features.match(names, self.name)
            if by_name is None:
                return None
            reading.matched(by_name)
            return by_name.positions

        n_rows = 0
        table = open_parquet(self.path, reading.options, pick)
        if len(table.names) != features.count:
            raise DataError(
                f"{self.name} has {len(table.names)} features per row, but the model was trained with"
                f" {features.count}: give the same features in the same order"
            )
        columns = Columns(tuple(Column(name) for name in table.names)) if encoding is None else encoding.columns
        for block in table.blocks():
            X = code_rows(block.features, columns, block.place, missing_allowed=encoding is not None)
            reading.take(Rows(X if encoding is None else encoding.apply(X), block.first, self.name))
            n_rows = block.first + block.n_rows
            reading.progress(n_rows, table.n_rows)
        if not n_rows:
            raise DataError(f"{self.name} holds no rows: give at least one")

    def _walk_text(self, reading: _Reading) -> None:
        features, encoding = reading.features, reading.encoding
        if str(self.path) == PIPE:
            if sys.stdin is None or sys.stdin.closed:
                raise DataError("standard input is closed: pipe rows into it, or give the path of a file")
            blocks = piped_records(sys.stdin, self.name)
        else:
            blocks = csv_records(require_readable(self.path, self.format), reading.progress)
        done = 0
        with _readable(self.name):
            delimiter = "\t" if self.format == "tsv" else None
            for X in csv_rows(blocks, self.name, reading.options, delimiter, features, encoding, reading.matched):
                reading.take(Rows(X, done, self.name))
                done += len(X)


def _encoding(take: Take, encoding: Encoding) -> Take:
    """Takes rows of numbers, and passes them on as features."""

    def taken(rows: Rows) -> None:
        translation = encoding.translation(None, rows.X.shape[1], rows.name)
        X = encoding.apply(translation.apply(rows.X, rows.first_row, rows.name))
        take(Rows(X, rows.first_row, rows.name))

    return taken


def _reducing(take: Take, reduction: Reduction) -> Take:
    """Takes dense rows of many columns, and passes them on as features."""
    return lambda rows: take(Rows(reduction.apply(rows.X), rows.first_row, rows.name))


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
    """The texts of the array feature_names in the same file; None if there is none that can be read."""
    group = x.rpartition("/")[0]
    member = f"{group}/{FEATURE_NAMES}" if group else FEATURE_NAMES
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo(f"{member}.npy").file_size > _MOST_NAME_BYTES:
                return None
        with np.load(path, allow_pickle=False) as arrays:
            names = arrays[member]
    except ZIP_DAMAGE:  # it is reported when the rows are read
        return None
    return names.tolist() if names.ndim == 1 and names.dtype.kind == "U" else None
