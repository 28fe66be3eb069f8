"""Tables in memory (pandas, polars, Arrow) as data sets: rows are coded block by block while reading."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.grid import default_chunk_rows
from mllkm_scale.data.sources import ArraySource, one_line
from mllkm_scale.data.tables.coding import TableCoder, code_rows
from mllkm_scale.data.tables.columns import Columns
from mllkm_scale.errors import DataError

__all__ = [
    "as_arrow",
    "has_plain_numbers",
    "is_frame",
    "is_known_type",
    "needs_encoding",
    "rows_dataset",
    "table_dataset",
    "values_table",
]


def is_frame(X: object) -> bool:
    """Whether this is a table with named columns: of pandas, polars or Arrow, or convertible to Arrow."""
    if hasattr(X, "__arrow_c_stream__"):
        return hasattr(X, "columns") or hasattr(X, "schema")  # a series has neither attribute
    return hasattr(X, "columns") and hasattr(X, "dtypes")


def needs_encoding(X: Any) -> bool:
    """Whether a table has more than numbers: text, categories, booleans, dates or missing values.

    >>> import pyarrow as pa
    >>> needs_encoding(pa.table({"a": [1, 2]})), needs_encoding(pa.table({"a": ["x", "y"]}))
    (False, True)
    """
    if hasattr(X, "iloc"):  # pandas: pyarrow is not imported for plain numbers
        return not has_plain_numbers(X) or bool(X.isna().to_numpy().any())
    import pyarrow as pa

    table = as_arrow(X)
    plain = all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in table.schema.types)
    return not plain or any(column.null_count for column in table.columns)


def has_plain_numbers(X: Any) -> bool:
    """Whether all columns of a DataFrame of pandas or dask have numeric types of NumPy."""
    return hasattr(X, "iloc") and all(isinstance(kind, np.dtype) and kind.kind in "fiub" for kind in X.dtypes)


def as_arrow(X: Any, name: str = "X") -> Any:
    """A table as an Arrow table; columns with objects of several types are refused by name."""
    import pyarrow as pa

    if isinstance(X, pa.Table):
        return X
    if isinstance(X, pa.RecordBatch):
        return pa.Table.from_batches([X])
    try:
        if type(X).__module__.partition(".")[0] == "pandas":
            return _of_pandas(X)
        return pa.table(X)
    except DataError:
        raise
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(
            f"{name} cannot be read as a table ({one_line(error)}): give every column values of one type"
        ) from error


def table_dataset(
    X: Any,
    y: ArrayLike | None = None,
    *,
    categories: Sequence[str | int] = (),
    as_number: Sequence[str | int] = (),
    name: str = "X",
) -> Dataset:
    """A table in memory as a data set with `columns`.

    Parameters
    ----------
    X : DataFrame of pandas or polars, or Arrow table
    y : array-like of shape (n,), optional
        Labels.
    categories, as_number : sequence of str or int
        Columns that are categories or numbers, independent of their type, by name or position.
    name : str
        The name for messages.

    Examples
    --------
    >>> import pandas as pd
    >>> data = table_dataset(pd.DataFrame({"size": [1, 2], "colour": ["red", None]}))
    >>> data.columns.describe(), data.chunk(0).tolist()
    (['size: number', "colour: category of 1 level ('red')"], [[1.0, 0.0], [2.0, nan]])
    """
    table = as_arrow(X, name)
    source = FrameSource(table, _found(table, categories, as_number, name), name)
    labels = None if y is None else ArraySource(np.asarray(y), "y" if name == "X" else f"y of {name}")
    return Dataset(source, labels).with_names(table.column_names).with_columns(source.columns)


def rows_dataset(X: Any, columns: Columns) -> Dataset:
    """Rows in memory, of a table or of values of any type, coded with known columns.

    >>> from mllkm_scale.data.tables.columns import Column
    >>> columns = Columns((Column("size"), Column("colour", "category", ("red", "blue"))))
    >>> rows_dataset([[1, "blue"], [None, "green"]], columns).chunk(0).tolist()
    [[1.0, 1.0], [nan, 2.0]]
    """
    if hasattr(X, "toarray"):
        raise DataError("X is sparse, which is not supported: give a dense array, such as X.toarray()")
    if not is_frame(X):
        values = np.asarray(X) if isinstance(X, np.ndarray) else _object_array(X, "X")
        if values.ndim != 2:
            raise DataError(f"X has shape {values.shape}: it must have two axes, one row per sample")
        if values.dtype.kind in "fiub":
            return Dataset.from_arrays(values)
        X = values_table(values)
    table = as_arrow(X)
    if table.num_columns != len(columns):
        raise DataError(
            f"X has {table.num_columns} features per row, but the model was trained with {len(columns)}:"
            " give the same features in the same order"
        )
    return Dataset(FrameSource(table, columns, "X")).with_names(columns.names).with_columns(columns)


def values_table(values: NDArray[Any], name: str = "X") -> Any:
    """The columns of an array of objects or text as an Arrow table, named by their numbers."""
    import pyarrow as pa

    arrays = []
    for j in range(values.shape[1]):
        column = values[:, j]
        try:
            arrays.append(pa.array(column.tolist(), from_pandas=True))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise DataError(
                f"{name}: column {j} (0-based) cannot be read ({one_line(error)}): give it values of one type"
            ) from error
    return pa.table(arrays, names=[str(j) for j in range(values.shape[1])])


def _object_array(X: Any, name: str) -> NDArray[Any]:
    rows = [list(row) if np.ndim(row) == 1 or isinstance(row, list | tuple) else [row] for row in X]
    if len({len(row) for row in rows}) != 1:
        raise DataError(f"{name} is not a list of rows of equal length: give a row of the same columns for each sample")
    values = np.empty((len(rows), len(rows[0])), dtype=object)
    for i, row in enumerate(rows):
        values[i] = row
    plain = all(isinstance(value, int | float | np.number) for row in rows for value in row)
    return values.astype(np.float64) if plain else values


class FrameSource:
    """Rows of an Arrow table as numbers and codes."""

    def __init__(self, table: Any, columns: Columns, name: str) -> None:
        self.name, self.columns = name, columns
        self.shape: tuple[int, ...] = (table.num_rows, table.num_columns)
        self.dtype = np.dtype(np.float64)
        self.buffer_bytes = int(table.nbytes) + 8 * 2**20  # the table itself, and a chunk while it is coded
        self._table = table

    def read(self, start: int, stop: int) -> NDArray[np.float64]:
        """Rows `start` to `stop`."""
        part = self._table.slice(start, stop - start)
        return code_rows(part.columns, self.columns, partial(_cell, self.name, self.columns.names, start))

    def close(self) -> None:
        """Do nothing: there is no file."""


def _found(table: Any, categories: Sequence[str | int], as_number: Sequence[str | int], name: str) -> Columns:
    """The columns of a table, detected in one pass over its rows."""
    for field in table.schema:
        if not is_known_type(field.type):
            raise DataError(
                f"{name}: column {field.name!r} has type {field.type}: give numbers, text, booleans or dates"
            )
    if len(set(table.column_names)) < len(table.column_names):
        raise DataError(f"{name} has two columns of one name: rename one")
    coder = TableCoder(table.column_names, name, categories, as_number, typed=True)
    height = default_chunk_rows(max(1, table.num_columns))
    for start in range(0, table.num_rows, height):
        coder.code(table.slice(start, height).columns, partial(_cell, name, coder.names, start))
    return coder.columns()


def _cell(name: str, names: Sequence[str], first: int, row: int, j: int) -> str:
    return f"{name}: row {first + row}, column {names[j]!r} (0-based)"


def is_known_type(kind: Any) -> bool:
    """Whether values of an Arrow type can be a feature."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind):
        return is_known_type(kind.value_type)
    return any(
        test(kind)
        for test in (
            types.is_integer,
            types.is_floating,
            types.is_decimal,
            types.is_boolean,
            types.is_string,
            types.is_large_string,
            types.is_string_view,
            types.is_date,
            types.is_timestamp,
            types.is_null,
        )
    )


def _of_pandas(X: Any) -> Any:
    """A DataFrame without its index; columns of objects are read as text if they hold texts and other values."""
    import pyarrow as pa

    names = [str(column) for column in X.columns]
    arrays = []
    for place, column in enumerate(names):
        try:
            arrays.append(pa.Array.from_pandas(X.iloc[:, place]))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise DataError(
                f"X: column {column!r} cannot be read ({one_line(error)}): give it values of one type, as"
                " .astype(str) does"
            ) from error
    return pa.table(arrays, names=names)
