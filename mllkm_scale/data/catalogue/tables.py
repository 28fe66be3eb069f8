"""Text files of the carriers as tables: rows of features, and a label each, as text.

Parsing only: the content is judged afterwards, by its checksum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Reader", "Table", "adult_text", "delimited", "one_hot", "svmlight", "unscaled"]

Array = NDArray[Any]

# Columns of the census files, counted from 0; the last one is the label.
ADULT_NUMBERS = (0, 2, 4, 10, 11, 12)
ADULT_NAMES = (1, 3, 5, 6, 7, 8, 9, 13)


@dataclass(frozen=True, eq=False)
class Table:
    """Features, numbers or text, of shape (n, d), and the labels of the rows as they are written."""

    X: Array
    labels: list[str]


Reader = Callable[[Iterable[str]], Table]


def delimited(separator: str = ",", *, header: int = 0, label_first: bool = False) -> Reader:
    """A reader of lines of numbers, with the label as last or first cell.

    >>> delimited(header=1)(["a,b,kind", "1,2.5,cat", "3,4,dog"]).X.tolist()
    [[1.0, 2.5], [3.0, 4.0]]
    """

    def read(lines: Iterable[str]) -> Table:
        labels: list[str] = []

        def features() -> Iterator[str]:
            for line in islice(lines, header, None):
                if line.strip():
                    first, found, rest = line.partition(separator) if label_first else line.rpartition(separator)
                    if not found:
                        raise ValueError(f"a line has no {separator!r}")
                    labels.append((first if label_first else rest).strip())
                    yield rest if label_first else first

        rows = features()
        start = next(rows, None)
        if start is None:
            raise ValueError("there are no rows")
        X = np.loadtxt(chain([start], rows), delimiter=separator, dtype=np.float32, comments=None, ndmin=2)
        return Table(X, labels)

    return read


def svmlight(n_features: int) -> Reader:
    """A reader of lines `label index:value ...`, with indices from 1; what is absent is zero.

    >>> svmlight(3)(["+1 1:0.5 3:2", "-1 2:1"]).X.tolist()
    [[0.5, 0.0, 2.0], [0.0, 1.0, 0.0]]
    """

    def read(lines: Iterable[str]) -> Table:
        labels, rows = [], []
        for line in lines:
            label, *entries = line.split() or [""]
            if label:
                row = np.zeros(n_features, dtype=np.float32)
                for entry in entries:
                    index, _, value = entry.partition(":")
                    row[int(index) - 1] = float(value)
                labels.append(label)
                rows.append(row)
        return Table(np.array(rows, dtype=np.float32).reshape(len(rows), n_features), labels)

    return read


def adult_text(lines: Iterable[str]) -> Table:
    """The census files: cells of text, and labels that end with a full stop in the test file."""
    rows, labels = [], []
    for line in lines:
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 1 + len(ADULT_NUMBERS) + len(ADULT_NAMES):
            rows.append(cells[:-1])
            labels.append(cells[-1].removesuffix("."))
    return Table(np.array(rows, dtype=np.str_), labels)


def one_hot(X: Array) -> Array:
    """The census data as numbers: six columns as they are, then a 0/1 column for each name of the eight others.

    Names are in the order of their text, and "?" (not known) is one of them.
    """
    columns = [X[:, column].astype(np.float32) for column in ADULT_NUMBERS]
    for column in ADULT_NAMES:
        columns += [(X[:, column] == name).astype(np.float32) for name in np.unique(X[:, column])]
    return np.column_stack(columns)


def unscaled(lows: tuple[float, ...], highs: tuple[float, ...]) -> Callable[[Array], Array]:
    """The inverse of a scaling of each column from its range to -1..1.

    >>> unscaled((0.0,), (10.0,))(np.array([[-1.0], [0.0], [1.0]])).ravel().tolist()
    [0.0, 5.0, 10.0]
    """
    low, high = np.array(lows), np.array(highs)
    return lambda X: low + (X.astype(np.float64) + 1) * (high - low) / 2
