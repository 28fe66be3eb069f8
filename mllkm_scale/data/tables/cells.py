"""The cells of one column, as an Arrow array of text or of typed values: their kind, and their values as numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.arrays import Array
from mllkm_scale.data.tables.columns import BOOLEAN, CATEGORY, DATE, NUMBER

__all__ = ["MISSING", "VALUES", "category_codes", "is_number", "is_text", "kind_of", "plain_cells", "plain_numbers"]

MISSING = ("", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NAN", "NULL", "null", "None")
"""Texts that mean a missing value."""

_DAY_US = 86_400e6


def is_number(text: str) -> bool:
    """Whether a text can be read as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def plain_cells(array: Any) -> Any:
    """One plain array, with stripped text, and null for missing values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_dictionary(array.type):
        levels = array.dictionary
        # Levels of polars are views of text, from which Arrow cannot take.
        array = (levels.cast(pa.string()) if is_text(levels.type) else levels).take(array.indices)
    if not is_text(array.type):
        return array
    if array.type != pa.string():
        array = array.cast(pa.string())
    trimmed = pc.utf8_trim_whitespace(array)
    missing = pc.is_in(trimmed, value_set=pa.array(MISSING))
    return pc.if_else(missing, pa.scalar(None, pa.string()), trimmed) if pc.any(missing).as_py() else trimmed


def is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def kind_of(array: Any) -> str:
    """The kind of an array with some values that are not missing."""
    import pyarrow as pa

    kind = array.type
    if not is_text(kind):
        if pa.types.is_boolean(kind):
            return BOOLEAN
        return DATE if pa.types.is_date(kind) or pa.types.is_timestamp(kind) else NUMBER
    return next((known for known in (NUMBER, BOOLEAN, DATE) if VALUES[known](array)[1] is None), CATEGORY)


def plain_numbers(array: Any) -> NDArray[np.float64] | None:
    """Numbers of an array of only texts of numbers or integers; None for other arrays."""
    import pyarrow as pa

    if not len(array) or not (is_text(array.type) or pa.types.is_integer(array.type)):
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
    # The few texts that Arrow does not parse as numbers, such as "+1", are parsed one by one.
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

    if is_text(array.type):
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

    if not is_text(array.type) and not pa.types.is_date(array.type) and not pa.types.is_timestamp(array.type):
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


VALUES: dict[str, Callable[[Any], tuple[NDArray[np.float64], int | None]]] = {
    NUMBER: _number_values,
    BOOLEAN: _boolean_values,
    DATE: _date_values,
}
"""For each kind: the values of cells, and the first row that has another kind, if there is one."""


def category_codes(array: Any, lookup: Callable[[str], int]) -> tuple[NDArray[np.float64], list[str], Array]:
    """Codes of an array, NaN for missing values; its distinct texts, and their counts."""
    import pyarrow as pa

    if not is_text(array.type):
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
    """Typed values as text, as in a CSV file: 1.0 as "1", a boolean as "true"."""
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
