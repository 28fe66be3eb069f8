"""Parquet to HDF5: one column becomes the labels, and all others become X."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.location import Location
from mllkm_scale.data.converters.csv_text import coder_of
from mllkm_scale.data.converters.options import ConvertOptions
from mllkm_scale.data.converters.writer import HDF5Writer
from mllkm_scale.data.readers.limits import MOST_COLUMNS, require_width
from mllkm_scale.data.readers.options import Progress, all_columns
from mllkm_scale.data.readers.parquet import ParquetBlock, ParquetTable, open_parquet, parquet_labels, plain_dtype
from mllkm_scale.data.tables.coding import KnownCoder, Recode, TableCoder
from mllkm_scale.data.weights import SAMPLE_WEIGHT, require_weights
from mllkm_scale.errors import DataError

__all__ = ["convert_parquet"]


def convert_parquet(source: Location, writer: HDF5Writer, options: ConvertOptions, progress: Progress) -> None:
    """Write the columns of a Parquet file as X, and the label column as y."""
    table = open_parquet(source, options, all_columns if options.known is None else options.known.pick)
    require_width(len(table.names), str(source), MOST_COLUMNS)
    dtype = plain_dtype(table) if options.known is None else np.dtype(np.float64)
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
    """There are missing values, which the type of the pass cannot represent."""


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
        writer.append_labels("y", parquet_labels(block.label, table.label, block.first, table.source))
    if table.weight is not None:
        writer.append(SAMPLE_WEIGHT, _weights(table, block))


def _weights(table: ParquetTable, block: ParquetBlock) -> NDArray[Any]:
    def place(row: int) -> str:
        return f"{table.source}: row {block.first + row} (0-based), column {table.weight!r}"

    values: NDArray[Any] = block.weight.to_numpy(zero_copy_only=False)  # missing ones are NaN
    if values.dtype.kind not in "fiub":
        raise DataError(f"{place(0)}, the weight, has type {block.weight.type}: weights are finite numbers from 0")
    return require_weights(values.astype(np.float64), place)
