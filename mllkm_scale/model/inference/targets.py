"""Targets of predictions: an HDF5 file or a CSV file, which appears completely or not at all, or standard output."""

from __future__ import annotations

import csv
import io
import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import h5py

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.files.whole import cannot_write
from mllkm_scale.data.converters.whole_file import WholeFile
from mllkm_scale.data.converters.writer import HDF5Writer
from mllkm_scale.data.sources import one_line
from mllkm_scale.errors import DataError, ParameterError, ScratchError

__all__ = ["STANDARD_OUTPUT", "PredictionTarget", "prediction_target"]

STANDARD_OUTPUT = "-"
_DELIMITERS = {".csv": ",", ".tsv": "\t"}


class PredictionTarget(Protocol):
    """Takes labels, and optionally decision functions and probabilities, block by block.

    A context manager.
    """

    def describe(self, classes: Array, checksum: str, scores: bool, probabilities: bool) -> None:
        """Describe the predictions: the classes of the model, its checksum, and what is written besides labels."""

    def append_predictions(self, labels: Array, scores: Array | None, probabilities: Array | None) -> None:
        """Write a block."""

    @property
    def size_bytes(self) -> int:
        """Number of bytes written, at the end."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def prediction_target(path: Path, *, overwrite: bool = False) -> PredictionTarget:
    """The target of this name: .h5 and .hdf5, .csv and .tsv, or - for CSV on standard output.

    >>> prediction_target(Path("labels.xlsx"))
    Traceback (most recent call last):
    mllkm_scale.errors.ParameterError: labels.xlsx is to be an HDF5 or CSV file: name it labels.h5 or labels.csv
    """
    suffix = path.suffix.lower()
    if str(path) == STANDARD_OUTPUT:
        return _PipedPredictions()
    if suffix in _DELIMITERS:
        return _TextPredictions(path, overwrite=overwrite)
    if suffix in (".h5", ".hdf5"):
        return _HDF5Predictions(path, overwrite=overwrite)
    raise ParameterError(f"{path.name} is to be an HDF5 or CSV file: name it {path.stem}.h5 or {path.stem}.csv")


class _HDF5Predictions(HDF5Writer):
    """The data sets prediction, scores and probabilities, with attributes that identify the model."""

    def describe(self, classes: Array, checksum: str, scores: bool, probabilities: bool) -> None:
        self._file.attrs["model_checksum"] = checksum
        if classes.dtype.kind != "U":
            self._file.attrs["classes"] = classes
            return
        try:
            self._file.attrs.create("classes", classes.tolist(), dtype=h5py.string_dtype())
        except ValueError as error:
            raise DataError(
                f"a class of the model is text that HDF5 cannot hold ({error}): train with other labels"
            ) from error

    def append_predictions(self, labels: Array, scores: Array | None, probabilities: Array | None) -> None:
        if labels.dtype.kind == "U":
            self.append_labels("prediction", labels)
        else:
            self.append("prediction", labels)  # keeps the type of the classes, also of booleans
        if scores is not None:
            self.append("scores", scores)
        if probabilities is not None:
            self.append("probabilities", probabilities)

    @property
    def size_bytes(self) -> int:
        return self.target.stat().st_size


class _TextPredictions(WholeFile):
    """A line per row: the label, and its scores and probabilities with all digits."""

    _header: list[list[Any]]  # written with the first block

    def _open(self, path: Path) -> Any:
        return path.open("x", encoding="utf-8", newline="")

    @property
    def _example(self) -> str:
        return "predictions.csv"

    def describe(self, classes: Array, checksum: str, scores: bool, probabilities: bool) -> None:
        self._header = _header(classes, scores, probabilities)

    def append_predictions(self, labels: Array, scores: Array | None, probabilities: Array | None) -> None:
        self._write(_text(self._header + _lines(labels, scores, probabilities), self._delimiter))
        self._header = []

    @property
    def size_bytes(self) -> int:
        return self.target.stat().st_size

    @property
    def _delimiter(self) -> str:
        return _DELIMITERS[self.target.suffix.lower()]

    def _write(self, text: str) -> None:
        try:
            self._file.write(text)
        except OSError as error:
            raise cannot_write(self.target, error) from error


class _PipedPredictions:
    """CSV on standard output, each block as soon as it is predicted."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._header: list[list[Any]] = []  # written with the first block, and not before an error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: written lines cannot be taken back."""

    def describe(self, classes: Array, checksum: str, scores: bool, probabilities: bool) -> None:
        self._header = _header(classes, scores, probabilities)

    def append_predictions(self, labels: Array, scores: Array | None, probabilities: Array | None) -> None:
        self._write(_text(self._header + _lines(labels, scores, probabilities), ","))
        self._header = []

    def _write(self, text: str) -> None:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            # Python flushes again at exit, which would be a second error.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise ScratchError("standard output was closed by its reader: read all lines, or name a file") from None
        except OSError as error:
            raise ScratchError(f"standard output cannot be written ({one_line(error)}): name a file") from error
        self.size_bytes += len(text.encode())


def _header(classes: Array, scores: bool, probabilities: bool) -> list[list[Any]]:
    """Two classes have one score, which is positive for the second; every class has a probability."""
    labels = classes.tolist()
    decided = labels[1:] if len(labels) == 2 else labels
    named = [f"score_{label}" for label in decided if scores]
    return [["prediction", *named, *(f"probability_{label}" for label in labels if probabilities)]]


def _lines(labels: Array, *columns: Array | None) -> list[list[Any]]:
    parts = [values.reshape(len(labels), -1).tolist() for values in columns if values is not None]
    rows = zip(labels.tolist(), *parts, strict=True)
    return [[label, *(value for part in values for value in part)] for label, *values in rows]


def _text(rows: list[list[Any]], delimiter: str) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return text.getvalue()
