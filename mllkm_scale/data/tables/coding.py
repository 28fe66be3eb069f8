"""From columns of a table, as Arrow arrays of text or of typed values, to rows of numbers and codes.

`TableCoder` finds out what the columns hold while they are read. Text is a number, a boolean (true or false), a date
(ISO 8601), or else a category; typed values are what their type says. Where a later cell shows that a column is of
another kind, `Recode` is raised, and the table is read again from the beginning. `code_rows` codes rows by columns that
are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.arrays import Array
from mllkm_scale.data.tables.columns import BOOLEAN, CATEGORY, DATE, NUMBER, Column, Columns, LevelCount
from mllkm_scale.errors import DataError, ParameterError

__all__ = ["MISSING", "KnownCoder", "Place", "Recode", "TableCoder", "code_rows", "is_number"]

Place = Callable[[int, int], str]
"""How a message calls a cell, by its row in the block and its column among the features."""

MISSING = ("", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NAN", "NULL", "null", "None")
"""Texts that stand for a missing value."""

_DAY_US = 86_400e6
_MOSTLY = 0.9  # share of cells that are numbers, from which the others are taken for mistakes
_MANY = 32  # numbers that a column of categories may have among its levels


class Recode(Exception):
    """A column is not of the kind that the rows so far were coded by: begin again."""


@dataclass
class _State:
    """What is known of a column so far."""

    kind: str | None = None
    forced: bool = False
    levels: dict[str, int] = field(default_factory=dict)
    coded: bool = False  # whether values, and not only missing ones, were coded in this pass
    missing: bool = False
    n_values: int = 0
    n_numbers: int = 0
    first_text: str = ""


class TableCoder:
    """Codes blocks of rows, and learns what the columns hold.

    Parameters
    ----------
    names : sequence of str
        What the columns are called; "" for no name.
    source : str
        What the table is called.
    categories, as_number : sequence of str or int
        Columns, by name or position, that are categories or numbers whatever they look like.
    positions : sequence of int, optional
        Where in the table each column stands; by default in this order.
    typed : bool
        Whether the table has types: a column of text is then a category, even where each text is a number.

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
            If earlier rows were coded by a kind that a column has not: call `restart`, and begin again.
        DataError
            If there are too many or too long levels, or a cell of a column that was named as a number is none.
        """
        rows = np.empty((len(arrays[0]) if len(arrays) else 0, len(self.names)))
        again = False
        for j, array in enumerate(arrays):
            state, before = self._states[j], self._states[j].kind
            quick = _plain_numbers(array) if before == NUMBER or (before is None and not self._typed) else None
            if quick is not None and not np.isnan(quick).any():
                rows[:, j], state.kind, state.coded = quick, NUMBER, True
                continue
            values = _normal(array)
            rows[:, j] = self._code_column(values, state, j, place)
            again = again or (before is not None and state.kind != before and state.coded)
            empty = values.null_count
            state.missing = state.missing or bool(empty) or bool(np.isnan(rows[:, j]).any())
            state.coded = state.coded or empty < len(values)
        if again:
            raise Recode
        return rows

    def restart(self) -> None:
        """Forget the rows and levels so far, but not the kinds that were found."""
        self._count = LevelCount(self.source)
        for state in self._states:
            state.levels, state.coded, state.missing = {}, False, False
            state.n_values = state.n_numbers = 0
            state.first_text = ""

    def columns(self) -> Columns:
        """What was found; refused are columns that are numbers but for a few cells, which are likely mistakes."""
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
        """Whether all is numbers, and none is missing."""
        return all(state.kind in (NUMBER, None) and not state.missing for state in self._states)

    def _code_column(self, array: Any, state: _State, j: int, place: Place) -> NDArray[np.float64]:
        if array.null_count == len(array):
            return np.full(len(array), np.nan)
        if state.kind is None:
            state.kind = CATEGORY if self._typed and _is_text(array.type) else _kind_of(array)
        if state.kind != CATEGORY:
            values, bad = _VALUES[state.kind](array)
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
        typed = self._typed or not _is_text(array.type)
        before, levels = len(state.levels), state.levels
        codes, texts, occurrences = _category_codes(array, lambda text: levels.setdefault(text, len(levels)))
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
    """Codes blocks of rows by columns that are known, in the place of a `TableCoder`."""

    def __init__(self, columns: Columns, plain: bool) -> None:
        self._columns, self.is_plain = columns, plain

    def code(self, arrays: Sequence[Any], place: Place) -> NDArray[np.float64]:
        """Rows (n, d) of a block; a text that is no level has the code behind the last level."""
        return code_rows(arrays, self._columns, place, missing_allowed=not self.is_plain, then="evaluate")

    def restart(self) -> None:
        """Nothing was learned of the rows so far."""

    def columns(self) -> Columns:
        """The columns that are known."""
        return self._columns


def code_rows(
    arrays: Sequence[Any], columns: Columns, place: Place, *, missing_allowed: bool = True, then: str = "predict"
) -> NDArray[np.float64]:
    """Rows (n, d) of a block by known columns; a text that is no level has the code behind the last level.

    Examples
    --------
    >>> import pyarrow as pa
    >>> columns = Columns((Column("size"), Column("colour", "category", ("red", "blue"))))
    >>> code_rows([pa.array([1, None]), pa.array(["blue", "green"])], columns, lambda row, j: "cell").tolist()
    [[1.0, 1.0], [nan, 2.0]]
    """
    rows = np.empty((len(arrays[0]) if len(arrays) else 0, len(columns)))
    for j, given in enumerate(arrays):
        quick = _plain_numbers(given) if columns[j].kind == NUMBER else None
        if quick is not None:
            rows[:, j] = quick
            continue
        array, column = _normal(given), columns[j]
        if array.null_count == len(array):
            rows[:, j] = np.nan
        elif column.kind == CATEGORY:
            known = {level: code for code, level in enumerate(column.levels)}
            rows[:, j] = _category_codes(array, partial(_code, known))[0]
        else:
            rows[:, j], bad = _VALUES[column.kind](array)
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


def is_number(text: str) -> bool:
    """Whether a text can be read as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _found(column: str | int, names: list[str], places: list[int], source: str) -> int:
    """The number among the features of a column that was named."""
    if isinstance(column, str) and names.count(column) == 1:
        return names.index(column)
    number = column if isinstance(column, int) else int(column) if column.isdecimal() else None
    if number is None or isinstance(number, bool) or number not in places:
        listed = ", ".join([name for name in names if name][:20])
        known = f"it has {listed}" if listed else f"give a position, such as {places[0] if places else 0}"
        raise ParameterError(f"{source} has no column {column!r} among its features: {known}")
    return places.index(number)


