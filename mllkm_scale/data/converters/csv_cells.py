"""Lines of CSV to rows of numbers and texts of labels.

Blocks of lines are parsed by NumPy at once; only a block that fails is looked at cell by cell, to name the
line and the column.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.data.converters.csv_layout import CSVLayout, is_number
from mllkm_scale.data.sources import one_line
from mllkm_scale.errors import DataError

__all__ = ["feature_rows", "label_texts"]


def label_texts(layout: CSVLayout, numbers: Sequence[int], lines: list[str]) -> list[str]:
    """Text of the label in each line; lines of another number of cells are refused on the way."""
    quoted = any('"' in line for line in lines)
    rows = layout.cells(numbers, lines) if quoted else []
    for place, line in enumerate(lines):
        width = len(rows[place]) if quoted else line.count(layout.delimiter) + 1
        if width != layout.width:
            raise DataError(
                f"{layout.source}: line {numbers[place]} has {width} cells instead of {layout.width}:"
                " give every line the same columns"
            )
    if layout.label is None:
        return []
    column = layout.label
    if quoted:
        return [row[column].strip() for row in rows]
    if column == layout.width - 1:
        return [line.rsplit(layout.delimiter, 1)[-1].strip() for line in lines]
    return [line.split(layout.delimiter, column + 1)[column].strip() for line in lines]


def feature_rows(layout: CSVLayout, numbers: Sequence[int], lines: list[str]) -> NDArray[np.float64]:
    """Numbers of the columns that are not the label, one row a line."""
    try:
        values: NDArray[np.float64] = np.loadtxt(
            lines, delimiter=layout.delimiter, usecols=layout.features, comments=None, quotechar='"', ndmin=2
        )
    except ValueError as error:
        for number, row in zip(numbers, layout.cells(numbers, lines), strict=True):
            for column in layout.features:
                if not row[column].strip():
                    raise DataError(f"{layout.place(number, column)} is empty: fill it or remove the line") from None
                if not is_number(row[column]):
                    raise DataError(
                        f"{layout.place(number, column)} is {row[column]!r}, not a number: encode it as a"
                        f" number, or name it as the label column{_header_hint(layout, number)}"
                    ) from None
        raise DataError(f"{layout.source}: lines {numbers[0]} to {numbers[-1]}: {one_line(error)}") from error
    return values


def _header_hint(layout: CSVLayout, line: int) -> str:
    return "; if the line holds names, say that there is a header" if line == layout.first_line else ""
