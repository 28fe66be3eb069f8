"""Parquet files, and folders of them, as blocks of columns, for conversion, training and prediction.

A small file may hold a long text once, and refer to it in every row. So texts are read as codes with a dictionary, and
are expanded for some rows at a time, after their lengths are checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.location import URL, Location
from mllkm_scale.data.grid import default_chunk_rows
from mllkm_scale.data.readers.limits import require_short
from mllkm_scale.data.readers.options import Pick, ReadOptions, all_columns
from mllkm_scale.data.sources import one_line
from mllkm_scale.data.tables.coding import Place
from mllkm_scale.data.tables.columns import MAX_LEVEL_LENGTH
from mllkm_scale.errors import DataError, MLLKMError

__all__ = ["ParquetBlock", "ParquetTable", "RowGroup", "open_parquet", "opened", "parquet_labels", "plain_dtype"]

MOST_TEXT_BYTES = 4 * MAX_LEVEL_LENGTH
"""Longest text in bytes of a label or a category."""

WRITTEN_OUT_BYTES = 16 << 20  # of the expanded texts of some rows
_NUMBER_BYTES = 17  # of a number or a time with its levels, at most
# pandas stores its index as a column of this name, after all others.
PANDAS_INDEX = re.compile(r"__index_level_\d+__")


@dataclass(frozen=True)
class ParquetBlock:
    """Some rows: Arrow arrays of the features, the label and the weights, and the number of the first row."""

    first: int
    n_rows: int
    features: list[Any]
    label: Any
    place: Place
    weight: Any = None


@dataclass(frozen=True)
class RowGroup:
    """A row group: the path of its file, its number, and its decompressed size.

    `column_bytes` are the decompressed sizes of the columns, known only for groups with unusually large rows.
    """

    path: str
    number: int
    n_rows: int
    size_bytes: int
    column_bytes: Mapping[str, int]


@dataclass(frozen=True)
class ParquetTable:
    """Parquet files with the same columns: names of their features and of their label, and their rows."""

    source: Location
    names: list[str]
    positions: list[int]
    label: str | None
    n_rows: int
    types: list[Any]
    groups: list[RowGroup]
    weight: str | None = None

    def blocks(self) -> Iterator[ParquetBlock]:
        """All rows, in order, some at a time."""
        names = self.names + [name for name in (self.label, self.weight) if name is not None]
        done = 0
        for path in dict.fromkeys(group.path for group in self.groups):
            with opened(self.source, path) as file:
                for batch in file.iter_batches(batch_size=default_chunk_rows(len(self.names)), columns=names):
                    for columns in self.written_out(batch.schema.names, batch.columns):
                        of = dict(zip(batch.schema.names, columns, strict=True))
                        yield ParquetBlock(
                            first=done,
                            n_rows=len(columns[0]),
                            features=[of[name] for name in self.names],
                            label=None if self.label is None else of[self.label],
                            place=partial(self.place, done),
                            weight=None if self.weight is None else of[self.weight],
                        )
                        done += len(columns[0])

    def written_out(self, names: Sequence[str], columns: Sequence[Any]) -> Iterator[list[Any]]:
        """Columns without dictionaries, some rows at a time; texts that are too long are refused."""
        import pyarrow as pa
        import pyarrow.compute as pc

        row_bytes = 1
        for name, column in zip(names, columns, strict=True):
            if pa.types.is_dictionary(column.type) and _has_bytes(column.type.value_type):
                longest = pc.max(pc.binary_length(column.dictionary)).as_py() or 0
                if longest > MOST_TEXT_BYTES:
                    raise _too_long(self.source, name)
                row_bytes += longest
        step = max(1, WRITTEN_OUT_BYTES // row_bytes)
        for start in range(0, max(1, len(columns[0])), step):
            parts = [column.slice(start, step) for column in columns]
            yield [part.dictionary_decode() if pa.types.is_dictionary(part.type) else part for part in parts]

    def place(self, first: int, row: int, j: int) -> str:
        """The name of a cell for messages, in a block that begins with row `first`."""
        return f"{self.source}: row {first + row} (0-based), column {self.names[j]!r}"


def open_parquet(source: Location, options: ReadOptions, pick: Pick = all_columns) -> ParquetTable:
    """Open a Parquet file, or all files of a folder in the natural order of their names.

    `pick` is given the names of the columns that are not the label. It returns the positions of the columns to read, or
    None for all of them; other columns are not read.
    """
    groups: list[RowGroup] = []
    first: Any = None
    for path in _files(source):
        with opened(source, path) as file:
            schema, metadata = file.schema_arrow.remove_metadata(), file.metadata
            if first is not None and not schema.equals(first):
                raise DataError(f"{source}: {path} has other columns, or of other types, than the first of its files")
            first = schema
            for number in range(metadata.num_row_groups):
                group = metadata.row_group(number)
                groups.append(
                    RowGroup(path, number, group.num_rows, group.total_byte_size, _column_bytes(group, schema))
                )
    return _table(first, groups, source, options, pick)


def _column_bytes(group: Any, schema: Any) -> dict[str, int]:
    """The sizes of the columns of a row group that is larger than numbers and texts within the limit can make it.

    Other groups are not asked: on damaged metadata of a column, pyarrow ends the process instead of raising an error.
    """
    usual = sum(MOST_TEXT_BYTES + 4 if _holds_text(field.type) else _NUMBER_BYTES for field in schema)
    if group.total_byte_size <= group.num_rows * usual + WRITTEN_OUT_BYTES:
        return {}
    columns = (group.column(place) for place in range(group.num_columns))
    return {column.path_in_schema: column.total_uncompressed_size for column in columns}


@contextmanager
def opened(source: Location, path: str) -> Iterator[Any]:
    """Open a file of a source, with texts as codes; errors become a DataError, also within the block."""
    import pyarrow
    from pyarrow import parquet

    def reader(file: Any) -> Any:
        found = parquet.ParquetFile(file)
        texts = [field.name for field in found.schema_arrow if _has_bytes(field.type)]
        return parquet.ParquetFile(file, metadata=found.metadata, read_dictionary=texts) if texts else found

    try:
        if isinstance(source, URL):
            with (
                source.opening() as (system, _),
                system.open(path, "rb") as stream,
                reader(stream) as file,
            ):
                yield file
        else:
            with open(path, "rb") as stream, reader(stream) as file:
                yield file
    except MLLKMError:
        raise
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{source} cannot be read as Parquet ({one_line(error)}): copy or write it again") from error


def _files(source: Location) -> list[str]:
    """The paths of the files of a source."""
    if isinstance(source, URL):
        with source.opening() as (system, path):
            found = system.find(path) if system.isdir(path) else [path]
    else:
        found = [str(path) for path in source.rglob("*")] if source.is_dir() else [str(source)]
    if len(found) == 1 and found[0].rstrip("/").endswith(source.name):
        return found
    files = [path for path in found if path.endswith((".parquet", ".pq"))]
    if not files:
        raise DataError(f"{source} has no Parquet files: name a file, or a folder of such")
    return sorted(files, key=lambda path: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path)])


def _table(schema: Any, groups: list[RowGroup], source: Location, options: ReadOptions, pick: Pick) -> ParquetTable:
    fields = [field for field in schema if not PANDAS_INDEX.fullmatch(field.name)]
    names = [field.name for field in fields]
    if len(set(names)) < len(names):
        raise DataError(f"{source} has two columns of one name: rename one")
    label = _column_name(source, options.label_column, names, "label")
    weight = _column_name(source, options.sample_weight, names, "weight")
    if weight is not None and weight == label:
        raise DataError(f"{source}: the column of the weights is that of the labels: name the label column, too")
    features = [(place, field) for place, field in enumerate(fields) if field.name not in (label, weight)]
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
    read = [field.name for _, field in features] + [name for name in (label, weight) if name is not None]
    texts = [name for name in read if _holds_text(schema.field(name).type)]
    for group in groups:
        for name in texts:  # if the mean exceeds the limit, so does some text
            if group.column_bytes.get(name, 0) > group.n_rows * (MOST_TEXT_BYTES + 4) + WRITTEN_OUT_BYTES:
                raise _too_long(source, name)
    return ParquetTable(
        source=source,
        names=[field.name for _, field in features],
        positions=[place for place, _ in features],
        label=label,
        n_rows=sum(group.n_rows for group in groups),
        types=[field.type for _, field in features],
        groups=groups,
        weight=weight,
    )


def _has_bytes(kind: Any) -> bool:
    """Whether values are texts or bytes, of any length."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind))


