"""NPY files, mapped and never unpickled; the header is checked against the size of the file. What damaged NPZ files
raise."""

from __future__ import annotations

import math
import os
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.files.regular import open_regular
from mllkm_scale.errors import MLLKMError

__all__ = ["ZIP_DAMAGE", "map_npy"]

ZIP_DAMAGE = (OSError, ValueError, KeyError, EOFError, RuntimeError, struct.error, zlib.error, zipfile.BadZipFile)
"""What zipfile and numpy raise when they read a damaged ZIP archive. NotImplementedError, for an unknown version or
compression, is a RuntimeError."""

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def map_npy(path: Path, error: type[MLLKMError]) -> NDArray[Any]:
    """The array of an NPY file, mapped without reading it.

    Raises
    ------
    error
        If it is not an NPY file or not a regular file, has Python objects, or a size that differs from its header.
    OSError
        If it cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> from mllkm_scale.errors import DataError
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/a.npy", np.arange(3))
    ...     map_npy(Path(folder, "a.npy"), DataError).tolist()
    [0, 1, 2]
    """
    with open_regular(path, error) as file:
        try:
            if file.read(4) == b"PK\x03\x04":
                raise error(f"{path} is an NPZ file, which holds several arrays: give an NPY file, or the format npz")
            file.seek(0)
            version = np.lib.format.read_magic(file)
            if version not in _HEADERS:
                raise ValueError(f"version {version} of the format is not known")
            shape, by_columns, dtype = _HEADERS[version](file)
            if dtype.hasobject:
                raise ValueError("it holds Python objects, which are never loaded")
            if any(size < 0 for size in shape) or len(shape) > 32:
                raise ValueError(f"its shape is {str(shape)[:100]}")
            said, there = math.prod(shape) * dtype.itemsize, os.fstat(file.fileno()).st_size - file.tell()
            if said != there:
                raise ValueError(f"its header says {said:.6g} bytes, and {there:,} follow")
        except MLLKMError:
            raise
        except Exception as failure:  # The header is a Python literal: invalid ones raise many kinds of errors.
            why = " ".join(str(failure).split()) or type(failure).__name__
            raise error(f"{path} cannot be read as NPY ({why}): save numbers or text with numpy.save") from None
        if not said:
            return np.zeros(shape, dtype)
        return np.memmap(file, dtype, "r", file.tell(), shape, "F" if by_columns else "C").view(np.ndarray)