def _normal(array: Any) -> Any:
    """One plain array; text without blanks around it, and null where it stands for a missing value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_dictionary(array.type):
        levels = array.dictionary
        # Levels of polars are views of text, which Arrow cannot pick from.
        array = (levels.cast(pa.string()) if _is_text(levels.type) else levels).take(array.indices)
    if not _is_text(array.type):
        return array
    if array.type != pa.string():
        array = array.cast(pa.string())
    trimmed = pc.utf8_trim_whitespace(array)
    missing = pc.is_in(trimmed, value_set=pa.array(MISSING))
    return pc.if_else(missing, pa.scalar(None, pa.string()), trimmed) if pc.any(missing).as_py() else trimmed


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _kind_of(array: Any) -> str:
    """What an array of values that are not all missing holds."""
    import pyarrow as pa

    kind = array.type
    if not _is_text(kind):
        if pa.types.is_boolean(kind):
            return BOOLEAN
        return DATE if pa.types.is_date(kind) or pa.types.is_timestamp(kind) else NUMBER
    return next((known for known in (NUMBER, BOOLEAN, DATE) if _VALUES[known](array)[1] is None), CATEGORY)


def _plain_numbers(array: Any) -> NDArray[np.float64] | None:
    """Numbers of an array that holds nothing else, as text or as integers; None for others, which are looked at."""
    import pyarrow as pa

    if not len(array) or not (_is_text(array.type) or pa.types.is_integer(array.type)):
        return None
    try:
        return _floats(array.cast(pa.float64()))
    except pa.ArrowInvalid:
        return None


def _number_values(array: Any) -> tuple[NDArray[np.float64], int | None]:
    import pyarrow as pa

    try:
        return _floats(array.cast(pa.float64())), None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    # Few texts that Arrow does not know as numbers, such as "+1", are read one by one.
    values = np.full(len(array), np.nan)
    for row, text in enumerate(array.to_pylist()):
        if text is None:
            continue
        if not isinstance(text, str) or not is_number(text):
            return values, row
        values[row] = float(text)
    return values, None


def _boolean_values(array: Any) -> tuple[NDArray[np.float64], int | None]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if _is_text(array.type):
        lower = pc.utf8_lower(array)
        known = pc.is_in(lower, value_set=pa.array(["true", "false"]))
        bad = np.flatnonzero(~_flags(pc.or_(known, pc.is_null(lower))))
        if len(bad):
            return np.empty(len(array)), int(bad[0])
        array = pc.equal(lower, "true")
    if not pa.types.is_boolean(array.type):
        values, bad_row = _number_values(array)
        wrong = np.flatnonzero(~(np.isnan(values) | (values == 0) | (values == 1)))
        return values, bad_row if bad_row is not None or not len(wrong) else int(wrong[0])
    return _floats(array.cast(pa.int8()).cast(pa.float64())), None


def _date_values(array: Any) -> tuple[NDArray[np.float64], int | None]:
    """Days since 1970-01-01, with their fraction."""
    import pyarrow as pa

    if not _is_text(array.type) and not pa.types.is_date(array.type) and not pa.types.is_timestamp(array.type):
        return np.empty(len(array)), int(np.flatnonzero(~_flags(array.is_null()))[0])
    for zone in (None, "UTC"):
        try:
            moments = array.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
        return _floats(moments.cast(pa.float64(), safe=False)) / _DAY_US, None
    for row, text in enumerate(array.to_pylist()):
        if text is not None and len(array) > 1 and _date_values(pa.array([text]))[1] is not None:
            return np.empty(len(array)), row
    return np.empty(len(array)), 0


_VALUES: dict[str, Callable[[Any], tuple[NDArray[np.float64], int | None]]] = {
    NUMBER: _number_values,
    BOOLEAN: _boolean_values,
    DATE: _date_values,
}


def _category_codes(array: Any, lookup: Callable[[str], int]) -> tuple[NDArray[np.float64], list[str], Array]:
    """Codes of an array, NaN where it is missing; its different texts, and how often each is there."""
    import pyarrow as pa

    if not _is_text(array.type):
        array = _as_text(array)
    coded = array.dictionary_encode()
    texts = coded.dictionary.to_pylist()
    places = _floats(coded.indices.cast(pa.float64()))
    found = np.flatnonzero(~np.isnan(places))
    own = places[found].astype(np.int64)
    codes = np.full(len(array), np.nan)
    codes[found] = np.array([lookup(text) for text in texts], dtype=np.float64)[own] if len(texts) else 0.0
    return codes, texts, np.bincount(own, minlength=len(texts))


def _as_text(array: Any) -> Any:
    """Typed values as the texts that they have in a CSV file: 1.0 as "1", a boolean as "true"."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(array.type):
        array = pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)
        whole = pc.all(pc.equal(pc.floor(array), array)).as_py()
        if whole and pc.max(pc.abs(array)).as_py() < 2**53:
            array = array.cast(pa.int64())
    return array.cast(pa.string())


def _floats(array: Any) -> NDArray[np.float64]:
    values: NDArray[np.float64] = array.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
    return values


def _flags(array: Any) -> NDArray[np.bool_]:
    flags: NDArray[np.bool_] = array.to_numpy(zero_copy_only=False).astype(bool)
    return flags
