"""Names in NPZ and Parquet files that are to be predicted, and the columns of Parquet that a model takes."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.data.converters.options import Progress
from mllkm_scale.data.converters.parquet import PANDAS_INDEX
from mllkm_scale.data.dataset import FEATURE_NAMES
from mllkm_scale.data.grid import default_chunk_rows
from mllkm_scale.data.sources import one_line
from mllkm_scale.errors import DataError, MLLKMError, ParameterError
from mllkm_scale.model.names import Columns, Features

__all__ = ["named_parquet_rows", "npz_names"]

_MOST_NAME_BYTES = 2**26


def npz_names(path: Path, x: str) -> list[str] | None:
    """The text of the array feature_names beside x; None if there is none that can be read."""
    group = x.rpartition("/")[0]
    member = f"{group}/{FEATURE_NAMES}" if group else FEATURE_NAMES
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo(f"{member}.npy").file_size > _MOST_NAME_BYTES:
                return None
        with np.load(path, allow_pickle=False) as arrays:
            names = arrays[member]
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
        return None  # what is damaged is told of when the rows are read
    return names.tolist() if names.ndim == 1 and names.dtype.kind == "U" else None


def named_parquet_rows(
    path: Path,
    features: Features,
    label_column: str | int | None,
    take: Callable[[NDArray[Any], int], object],
    progress: Progress,
    matched: Callable[[Columns], object],
) -> None:
    """Hand on the columns of the features, in their order, with the number of the first row of each block.

    Other columns are not read, whatever they hold; a label column is among them in any case.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ParameterError(
            f'{path} needs pyarrow to be read: install it with pip install "mllkm-scale[parquet]"'
        ) from None
    try:
        with parquet.ParquetFile(path) as file:
            _hand_on(file, path, features, label_column, take, progress, matched)
    except MLLKMError:
        raise
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as Parquet ({one_line(error)}): copy or write it again") from error


def _hand_on(
    file: Any,
    path: Path,
    features: Features,
    label_column: str | int | None,
    take: Callable[[NDArray[Any], int], object],
    progress: Progress,
    matched: Callable[[Columns], object],
) -> None:
    found = [name for name in file.schema_arrow.names if not PANDAS_INDEX.fullmatch(name)]
    label: str | int | None = label_column
    if isinstance(label, int) and -len(found) <= label < len(found):
        label = found[label]
    if label is not None and label not in found:
        raise DataError(f"{path} has no column {label!r}: it has {', '.join(found[:20])}; name the label")
    columns = features.match([name for name in found if name != label], str(path))
    assert columns is not None  # both sides have names
    matched(columns)
    names, n_rows, done = list(features.names or ()), file.metadata.num_rows, 0
    if not n_rows:
        raise DataError(f"{path} holds no rows: give at least one")
    for batch in file.iter_batches(batch_size=default_chunk_rows(len(names)), columns=names):
        take(np.stack([_numbers(batch.column(name), name, done, path) for name in names], axis=1), done)
        done += batch.num_rows
        progress(done, n_rows)


def _numbers(column: Any, name: str, first: int, path: Path) -> NDArray[Any]:
    if column.null_count:
        row = first + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise DataError(f"{path}: column {name!r} is empty at row {row} (0-based): fill it or remove the row")
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind not in "fiub":
        raise DataError(f"{path}: column {name!r} has type {column.type}, not a number: encode it as in the training")
    return values
