"""CSV and TSV to HDF5: one record per line, columns of any kind, and a label column that may be text.

The kind of a column is detected while it is written; if a later cell shows another kind, the pass starts again. Labels
are int64 until a block shows that they are not. Then the pass starts again with float64, or with text, so that equal
labels are stored equally.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.location import Location
from mllkm_scale.data.converters.options import ConvertOptions
from mllkm_scale.data.converters.writer import HDF5Writer
from mllkm_scale.data.readers.csv import read_block
from mllkm_scale.data.readers.layout import LARGEST_EXACT, CSVLayout, is_blank, read_layout
from mllkm_scale.data.readers.limits import require_short
from mllkm_scale.data.readers.options import Progress
from mllkm_scale.data.readers.records import csv_records
from mllkm_scale.data.tables.coding import KnownCoder, Recode, TableCoder
from mllkm_scale.data.weights import SAMPLE_WEIGHT
from mllkm_scale.errors import DataError

__all__ = ["coder_of", "convert_csv", "convert_tsv"]


class _OtherLabels(Exception):
    """The labels are not of the kind with which the pass began."""

    def __init__(self, kind: str) -> None:
        self.kind = kind


def convert_csv(source: Path, writer: HDF5Writer, options: ConvertOptions, progress: Progress) -> None:
    """Write the columns of a CSV file as X, and the label column as y."""
    _convert(source, writer, options, progress, None)


def convert_tsv(source: Path, writer: HDF5Writer, options: ConvertOptions, progress: Progress) -> None:
    """Write the columns of a file separated by tabs as X, and the label column as y."""
    _convert(source, writer, options, progress, "\t")


def _convert(
    source: Path, writer: HDF5Writer, options: ConvertOptions, progress: Progress, delimiter: str | None
) -> None:
    layout = read_layout(source, options, delimiter)
    if options.known is not None:
        layout = layout.taking(options.known.pick(layout.feature_names))
    names = layout.feature_names or [""] * len(layout.features)
    coder = coder_of(names, source, options, layout.features)
    kind = "int64"
    while True:
        try:
            for lines in csv_records(source, progress):
                _write_block(writer, layout, lines, kind, coder)
            break
        except Recode:
            pass
        except _OtherLabels as found:
            kind = found.kind
        coder.restart()
        writer.restart()
    if layout.names is not None:
        writer.write_names(names)
    columns = coder.columns()
    if not coder.is_plain:
        writer.write_columns(columns)


def coder_of(
    names: Sequence[str], source: Location, options: ConvertOptions, positions: Sequence[int], *, typed: bool = False
) -> TableCoder | KnownCoder:
    """The coder of the rows of a table, with known columns, or with columns that are detected while reading."""
    if options.known is None:
        return TableCoder(names, str(source), options.categories, options.as_number, positions, typed)
    if len(names) != len(options.known.columns):
        raise DataError(
            f"{source} has {len(names)} features per row instead of {len(options.known.columns)}: give the same"
            " features in the same order, and name the column of the labels"
        )
    return KnownCoder(options.known.columns, options.known.plain)


def _write_block(
    writer: HDF5Writer, layout: CSVLayout, lines: list[tuple[int, str]], kind: str, coder: TableCoder | KnownCoder
) -> None:
    numbered = [(number, line) for number, line in lines if number >= layout.first_line and not is_blank(line)]
    if not numbered:
        return
    numbers, kept = [number for number, _ in numbered], [line for _, line in numbered]
    block = read_block(layout, numbers, kept)
    writer.append("X", coder.code(block.features, block.place))
    if layout.label is not None:
        writer.append_labels("y", _labels(layout, numbers, block.labels(), kind))
    if layout.weight is not None:
        writer.append(SAMPLE_WEIGHT, block.weights())


def _labels(layout: CSVLayout, numbers: Sequence[int], texts: list[str], kind: str) -> NDArray[Any]:
    assert layout.label is not None
    for number, text in zip(numbers, texts, strict=True):
        if not text:
            raise DataError(f"{layout.place(number, layout.label)}, the label, is empty: label it or remove the line")
    long = require_short(texts)
    if long is not None:
        place = layout.place(numbers[long], layout.label)
        raise DataError(f"{place}, the label, has {len(texts[long]):,} characters: give the classes short names")
    if kind == "text":
        return np.array(texts, dtype=np.str_)
    try:
        values = np.array([float(text) for text in texts])
    except ValueError:
        raise _OtherLabels("text") from None
    unknown = np.flatnonzero(~np.isfinite(values))
    if len(unknown):
        place = layout.place(numbers[unknown[0]], layout.label)
        raise DataError(f"{place}, the label, is {texts[unknown[0]]!r}: label it or remove the line")
    if np.abs(values).max() >= LARGEST_EXACT or any("_" in text for text in texts):
        raise _OtherLabels("text")
    if kind == "int64":
        if (values != np.floor(values)).any():
            raise _OtherLabels("float64")
        return values.astype(np.int64)
    return values
