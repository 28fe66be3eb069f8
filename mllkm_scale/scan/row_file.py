"""Rows of a matrix in a file, written once and read in runs, each under a checksum.

The rows are read, not mapped: mapped pages count as memory of the process until the system releases them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.units import format_bytes
from mllkm_scale.errors import ScratchError

__all__ = ["RowFile", "new_file", "write_rows"]


@dataclass(frozen=True)
class RowFile:
    """A matrix in runs of `run_rows` rows, which any thread or process may read."""

    path: Path
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    run_rows: int
    checksums: Array  # crc32 of each run

    def read(self, i: int, out: Array) -> Array:
        """Read run `i` into an array of its shape."""
        raw = _bytes_of(out)
        try:
            with self.path.open("rb", buffering=0) as file:
                file.seek(i * self.run_rows * self.shape[1] * self.dtype.itemsize)
                done = 0
                while done < len(raw) and (got := file.readinto(raw[done:])):
                    done += got
        except OSError as error:
            raise ScratchError(f"{self.path} cannot be read ({error.strerror}): check the folder") from error
        if done < len(raw) or zlib.crc32(raw) != self.checksums[i]:
            raise ScratchError(f"{self.path} is damaged: check the disk of its folder, or choose another folder")
        return out

    @property
    def header(self) -> dict[str, Any]:
        """Everything except the checksums, in a form that JSON can hold."""
        return {
            "path": str(self.path),
            "shape": list(self.shape),
            "dtype": self.dtype.str,
            "run_rows": self.run_rows,
        }

    @classmethod
    def of(cls, header: Mapping[str, Any], checksums: Array) -> Self:
        n, d = header["shape"]
        return cls(Path(header["path"]), (n, d), np.dtype(header["dtype"]), header["run_rows"], checksums)


def _bytes_of(rows: Array) -> memoryview:
    return rows.reshape(-1).view(np.uint8).data


def new_file(folder: Path, stem: str) -> Path:
    """Create an empty file with a unique name, and its folder if it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f"{stem}-", suffix=".rows", dir=folder.absolute())
    except OSError as error:
        raise ScratchError(
            f"the scratch folder {folder} cannot be written ({error.strerror}): choose another"
        ) from error
    os.close(handle)
    return Path(name)


def write_rows(
    path: Path, runs: Iterable[Array], shape: tuple[int, int], dtype: np.dtype[Any], run_rows: int
) -> RowFile:
    """Write runs of C-contiguous rows, all of `run_rows` but the last; a ScratchError if the disk is full."""
    size_bytes = shape[0] * shape[1] * dtype.itemsize
    checksums = []
    try:
        free_bytes = shutil.disk_usage(path.parent).free
        if free_bytes < size_bytes:
            raise ScratchError(
                f"the scratch folder {path.parent} has {format_bytes(free_bytes)} free, but the support vectors need"
                f" {format_bytes(size_bytes)}: free space or choose another"
            )
        with path.open("wb", buffering=0) as file:
            for run in runs:
                raw = _bytes_of(run)
                checksums.append(zlib.crc32(raw))
                while len(raw):
                    raw = raw[file.write(raw) :]
    except OSError as error:
        raise ScratchError(
            f"writing to the scratch folder {path.parent} failed ({error.strerror}): free space or choose another"
        ) from error
    return RowFile(path, shape, dtype, run_rows, np.array(checksums, np.uint32))
