"""NPZ to HDF5: every array keeps its name, and is streamed out of the archive block by block.

The header of a member is read in the format of NumPy, and its data in reads of a fixed size. An array in Fortran order
cannot be streamed by rows, and is read as a whole.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.data.converters.npy import append_array, block_rows
from mllkm_scale.data.converters.options import ConvertOptions
from mllkm_scale.data.converters.writer import ArrayWriter
from mllkm_scale.data.readers.options import Progress
from mllkm_scale.data.readers.streams import read_exactly
from mllkm_scale.data.sources import one_line, require_plain_dtype
from mllkm_scale.errors import DataError, MLLKMError, ParameterError

__all__ = ["convert_npz"]


@dataclass(frozen=True)
class _Header:
    """Shape, order and type of a member, and its name for messages."""

    called: str
    shape: tuple[int, ...]
    by_columns: bool
    dtype: np.dtype[Any]

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def convert_npz(source: Path, writer: ArrayWriter, options: ConvertOptions, progress: Progress) -> None:
    """Write all arrays by name; those named by the options become X and y."""
    try:
        with zipfile.ZipFile(source) as archive:
            names = _output_names(source, archive, options)
            total_bytes = sum(member.file_size for member in archive.infolist())
            writer.require_space(total_bytes)
            done_bytes = 0
            for member, name in sorted(names.items(), key=lambda named: named[1] != "y"):  # labels first, see hold_out
                with archive.open(member) as stream:
                    header = _read_header(stream, f"{source}:{member.removesuffix('.npy')}")
                    for block in _blocks(stream, header):
                        if block.ndim == 0:
                            writer.write_scalar(name, block)
                        else:
                            append_array(writer, name, block, header.called)
                        done_bytes += block.nbytes
                        progress(min(done_bytes, total_bytes), total_bytes)
    except (MLLKMError, MemoryError):
        raise
    except Exception as error:  # The remedy is the same for any error of zipfile, zlib or numpy.
        raise DataError(
            f"{source} cannot be read as NPZ ({one_line(error)}): copy it again, or save it with numpy.savez"
        ) from error


def _output_names(source: Path, archive: zipfile.ZipFile, options: ConvertOptions) -> dict[str, str]:
    """Name in the HDF5 file of each member of the archive."""
    members = [member.filename for member in archive.infolist()]
    names = {}
    for member in members:
        name = member.removesuffix(".npy")
        if name == member or not all(part.strip(".") for part in name.split("/")):
            raise DataError(f"{source} holds {member!r}, which is no array: save it again with numpy.savez")
        names[member] = name
    for wanted, output in ((options.x, "X"), (options.y, "y")):
        if wanted is None:
            continue
        if f"{wanted}.npy" not in names:
            raise ParameterError(f"{source} has no array {str(wanted)!r}: it has {', '.join(names.values())}")
        names[f"{wanted}.npy"] = output
    if len(set(names.values())) < len(members):
        raise DataError(f"{source} holds two arrays of one name ({', '.join(names.values())}): rename one")
    return names


def _read_header(stream: IO[bytes], called: str) -> _Header:
    version = np.lib.format.read_magic(stream)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise DataError(f"{called} has NPY version {version}: save a plain array of numbers or text with numpy.savez")
    shape, by_columns, dtype = readers[version](stream)
    if dtype.hasobject:
        raise DataError(f"{called} holds Python objects (pickle), which are never loaded: save numbers or text")
    require_plain_dtype(dtype, called)
    if any(size < 0 for size in shape):
        raise DataError(f"{called} has shape {shape}: save it again with numpy.savez")
    return _Header(called, shape, by_columns, dtype)


def _blocks(stream: IO[bytes], header: _Header) -> Iterator[NDArray[Any]]:
    shape, dtype = header.shape, header.dtype
    if not header.size_bytes:
        yield np.zeros(shape, dtype)
    elif not shape or (header.by_columns and len(shape) > 1):
        values = np.frombuffer(read_exactly(stream, header.size_bytes, header.called), dtype=dtype)
        yield values.reshape(shape, order="F" if header.by_columns else "C")
    else:
        step = block_rows(shape, dtype)
        for start in range(0, shape[0], step):
            rows = min(step, shape[0] - start)
            part = read_exactly(stream, header.size_bytes // shape[0] * rows, header.called)
            yield np.frombuffer(part, dtype=dtype).reshape(rows, *shape[1:])
    if stream.read(1):
        raise DataError(f"{header.called} is longer than its header says: the file is damaged; copy it again")
