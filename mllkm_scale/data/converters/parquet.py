"""Parquet to HDF5: one column becomes the labels, and the others X, whatever they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.data.converters.csv_text import coder_of
from mllkm_scale.data.converters.limits import MOST_COLUMNS, require_short, require_width
from mllkm_scale.data.converters.options import ConvertOptions, Progress, all_columns
from mllkm_scale.data.converters.writer import HDF5Writer
from mllkm_scale.data.readers.parquet import ParquetBlock, ParquetTable, open_parquet
from mllkm_scale.data.tables.coding import KnownCoder, Recode, TableCoder
from mllkm_scale.errors import DataError

__all__ = ["convert_parquet"]


def convert_parquet(source: Path, writer: HDF5Writer, options: ConvertOptions, progress: Progress) -> None:
    """Write the columns of a Parquet file as X, and the label column as y."""
    with open_parquet(source, options, all_columns if options.known is None else options.known.pick) as table:
        require_width(len(table.names), str(source), MOST_COLUMNS)
        dtype = _dtype(table) if options.known is None else np.dtype(np.float64)
        writer.require_space(table.n_rows * len(table.names) * dtype.itemsize)
        coder = coder_of(table.names, source, options, table.positions, typed=True)
        while True:
            try:
                for block in table.blocks():
                    _write_block(writer, table, block, coder, dtype)
                    progress(block.first + block.n_rows, table.n_rows)
                break
            except Recode:
                coder.restart()
                writer.restart()
            except _Missing:
                dtype = np.dtype(np.float64)
                coder.restart()
                writer.restart()
        columns = coder.columns()
        if table.n_rows:
            writer.write_names(table.names)
        if not coder.is_plain:
            writer.write_columns(columns)


class _Missing(Exception):
    """Values are missing, which the type of the pass cannot hold."""


def _dtype(table: ParquetTable) -> np.dtype[Any]:
    """The narrowest type that holds all columns, if they are numbers; float64 for tables."""
    types = []
    for kind in table.types:
        try:
            types.append(np.dtype(kind.to_pandas_dtype()))
        except (NotImplementedError, TypeError):  # what pyarrow raises for a type that NumPy does not have
            types.append(np.dtype(object))
    plain = all(dtype.kind in "fiu" for dtype in types)
    return np.result_type(*types) if plain else np.dtype(np.float64)


def _write_block(
    writer: HDF5Writer, table: ParquetTable, block: ParquetBlock, coder: TableCoder | KnownCoder, dtype: np.dtype[Any]
) -> None:
    rows = coder.code(block.features, block.place)
    if dtype.kind != "f" and not coder.is_plain:
        raise _Missing
    if dtype.kind != "f":  # whole numbers keep all their digits
        rows = np.stack([column.to_numpy(zero_copy_only=False) for column in block.features], axis=1)
    writer.append("X", rows.astype(dtype, copy=False))
    if table.label is not None:
        writer.append_labels("y", _labels(table, block))


def _labels(table: ParquetTable, block: ParquetBlock) -> NDArray[Any]:
    assert table.label is not None
    column = block.label
    if column.null_count:
        row = block.first + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise DataError(
            f"{table.source}: column {table.label!r} is empty at row {row} (0-based): fill it or remove the row"
        )
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind in "fiub":
        return values
    texts = values.tolist()
    if not all(isinstance(text, str) for text in texts):
        raise DataError(
            f"{table.source}: the label column {table.label!r} holds neither numbers nor text: encode it as one"
        )
    long = require_short(texts)
    if long is not None:
        raise DataError(
            f"{table.source}: the label column {table.label!r} has a text of {len(texts[long]):,} characters: give the"
            " classes short names"
        )
    return np.array(texts, dtype=np.str_)
