"""Readers of files in packages, by the names used in `entries.toml`.

A reader only parses. The checksum of the content shows whether the rows are correct.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from functools import partial
from typing import IO, Any, NamedTuple

import numpy as np

from mllkm_scale.data.catalogue.content import Array

__all__ = ["READERS", "RawTable", "label_text", "one_hot"]


class RawTable(NamedTuple):
    """Features, as numbers or text, of shape (n, d), and the label of each row as in the source."""

    X: Array
    labels: list[str]


def _cells(
    stream: IO[bytes], label: int = -1, delimiter: str = ",", dtype: Any = np.float32, **options: Any
) -> RawTable:
    """Rows of cells, by the options of `numpy.loadtxt`; `label` is the column of the labels, 0 or -1."""
    labels: list[str] = []

    def take(text: str) -> str:
        labels.append(text.strip())
        return "0"

    with io.TextIOWrapper(stream, "utf-8") as text, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about lines without data
        cells = np.loadtxt(text, dtype, delimiter=delimiter, ndmin=2, converters={label: take}, **options)
    if not labels or cells.shape[1] < 2:
        raise ValueError(f"there are no rows of cells with {delimiter!r} between them")
    return RawTable(cells[:, 1:] if label == 0 else cells[:, :-1], labels)


def _census(stream: IO[bytes]) -> RawTable:
    """Cells of text with a leading space, and labels with a trailing full stop in the test file."""
    X, labels = _cells(stream, comments="|", dtype=np.str_)
    return RawTable(np.char.strip(X), [label.removesuffix(".") for label in labels])


def _svmlight(stream: IO[bytes]) -> RawTable:
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(stream)
    return RawTable(X.toarray(), [label_text(label) for label in y])


READERS: dict[str, Callable[[IO[bytes]], RawTable]] = {
    "csv": _cells,
    "csv-header": partial(_cells, skiprows=1),
    "csv-label-first": partial(_cells, skiprows=1, label=0),
    "tab": partial(_cells, delimiter="\t", skiprows=3),
    "census": _census,
    "svmlight": _svmlight,
}


def label_text(label: Any) -> str:
    """A label as text; whole numbers without decimals.

    >>> label_text(1.0), label_text("good")
    ('1', 'good')
    """
    try:
        number = float(label)
    except ValueError:
        return str(label)
    return str(int(number)) if number.is_integer() else str(label)


def one_hot(X: Array) -> Array:
    """Text as numbers: the numeric columns unchanged, then a 0/1 column for each value of the others.

    >>> one_hot(np.array([["red", "1.5"], ["?", "2"]])).tolist()
    [[1.5, 0.0, 1.0], [2.0, 1.0, 0.0]]
    """
    numbers, names = [], []
    for column in X.T:
        try:
            numbers.append(column.astype(np.float32))
        except ValueError:
            names += [(column == name).astype(np.float32) for name in np.unique(column)]
    return np.column_stack(numbers + names)
