"""IDX to HDF5, the format of MNIST, plain or gzip: images become rows, and labels are in a second file.

A file is two zero bytes, a byte for the type, a byte for the number of axes, each axis as a big-endian 32-bit
integer, and the values in big-endian order.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.data.converters.npy import append_array, block_rows
from mllkm_scale.data.converters.options import ConvertOptions
from mllkm_scale.data.converters.writer import ArrayWriter
from mllkm_scale.data.readers.limits import require_width
from mllkm_scale.data.readers.options import Progress, silent
from mllkm_scale.data.readers.streams import open_stream, read_exactly
from mllkm_scale.errors import DataError

__all__ = ["convert_idx"]

MOST_AXES = 32
TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def convert_idx(source: Path, writer: ArrayWriter, options: ConvertOptions, progress: Progress) -> None:
    """Write images as rows of X, and the labels of a second file as y."""
    if options.y is not None:
        _copy(Path(options.y), writer, "y", range(1, 2), silent)
    _copy(source, writer, "X", range(2, 256), progress)


def _copy(path: Path, writer: ArrayWriter, name: str, axes: range, progress: Progress) -> None:
    with open_stream(path) as (_, stream):
        shape, dtype = _read_header(stream, path)
        if len(shape) not in axes:
            what = "labels have one axis" if name == "y" else "samples have at least two axes"
            raise DataError(f"{path} has shape {shape}, but {what}: were the two files exchanged?")
        if len(shape) > MOST_AXES:
            raise DataError(f"{path} has {len(shape)} axes, more than {MOST_AXES}: save it with fewer")
        if 0 in shape[1:]:
            raise DataError(f"{path} has rows of no columns: give at least one feature")
        require_width(math.prod(shape[1:]), str(path))
        writer.require_space(math.prod(shape) * dtype.itemsize)
        done = 0
        for block in _blocks(stream, shape, dtype, path):
            append_array(writer, name, block, str(path))
            done += len(block)
            progress(done, shape[0])


def _read_header(stream: IO[bytes], path: Path) -> tuple[tuple[int, ...], np.dtype[Any]]:
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in TYPES or magic[3] == 0:
        raise DataError(f"{path} is not an IDX file (it begins with {magic.hex() or 'nothing'}): name its format")
    axes = stream.read(4 * magic[3])
    if len(axes) < 4 * magic[3]:
        raise DataError(f"{path} is cut short in its header: copy it again")
    return struct.unpack(f">{magic[3]}I", axes), np.dtype(TYPES[magic[2]])


def _blocks(stream: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any], path: Path) -> Iterator[NDArray[Any]]:
    row_bytes = math.prod(shape[1:]) * dtype.itemsize
    step = block_rows(shape, dtype)
    for start in range(0, shape[0], step):
        rows = min(step, shape[0] - start)
        part = read_exactly(stream, rows * row_bytes, str(path))
        yield np.frombuffer(part, dtype=dtype).reshape(rows, *shape[1:])
    if stream.read(1):
        raise DataError(f"{path} is longer than its header says: the file is damaged; copy it again")
