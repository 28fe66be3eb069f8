"""A matrix in a file, by rows or by columns: written in one walk over its rows, read in runs under checksums.

The matrix is read, not mapped: mapped pages count as memory of the process until the system releases them. For columns,
rows are written in runs, and each run stores its columns one after the other, so that any column can be read without
the others.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.files.folders import require_room, writing_scratch
from mllkm_scale.errors import ScratchError

__all__ = ["ColumnFile", "MatrixFile", "write_columns", "write_rows"]


@dataclass(frozen=True)
class MatrixFile:
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


def write_rows(
    path: Path, runs: Iterable[Array], shape: tuple[int, int], dtype: np.dtype[Any], run_rows: int
) -> MatrixFile:
    """Write runs of C-contiguous rows, all of `run_rows` but the last; a ScratchError if the disk is full."""
    require_room(path.parent, shape[0] * shape[1] * dtype.itemsize, "the support vectors need")
    checksums = []
    with writing_scratch(path.parent), path.open("wb", buffering=0) as file:
        for run in runs:
            raw = _bytes_of(run)
            checksums.append(zlib.crc32(raw))
            while len(raw):
                raw = raw[file.write(raw) :]
    return MatrixFile(path, shape, dtype, run_rows, np.array(checksums, np.uint32))


@dataclass(frozen=True)
class ColumnFile:
    """A matrix of `shape`; row i d + l of the file `runs` is column l of run i, the last run filled up with zeros."""

    runs: MatrixFile
    shape: tuple[int, int]

    def column(self, l: int) -> Array:
        out = np.empty((self.runs.shape[0] // self.shape[1], self.runs.shape[1]), self.dtype)
        for i in range(len(out)):
            self.runs.read(i * self.shape[1] + l, out[i : i + 1])
        return out.reshape(-1)[: self.shape[0]]

    @property
    def path(self) -> Path:
        return self.runs.path

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.runs.dtype

    @property
    def checksums(self) -> Array:
        return self.runs.checksums

    @property
    def header(self) -> dict[str, Any]:
        """All but the checksums, as JSON can hold it."""
        return self.runs.header | {"columns_of": list(self.shape)}

    @classmethod
    def of(cls, header: Mapping[str, Any], checksums: Array) -> Self:
        n, d = header["columns_of"]
        return cls(MatrixFile.of(header, checksums), (n, d))


def write_columns(
    path: Path, runs: Iterable[Array], shape: tuple[int, int], dtype: np.dtype[Any], run_rows: int
) -> ColumnFile:
    """Write runs of rows, all of `run_rows` but the last; a ScratchError if the disk is full."""
    n, d = shape
    rows = write_rows(path, _columns(runs, run_rows, dtype), (-(-n // run_rows) * d, run_rows), dtype, 1)
    return ColumnFile(rows, shape)


def _columns(runs: Iterable[Array], run_rows: int, dtype: np.dtype[Any]) -> Iterator[Array]:
    for run in runs:
        filled = np.zeros((run.shape[1], run_rows), dtype)
        filled[:, : len(run)] = run.T
        yield from filled
