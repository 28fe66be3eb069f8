"""Lines of CSV as columns of text, for conversion, prediction and streams.

Blocks of lines are parsed by pyarrow. Small blocks, blocks with quotes, and blocks that fail are read by the csv module
of Python, which reports the line.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.data.readers.layout import DECIMAL_COMMA, CSVLayout
from mllkm_scale.data.tables.coding import Place, code_rows
from mllkm_scale.data.tables.columns import Column, Columns
from mllkm_scale.data.weights import require_weights
from mllkm_scale.errors import DataError

__all__ = ["CSVBlock", "read_block"]


_FEW = 64  # number of lines for which Python is faster than Arrow


class CSVBlock:
    """Columns of text of some lines.

    Examples
    --------
    >>> from mllkm_scale.data.readers.layout import layout_of
    >>> from mllkm_scale.data.readers.options import ReadOptions
    >>> layout = layout_of("pets.csv", [(1, "size,kind"), (2, "1.5,cat")], ReadOptions(), None)
    >>> block = read_block(layout, [2, 3], ["1.5,cat", "7,dog"])
    >>> block.labels(), block.numbers().tolist()
    (['cat', 'dog'], [[1.5], [7.0]])
    """

    def __init__(self, layout: CSVLayout, numbers: Sequence[int], columns: Sequence[Any]) -> None:
        self.layout, self.line_numbers, self._columns = layout, numbers, columns

    @property
    def features(self) -> list[Any]:
        """Arrow arrays of the columns that are neither the label nor the weight."""
        import pyarrow as pa

        columns = [self._columns[column] for column in self.layout.features]
        arrays = [pa.array(column, pa.string()) if isinstance(column, tuple) else column for column in columns]
        return [_with_points(array) for array in arrays] if self.layout.has_commas else arrays

    def labels(self) -> list[str]:
        """Texts of the label column, stripped; none if there is no label column."""
        if self.layout.label is None:
            return []
        column = self._columns[self.layout.label]
        return [text.strip() for text in (column if isinstance(column, tuple) else column.to_pylist())]

    def weights(self) -> NDArray[np.float64]:
        """Numbers of the weight column, which must exist."""
        at = self.layout.weight
        assert at is not None
        column = self._columns[at]
        texts = column if isinstance(column, tuple) else column.to_pylist()
        values = np.empty(len(texts))
        for row, text in enumerate(texts):
            try:
                values[row] = float(self.layout.plain(text))
            except ValueError:
                place = self.layout.place(self.line_numbers[row], at)
                raise DataError(
                    f"{place}, the weight, is {text.strip()!r}: weights are finite numbers from 0"
                ) from None
        return require_weights(values, lambda row: self.layout.place(self.line_numbers[row], at))

    @property
    def place(self) -> Place:
        """The name of a cell for messages."""
        return lambda row, j: self.layout.place(self.line_numbers[row], self.layout.features[j])

    def numbers(self, then: str = "train") -> NDArray[np.float64]:
        """Rows of numbers without missing values; other cells are refused with line and column."""
        if len(self.line_numbers) <= _FEW:
            values = self._few_numbers()
            if values is not None:
                return values
        columns = Columns((Column(""),) * len(self.layout.features))
        try:
            return code_rows(self.features, columns, self.place, missing_allowed=False, then=then)
        except DataError as error:
            if "not a number" in str(error) and self.line_numbers[0] == self.layout.first_line:
                raise DataError(f"{error}; if the line holds names, say that there is a header") from None
            raise

    def _few_numbers(self) -> NDArray[np.float64] | None:
        """Numbers of few lines, or None if a cell is not a number."""
        columns = [self._columns[column] for column in self.layout.features]
        try:
            values = np.array([[float(text) for text in column] for column in columns]).T
        except (TypeError, ValueError):
            return None
        plain = not np.isnan(values).any() and not any("_" in text for column in columns for text in column)
        return np.ascontiguousarray(values) if plain else None


def _with_points(array: Any) -> Any:
    """Numbers with a decimal comma as numbers with a decimal point."""
    import pyarrow.compute as pc

    if not pc.any(pc.match_substring(array, ",")).as_py():
        return array
    return pc.replace_substring_regex(array, DECIMAL_COMMA, r"\1.\2")


def read_block(layout: CSVLayout, numbers: Sequence[int], lines: list[str]) -> CSVBlock:
    """The cells of numbered lines; a line with another number of cells is refused with its number."""
    # Only the csv module refuses unmatched quotes, and quotes within a cell.
    by_python = len(lines) <= _FEW or any('"' in line for line in lines)
    columns: list[Any] | None = None if by_python else _parsed(layout, lines)
    if columns is None:
        rows = layout.cells(numbers, lines)
        for number, row in zip(numbers, rows, strict=True):
            if len(row) != layout.width:
                raise DataError(
                    f"{layout.source}: line {number} has {len(row)} cells instead of {layout.width}:"
                    " give every line the same columns"
                )
        columns = list(zip(*rows, strict=True))
    return CSVBlock(layout, numbers, columns)


def _parsed(layout: CSVLayout, lines: list[str]) -> list[Any] | None:
    """Columns as parsed by pyarrow, or None if that fails."""
    import pyarrow as pa
    from pyarrow import csv

    text = ("" if lines[0].endswith("\n") else "\n").join(lines).encode("utf-8", "surrogatepass")
    names = [str(column) for column in range(layout.width)]
    try:
        table = csv.read_csv(
            io.BytesIO(text),
            read_options=csv.ReadOptions(column_names=names, use_threads=False, block_size=len(text) + 1),
            parse_options=csv.ParseOptions(delimiter=layout.delimiter, quote_char=False),
            convert_options=csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
        )
    except (pa.ArrowInvalid, UnicodeError):
        return None
    return None if table.num_rows != len(lines) else [column.combine_chunks() for column in table.columns]
