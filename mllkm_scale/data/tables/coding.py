"""From columns of a table, as Arrow arrays of text or of typed values, to rows of numbers and codes.

`TableCoder` detects the kinds of columns while they are read. Text is a number, a boolean (true or false), a date (ISO
8601), or otherwise a category; the kind of typed values follows from their type. If a later cell shows that a column
has another kind, `Recode` is raised, and the table is read again from the beginning. `code_rows` codes rows with known
columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.data.tables.cells import (
    VALUES,
    category_codes,
    is_number,
    is_text,
    kind_of,
    plain_cells,
    plain_numbers,
)
from mllkm_scale.data.tables.columns import BOOLEAN, CATEGORY, DATE, NUMBER, Column, Columns, LevelCount
from mllkm_scale.errors import DataError, ParameterError

__all__ = ["KnownCoder", "Place", "Recode", "TableCoder", "code_rows"]

Place = Callable[[int, int], str]
"""The name of a cell for messages, by its row in the block and its column among the features."""

_MOSTLY = 0.9  # share of cells that are numbers above which the others count as mistakes
_MANY = 32  # largest number of numbers among the levels of a category


class Recode(Exception):
    """A column has another kind than assumed for the rows so far: start again."""


@dataclass
class _State:
    """The state of a column so far."""

    kind: str | None = None
    forced: bool = False
    levels: dict[str, int] = field(default_factory=dict)
    coded: bool = False  # whether values, and not only missing ones, were coded in this pass
    missing: bool = False
    n_values: int = 0
    n_numbers: int = 0
    first_text: str = ""


class TableCoder:
    """Codes blocks of rows, and detects the kinds of the columns.

    Parameters
    ----------
    names : sequence of str
        Names of the columns; "" for no name.
    source : str
        Name of the table for messages.
    categories, as_number : sequence of str or int
        Columns, by name or position, that are categories or numbers, independent of their cells.
    positions : sequence of int, optional
        Position of each column in the table; by default in this order.
    typed : bool
        Whether the table has types: a column of text is then a category, even if all texts are numbers.

    Examples
    --------
    >>> import pyarrow as pa
    >>> coder = TableCoder(["size", "colour"], "pets.csv")
    >>> coder.code([pa.array(["1.5", ""]), pa.array(["red", "blue"])], lambda row, j: "cell").tolist()
    [[1.5, 0.0], [nan, 1.0]]
    >>> coder.columns().describe(), coder.is_plain
    (['size: number', "colour: category of 2 levels ('red', 'blue')"], False)
    """

    def __init__(
        self,
        names: Sequence[str],
        source: str,
        categories: Sequence[str | int] = (),
        as_number: Sequence[str | int] = (),
        positions: Sequence[int] | None = None,
        typed: bool = False,
    ) -> None:
        self.names, self.source = list(names), source
        places = list(range(len(names)) if positions is None else positions)
        self._states = [_State() for _ in names]
        for given, kind in ((categories, CATEGORY), (as_number, NUMBER)):
            for column in given:
                state = self._states[_found(column, self.names, places, source)]
                if state.forced and state.kind != kind:
                    raise ParameterError(f"column {column!r} is named as a category and as a number: choose one")
                state.kind, state.forced = kind, True
        self._count, self._typed = LevelCount(source), typed

    def code(self, arrays: Sequence[Any], place: Place) -> NDArray[np.float64]:
        """Rows (n, d) of a block of columns.

        Raises
        ------
        Recode
            If earlier rows were coded with a wrong kind of a column: call `restart`, and start again.
        DataError
            If there are too many or too long levels, or a cell of a column named as a number is not one.
        """
        rows = np.empty((len(arrays[0]) if len(arrays) else 0, len(self.names)))
        again = False
        for j, array in enumerate(arrays):
            state, before = self._states[j], self._states[j].kind
            quick = plain_numbers(array) if before == NUMBER or (before is None and not self._typed) else None
            if quick is not None and not np.isnan(quick).any():
                rows[:, j], state.kind, state.coded = quick, NUMBER, True
                continue
            values = plain_cells(array)
            rows[:, j] = self._code_column(values, state, j, place)
            again = again or (before is not None and state.kind != before and state.coded)
            empty = values.null_count
            state.missing = state.missing or bool(empty) or bool(np.isnan(rows[:, j]).any())
            state.coded = state.coded or empty < len(values)
        if again:
            raise Recode
        return rows

    def restart(self) -> None:
        """Discard the rows and levels so far, but keep the detected kinds."""
        self._count = LevelCount(self.source)
        for state in self._states:
            state.levels, state.coded, state.missing = {}, False, False
            state.n_values = state.n_numbers = 0
            state.first_text = ""

    def columns(self) -> Columns:
        """The detected columns; columns of numbers with a few other cells, which are likely mistakes, are refused."""
        for name, state in zip(self.names, self._states, strict=True):
            share = state.n_numbers / max(1, state.n_values)
            if state.first_text and share >= _MOSTLY and len(state.levels) > _MANY and not state.forced:
                raise DataError(
                    f"{state.first_text}, not a number, though {share:.1%} of the cells of this column are: correct it"
                    f" or leave it empty; or name {name or 'the column'!r} as a category"
                )
        pairs = zip(self.names, self._states, strict=True)
        return Columns(tuple(Column(name, state.kind or NUMBER, tuple(state.levels)) for name, state in pairs))

    @property
    def is_plain(self) -> bool:
        """Whether all values are numbers, and none is missing."""
        return all(state.kind in (NUMBER, None) and not state.missing for state in self._states)

    def _code_column(self, array: Any, state: _State, j: int, place: Place) -> NDArray[np.float64]:
        if array.null_count == len(array):
            return np.full(len(array), np.nan)
        if state.kind is None:
            state.kind = CATEGORY if self._typed and is_text(array.type) else kind_of(array)
        if state.kind != CATEGORY:
            values, bad = VALUES[state.kind](array)
            if bad is None:
                return values
            if state.forced:
                raise DataError(
                    f"{place(bad, j)} is {array[bad].as_py()!r}, not a number: correct it, leave it empty, or do not"
                    " name this column as a number"
                )
            state.kind = CATEGORY
        return self._code_category(array, state, j, place)

    def _code_category(self, array: Any, state: _State, j: int, place: Place) -> NDArray[np.float64]:
        typed = self._typed or not is_text(array.type)
        before, levels = len(state.levels), state.levels
        codes, texts, occurrences = category_codes(array, lambda text: levels.setdefault(text, len(levels)))
        self._count.add(list(levels)[before:], self.names[j] or f"column {j}", len(levels))
        if not state.forced and not typed:
            numbers = np.array([is_number(text) for text in texts], dtype=bool)
            state.n_values += int(occurrences.sum())
            state.n_numbers += int(occurrences[numbers].sum())
            if not state.first_text and not numbers.all():
                others = {text for text, number in zip(texts, numbers, strict=True) if not number}
                row, text = next((row, text) for row, text in enumerate(array.to_pylist()) if text in others)
                state.first_text = f"{place(row, j)} is {text!r}"
        return codes


class KnownCoder:
    """Codes blocks of rows with known columns, instead of a `TableCoder`."""

    def __init__(self, columns: Columns, plain: bool) -> None:
        self._columns, self.is_plain = columns, plain

    def code(self, arrays: Sequence[Any], place: Place) -> NDArray[np.float64]:
        """Rows (n, d) of a block; a text that is not a level has the code after the last level."""
        return code_rows(arrays, self._columns, place, missing_allowed=not self.is_plain, then="evaluate")

    def restart(self) -> None:
        """Do nothing: nothing was detected from the rows so far."""

    def columns(self) -> Columns:
        """The known columns."""
        return self._columns


def code_rows(
    arrays: Sequence[Any], columns: Columns, place: Place, *, missing_allowed: bool = True, then: str = "predict"
) -> NDArray[np.float64]:
    """Rows (n, d) of a block with known columns; a text that is not a level has the code after the last level.

    Examples
    --------
    >>> import pyarrow as pa
    >>> columns = Columns((Column("size"), Column("colour", "category", ("red", "blue"))))
    >>> code_rows([pa.array([1, None]), pa.array(["blue", "green"])], columns, lambda row, j: "cell").tolist()
    [[1.0, 1.0], [nan, 2.0]]
    """
    rows = np.empty((len(arrays[0]) if len(arrays) else 0, len(columns)))
    for j, given in enumerate(arrays):
        quick = plain_numbers(given) if columns[j].kind == NUMBER else None
        if quick is not None:
            rows[:, j] = quick
            continue
        array, column = plain_cells(given), columns[j]
        if array.null_count == len(array):
            rows[:, j] = np.nan
        elif column.kind == CATEGORY:
            known = {level: code for code, level in enumerate(column.levels)}
            rows[:, j] = category_codes(array, partial(_code, known))[0]
        else:
            rows[:, j], bad = VALUES[column.kind](array)
            if bad is not None:
                what = {NUMBER: "a number", BOOLEAN: "true or false", DATE: "a date such as 2024-12-31"}[column.kind]
                raise DataError(
                    f"{place(bad, j)} is {array[bad].as_py()!r}, not {what}: correct it"
                    + (" or leave it empty" if missing_allowed else f" or remove the row, then {then}")
                )
    if not missing_allowed:
        broken = np.argwhere(np.isnan(rows))
        if len(broken):
            row, j = (int(number) for number in broken[0])
            cell = arrays[j][row].as_py()
            what = "empty" if cell is None or str(cell).strip() == "" else "NaN" if cell != cell else repr(cell)
            what = "NaN" if what.lower() == "'nan'" else what
            raise DataError(f"{place(row, j)} is {what}: fill it or remove the row, then {then}")
    return rows


def _code(known: dict[str, int], text: str) -> int:
    return known.get(text, len(known))


def _found(column: str | int, names: list[str], places: list[int], source: str) -> int:
    """The index among the features of a named column."""
    if isinstance(column, str) and names.count(column) == 1:
        return names.index(column)
    number = column if isinstance(column, int) else int(column) if column.isdecimal() else None
    if number is None or isinstance(number, bool) or number not in places:
        listed = ", ".join([name for name in names if name][:20])
        known = f"it has {listed}" if listed else f"give a position, such as {places[0] if places else 0}"
        raise ParameterError(f"{source} has no column {column!r} among its features: {known}")
    return places.index(number)
