"""Parquet to HDF5: numeric columns become X, one column becomes the labels; pyarrow is imported late."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.data.converters.limits import require_short, require_width
from mllkm_scale.data.converters.options import ConvertOptions, Progress
from mllkm_scale.data.converters.writer import ArrayWriter
from mllkm_scale.data.grid import default_chunk_rows
from mllkm_scale.data.sources import one_line
from mllkm_scale.errors import DataError, MLLKMError, ParameterError

__all__ = ["convert_parquet"]

# pandas stores its index as a column of this name, after all others.
PANDAS_INDEX = re.compile(r"__index_level_\d+__")


def convert_parquet(source: Path, writer: ArrayWriter, options: ConvertOptions, progress: Progress) -> None:
    """Write the columns of a Parquet file as X, and the label column as y."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ParameterError(
            f'{source} needs pyarrow to be read: install it with pip install "mllkm-scale[parquet]"'
        ) from None
    try:
        with parquet.ParquetFile(source) as file:
            _copy(file, source, writer, options, progress)
    except MLLKMError:
        raise
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{source} cannot be read as Parquet ({one_line(error)}): copy or write it again") from error


def _copy(file: Any, source: Path, writer: ArrayWriter, options: ConvertOptions, progress: Progress) -> None:
    fields = [field for field in file.schema_arrow if not PANDAS_INDEX.fullmatch(field.name)]
    names = [field.name for field in fields]
    if len(set(names)) < len(names):
        raise DataError(f"{source} has two columns of one name: rename one")
    label = _label_name(source, options.label_column, names)
    features = [field for field in fields if field.name != label]
    if not features:
        raise DataError(f"{source} has no columns of features: give at least one besides the label")
    require_width(len(features), str(source))
    dtype = np.result_type(*(_feature_dtype(field, source) for field in features))
    n_rows = file.metadata.num_rows
    writer.require_space(n_rows * len(features) * dtype.itemsize)
    done = 0
    for batch in file.iter_batches(batch_size=default_chunk_rows(len(features)), columns=names):
        block = np.empty((batch.num_rows, len(features)), dtype=dtype)
        for place, field in enumerate(features):
            block[:, place] = _column(batch, field.name, done, source)
        writer.append("X", block)
        if label is not None:
            writer.append_labels("y", _labels(_column(batch, label, done, source), label, source))
        done += batch.num_rows
        progress(done, n_rows)
    if done:
        writer.write_names([field.name for field in features])


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


def _feature_dtype(field: Any, source: Path) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = np.dtype(field.type.to_pandas_dtype())
    except (NotImplementedError, TypeError):  # what pyarrow raises for a type that NumPy does not have
        dtype = np.dtype(object)
    if dtype.kind not in "fiub":
        raise DataError(
            f"{source}: column {field.name!r} has type {field.type}, not a number: encode it as a number,"
            " drop it, or name it as the label column"
        )
    return dtype


def _column(batch: Any, name: str, first: int, source: Path) -> NDArray[Any]:
    column = batch.column(name)
    if column.null_count:
        row = first + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise DataError(f"{source}: column {name!r} is empty at row {row} (0-based): fill it or remove the row")
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values


def _labels(values: NDArray[Any], label: str, source: Path) -> NDArray[Any]:
    if values.dtype.kind in "fiub":
        return values
    texts = values.tolist()
    if not all(isinstance(text, str) for text in texts):
        raise DataError(f"{source}: the label column {label!r} holds neither numbers nor text: encode it as one")
    long = require_short(texts)
    if long is not None:
        raise DataError(
            f"{source}: the label column {label!r} has a text of {len(texts[long]):,} characters: give the classes"
            " short names"
        )
    return np.array(texts, dtype=np.str_)
