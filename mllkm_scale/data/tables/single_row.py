"""One row of a table as features, value by value: for serving, because Arrow would take longer than the prediction."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.data.tables.cells import MISSING, is_number
from mllkm_scale.data.tables.columns import BOOLEAN, CATEGORY, DATE, NUMBER
from mllkm_scale.data.tables.encoding import Encoding
from mllkm_scale.errors import DataError

__all__ = ["encoded_row"]


def encoded_row(encoding: Encoding, values: Any) -> NDArray[np.float64]:
    """The features (1, p) of one row of a table.

    Examples
    --------
    >>> from mllkm_scale.data.tables.columns import Column, Columns
    >>> columns = Columns((Column("size"), Column("colour", "category", ("red", "blue"))))
    >>> encoding = Encoding(
    ...     columns, ("number", "one-hot"), np.array([7.0, 0.0]), np.array([1, 1]),
    ...     (None, np.array([[0.0], [1.0], [0.5], [0.0]])), ("size", "colour=blue"),
    ... )
    >>> encoded_row(encoding, [2, "blue"]).tolist(), encoded_row(encoding, [None, "green"]).tolist()
    ([[2.0, 1.0]], [[7.0, 0.5]])
    """
    row: Sequence[Any] = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if len(row) != encoding.n_columns:
        raise DataError(
            f"x has {len(row)} features per row, but the model was trained with {encoding.n_columns}: give the same"
            " features in the same order"
        )
    coded = np.empty((1, len(row)))
    for j, (value, column) in enumerate(zip(row, encoding.columns.columns, strict=True)):
        text = value.strip() if isinstance(value, str) else None
        if value is None or text in MISSING or value != value:
            coded[0, j] = np.nan
            continue
        if column.kind == CATEGORY:
            code = encoding.codes[j].get(_text(value) if text is None else text)
            coded[0, j] = len(column.levels) if code is None else code
            continue
        number = _READ[column.kind](value if text is None else text)
        if number is None or not np.isfinite(number):
            raise DataError(f"x: column {j} {encoding.columns.name(j)!r} is {value!r}, not a {column.kind}: correct it")
        coded[0, j] = number
    return encoding.apply(coded)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        return float(value) if is_number(value) else None
    return float(value) if isinstance(value, int | float | np.number) else None


def _boolean(value: Any) -> float | None:
    if isinstance(value, str):
        return {"true": 1.0, "false": 0.0}.get(value.lower())
    return float(value) if value in (0, 1) else None


def _date(value: Any) -> float | None:
    if isinstance(value, int | float | np.number):
        return float(value)
    try:
        moment = np.datetime64(value.removesuffix("Z") if isinstance(value, str) else value, "us")
    except (ValueError, TypeError):
        return None
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        moment = np.datetime64(value.astimezone(datetime.UTC).replace(tzinfo=None), "us")
    return float(moment.astype(np.int64)) / 86_400e6


_READ: dict[str, Callable[[Any], float | None]] = {NUMBER: _number, BOOLEAN: _boolean, DATE: _date}
