"""NPY to HDF5: the file is mapped, not loaded; labels may be in a second file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.files.npy import map_npy
from mllkm_scale.data.converters.options import ConvertOptions
from mllkm_scale.data.converters.writer import ArrayWriter
from mllkm_scale.data.readers.limits import require_width
from mllkm_scale.data.readers.options import Progress
from mllkm_scale.data.readers.streams import BLOCK_BYTES
from mllkm_scale.data.sources import one_line, plain_text, require_plain_dtype
from mllkm_scale.errors import DataError

__all__ = ["append_array", "block_rows", "convert_npy"]


def convert_npy(source: Path, writer: ArrayWriter, options: ConvertOptions, progress: Progress) -> None:
    """Write an array as X, flattened to two axes, and the array of a second file as y."""
    X = _map(source)
    labels = None if options.y is None else _map(Path(options.y))
    if X.ndim < 2:
        raise DataError(f"{source} has shape {X.shape}: it must have two axes, one row per sample")
    if labels is not None and labels.ndim != 1 and labels.shape[1:] != (1,):
        raise DataError(f"{options.y} has shape {labels.shape}: labels must be one-dimensional, one per row")
    writer.require_space(X.nbytes)
    if labels is not None:
        append_array(writer, "y", labels.reshape(-1), str(options.y))
    step = block_rows(X.shape, X.dtype)
    for start in range(0, len(X), step):
        append_array(writer, "X", X[start : start + step], str(source))
        progress(min(start + step, len(X)), len(X))


def append_array(writer: ArrayWriter, name: str, block: NDArray[Any], source: str) -> None:
    """Add a block of an array: one axis as labels, more flattened to rows; numbers keep their type."""
    require_plain_dtype(block.dtype, source)
    block = plain_text(block, source)
    if block.ndim == 1:
        writer.append_labels(name, block)
        return
    if block.ndim > 2:
        block = block.reshape(len(block), math.prod(block.shape[1:]))
    require_width(block.shape[1], source)
    if block.dtype.kind != "U":
        # HDF5 has no portable type wider than float64.
        block = block.astype(np.float64 if block.dtype.itemsize > 8 else block.dtype.newbyteorder("="), copy=False)
    writer.append(name, block)


def block_rows(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Number of rows of about 4 MB."""
    row_bytes = dtype.itemsize * math.prod(shape[1:])
    return max(1, BLOCK_BYTES // max(1, row_bytes))


def _map(path: Path) -> NDArray[Any]:
    try:
        return map_npy(path, DataError)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({one_line(error)}): check the path") from error
