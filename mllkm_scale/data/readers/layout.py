"""The layout of a CSV file from its first lines: separator, columns, header, and label column.

If semicolons separate the cells, numbers may have a decimal comma, as written by spreadsheets in many countries.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from mllkm_scale.data.readers.limits import MOST_COLUMNS, require_width
from mllkm_scale.data.readers.options import ReadOptions
from mllkm_scale.data.readers.records import csv_records
from mllkm_scale.errors import DataError

__all__ = ["DECIMAL_COMMA", "LARGEST_EXACT", "CSVLayout", "is_blank", "is_number", "layout_of", "read_layout"]

# Whole numbers below it are exact in float64.
LARGEST_EXACT = 2.0**53

DECIMAL_COMMA = r"^(\s*[-+]?[0-9]*),([0-9]+(?:[eE][-+]?[0-9]+)?\s*)$"
"""A number with a decimal comma: the parts before and after the comma."""


@dataclass(frozen=True)
class CSVLayout:
    """Separator, columns, positions of label and weight, and the first line of the data, counted from 1.

    `picked` are the columns of the features, in order, if these are not all columns except label and weight.
    """

    source: Path | str
    delimiter: str
    names: list[str] | None
    width: int
    label: int | None
    first_line: int
    weight: int | None = None
    picked: tuple[int, ...] | None = None

    @property
    def features(self) -> list[int]:
        """Columns of the features: the picked ones, or all except label and weight."""
        if self.picked is not None:
            return list(self.picked)
        return [column for column in range(self.width) if column not in (self.label, self.weight)]

    @property
    def feature_names(self) -> list[str] | None:
        """The names of the features, if there is a header."""
        return None if self.names is None else [self.names[column] for column in self.features]

    def taking(self, positions: Sequence[int] | None) -> CSVLayout:
        """The layout with only the features at these positions among its features; None for all of them."""
        if positions is None:
            return self
        return replace(self, picked=tuple(self.features[position] for position in positions))

    def place(self, line: int, column: int) -> str:
        """The name of a cell for messages."""
        name = "" if self.names is None else f" {self.names[column]!r}"
        return f"{self.source}: line {line}, column {column + 1}{name} (from 1)"

    @property
    def has_commas(self) -> bool:
        """Whether a comma in a number is the decimal separator."""
        return self.delimiter == ";"

    def plain(self, cell: str) -> str:
        """A cell with a decimal point.

        >>> CSVLayout("a.csv", ";", None, 2, None, 1).plain("-1,5")
        '-1.5'
        """
        return re.sub(DECIMAL_COMMA, r"\1.\2", cell) if self.has_commas else cell

    def cells(self, numbers: Sequence[int], lines: list[str]) -> list[list[str]]:
        """Cells of each line, quotes removed."""
        rows = []
        for number, line in zip(numbers, lines, strict=True):
            try:
                rows.append(next(csv.reader([line], delimiter=self.delimiter, strict=True)))
            except csv.Error as error:
                raise DataError(
                    f"{self.source}: line {number} has quotes that do not match ({error}): close them"
                ) from None
        return rows


def read_layout(source: Path, options: ReadOptions, delimiter: str | None) -> CSVLayout:
    """The layout of a file, from its first two lines that are not blank."""
    lines = [line for block in islice(csv_records(source), 2) for line in block if not is_blank(line[1])][:2]
    if not lines:
        raise DataError(f"{source} is empty: give a file with a line per sample")
    return layout_of(source, lines, options, delimiter)


def layout_of(
    source: Path | str, lines: Sequence[tuple[int, str]], options: ReadOptions, delimiter: str | None
) -> CSVLayout:
    """The layout from the first two lines that are not blank, given with their numbers."""
    number = lines[0][0]
    if delimiter is None:
        delimiter = _separator([line for _, line in lines])
    rough = CSVLayout(source, delimiter, None, 0, None, 1)
    rows = rough.cells([number for number, _ in lines], [line for _, line in lines])
    first = [cell.strip() for cell in rows[0]]
    label = _position(source, options.label_column, first, "label")
    weight = _position(source, options.sample_weight, first, "weight")
    if weight is not None and weight == label:
        raise DataError(f"{source}: the column of the weights is that of the labels: name the label column, too")
    require_width(len(first) - (label is not None), f"{source}: line {number}", MOST_COLUMNS)
    header = options.header
    if header is None:
        named = isinstance(options.label_column, str) or isinstance(options.sample_weight, str)
        plain = [[rough.plain(cell) for cell in row] for row in (first, *rows[1:])]
        header = named or _looks_like_header(plain[0], plain[1:], label)
    if header and len(rows) < 2:
        raise DataError(f"{source} has a header but no rows: give a line per sample")
    if len(first) == (label is not None) + (weight is not None):
        raise DataError(f"{source} has no columns of features, separated by {delimiter!r}: check the separator")
    return CSVLayout(source, delimiter, first if header else None, len(first), label, number + bool(header), weight)


def _separator(lines: Sequence[str]) -> str:
    """The first of comma, semicolon and tab in the first line; a semicolon if all commas are those of decimal numbers.

    >>> _separator(["a,b;c"]), _separator(["size;price", "1,5;2"]), _separator(["0,5;cat", "1,5;dog"])
    (',', ';', ';')
    """
    cells = [cell for line in lines for cell in line.strip("\r\n").split(";")]
    if len(cells) > len(lines) and all("," not in cell or re.match(DECIMAL_COMMA, cell) for cell in cells):
        return ";"
    return next((sign for sign in ",;\t" if sign in lines[0]), ",")


def _looks_like_header(first: list[str], rest: list[list[str]], label: int | None) -> bool:
    """Whether the first line is a header: it has no number among the features, and no repeated name if the next line
    has no number either; or its label is text and that of the next line is a number."""
    if not any(is_number(cell) for column, cell in enumerate(first) if column != label):
        below = any(is_number(cell) for row in rest for column, cell in enumerate(row) if column != label)
        return below or not rest or len(set(first)) == len(first)
    if label is None or is_number(first[label]):
        return False
    return any(len(row) == len(first) and is_number(row[label]) for row in rest)


def _position(source: Path | str, column: str | int | None, first: list[str], what: str) -> int | None:
    """The position of the label column or the weight column."""
    if column is None:
        return None
    if isinstance(column, str):
        if first.count(column) != 1:
            problem = "twice" if column in first else "not"
            names = ", ".join(first[:20] + ["..."] * (len(first) > 20))
            raise DataError(
                f"{source}: the {what} column {column!r} is {problem} in the header ({names}): name another"
            )
        return first.index(column)
    if not -len(first) <= column < len(first):
        raise DataError(f"{source}: there is no column {column} among {len(first)}: count from 0, or -1 for the last")
    return column % len(first)


def is_number(cell: str) -> bool:
    """Whether a cell can be read as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def is_blank(line: str) -> bool:
    """Whether a line is blank; tabs may separate empty cells, so they are not blank."""
    return not line.strip(" \r\n")
