"""Parquet to HDF5: one column becomes the labels, and the others X, whatever they hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from mllkm_scale.base.location import Location
from mllkm_scale.data.converters.limits import MOST_COLUMNS, require_width
from mllkm_scale.data.converters.options import ConvertOptions, Progress
from mllkm_scale.data.converters.writer import HDF5Writer
from mllkm_scale.data.readers.parquet import ParquetBlock, ParquetTable, open_parquet, parquet_labels, plain_dtype
from mllkm_scale.data.tables.coding import Recode, TableCoder

__all__ = ["convert_parquet"]


def convert_parquet(source: Location, writer: HDF5Writer, options: ConvertOptions, progress: Progress) -> None:
    """Write the columns of a Parquet file as X, and the label column as y."""
    table = open_parquet(source, options)
    require_width(len(table.names), str(source), MOST_COLUMNS)
    dtype = plain_dtype(table)
    writer.require_space(table.n_rows * len(table.names) * dtype.itemsize)
    coder = TableCoder(table.names, str(source), options.categories, options.as_number, table.positions, typed=True)
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


def _write_block(
    writer: HDF5Writer, table: ParquetTable, block: ParquetBlock, coder: TableCoder, dtype: np.dtype[Any]
) -> None:
    rows = coder.code(block.features, block.place)
    if dtype.kind != "f" and not coder.is_plain:
        raise _Missing
    if dtype.kind != "f":  # whole numbers keep all their digits
        rows = np.stack([column.to_numpy(zero_copy_only=False) for column in block.features], axis=1)
    writer.append("X", rows.astype(dtype, copy=False))
    if table.label is not None:
        writer.append_labels("y", parquet_labels(block.label, table.label, block.first, table.source))
