"""Parquet files as blocks of columns: for conversion and prediction alike."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mllkm_scale.data.converters.options import ConvertOptions, Pick, all_columns
from mllkm_scale.data.grid import default_chunk_rows
from mllkm_scale.data.sources import one_line
from mllkm_scale.data.tables.coding import Place
from mllkm_scale.errors import DataError, MLLKMError

__all__ = ["ParquetBlock", "ParquetTable", "open_parquet"]

# pandas stores its index as a column of this name, after all others.
PANDAS_INDEX = re.compile(r"__index_level_\d+__")


@dataclass(frozen=True)
class ParquetBlock:
    """Some rows: Arrow arrays of the features and of the label, and the number of the first row."""

    first: int
    n_rows: int
    features: list[Any]
    label: Any
    place: Place


@dataclass(frozen=True)
class ParquetTable:
    """An open Parquet file: names of its features and of its label, and its rows."""

    source: Path
    names: list[str]
    positions: list[int]
    label: str | None
    n_rows: int
    types: list[Any]
    _file: Any

    def blocks(self) -> Iterator[ParquetBlock]:
        """All rows, in order, some at a time."""
        names = self.names + ([] if self.label is None else [self.label])
        done = 0
        for batch in self._file.iter_batches(batch_size=default_chunk_rows(len(self.names)), columns=names):
            yield ParquetBlock(
                first=done,
                n_rows=batch.num_rows,
                features=[batch.column(name) for name in self.names],
                label=None if self.label is None else batch.column(self.label),
                place=partial(self._place, done),
            )
            done += batch.num_rows

    def _place(self, first: int, row: int, j: int) -> str:
        return f"{self.source}: row {first + row} (0-based), column {self.names[j]!r}"


@contextmanager
def open_parquet(source: Path, options: ConvertOptions, pick: Pick = all_columns) -> Iterator[ParquetTable]:
    """Open a Parquet file; what cannot be read is a DataError, also while its blocks are read.

    `pick` is given the names of the columns that are not the label. It returns the positions of those that are taken,
    or None for all of them; other columns are not read, whatever they hold.
    """
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(source) as file:
            yield _table(file, source, options, pick)
    except MLLKMError:
        raise
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{source} cannot be read as Parquet ({one_line(error)}): copy or write it again") from error


def _table(file: Any, source: Path, options: ConvertOptions, pick: Pick) -> ParquetTable:
    fields = [field for field in file.schema_arrow if not PANDAS_INDEX.fullmatch(field.name)]
    names = [field.name for field in fields]
    if len(set(names)) < len(names):
        raise DataError(f"{source} has two columns of one name: rename one")
    label = _label_name(source, options.label_column, names)
    features = [(place, field) for place, field in enumerate(fields) if field.name != label]
    if not features:
        raise DataError(f"{source} has no columns of features: give at least one besides the label")
    picked = pick([field.name for _, field in features])
    if picked is not None:
        features = [features[position] for position in picked]
    from mllkm_scale.data.tables.frames import is_known_type

    for _, field in features:
        if not is_known_type(field.type):
            raise DataError(
                f"{source}: column {field.name!r} has type {field.type}, which is no number, text, boolean or date:"
                " drop it, or store it as one of these"
            )
    return ParquetTable(
        source=source,
        names=[field.name for _, field in features],
        positions=[place for place, _ in features],
        label=label,
        n_rows=file.metadata.num_rows,
        types=[field.type for _, field in features],
        _file=file,
    )


def _label_name(source: Path, label: str | int | None, names: list[str]) -> str | None:
    if label is None:
        return None
    if isinstance(label, str):
        if label not in names:
            raise DataError(f"{source} has no column {label!r}: it has {', '.join(names[:20])}; name the label")
        return label
    if not -len(names) <= label < len(names):
        raise DataError(f"{source}: there is no column {label} among {len(names)}: count from 0, or -1 for the last")
    return names[label]