def _holds_text(kind: Any) -> bool:
    import pyarrow as pa

    return _has_bytes(kind.value_type if pa.types.is_dictionary(kind) else kind)


def _too_long(source: Location, name: str) -> DataError:
    return DataError(
        f"{source}: column {name!r} has a text of more than {MAX_LEVEL_LENGTH:,} characters, too long for a label or a"
        " category: remove the column, or shorten its texts"
    )


def _column_name(source: Location, column: str | int | None, names: list[str], what: str) -> str | None:
    """The name of the column of the label or of the weight."""
    if column is None:
        return None
    if isinstance(column, str):
        if column not in names:
            raise DataError(f"{source} has no column {column!r}: it has {', '.join(names[:20])}; name the {what}")
        return column
    if not -len(names) <= column < len(names):
        raise DataError(f"{source}: there is no column {column} among {len(names)}: count from 0, or -1 for the last")
    return names[column]


def plain_dtype(table: ParquetTable) -> np.dtype[Any]:
    """The narrowest type for all columns, if they are numbers; float64 for tables."""
    types = []
    for kind in table.types:
        try:
            types.append(np.dtype(kind.to_pandas_dtype()))
        except (NotImplementedError, TypeError):  # what pyarrow raises for a type that NumPy does not have
            types.append(np.dtype(object))
    plain = all(dtype.kind in "fiu" for dtype in types)
    return np.result_type(*types) if plain else np.dtype(np.float64)


def parquet_labels(column: Any, name: str, first: int, source: Location) -> NDArray[Any]:
    """The labels of some rows; `first` is the number of the first row."""
    import pyarrow

    if column.null_count:
        row = first + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise DataError(f"{source}: column {name!r} is empty at row {row} (0-based): fill it or remove the row")
    try:
        values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    except pyarrow.ArrowException as error:  # bytes that are no UTF-8
        raise DataError(f"{source}: the label column {name!r} has a text that is not UTF-8: write it again") from error
    if values.dtype.kind in "fiub":
        return values
    texts = values.tolist()
    if not all(isinstance(text, str) for text in texts):
        raise DataError(f"{source}: the label column {name!r} holds neither numbers nor text: encode it as one")
    long = require_short(texts)
    if long is not None:
        raise DataError(
            f"{source}: the label column {name!r} has a text of {len(texts[long]):,} characters: give the"
            " classes short names"
        )
    return np.array(texts, dtype=np.str_)
