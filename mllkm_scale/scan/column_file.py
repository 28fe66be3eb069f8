"""Columns of a matrix in a file: rows are written in runs, and each run stores its columns one after the other.

So one pass over the rows writes the matrix, and any column can be read without the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.scan.row_file import RowFile, write_rows

__all__ = ["ColumnFile", "write_columns"]


@dataclass(frozen=True)
class ColumnFile:
    """A matrix of `shape`; row i d + l of the file `runs` is column l of run i, the last run is padded with zeros."""

    runs: RowFile
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
        """Everything except the checksums, in a form that JSON can hold."""
        return self.runs.header | {"columns_of": list(self.shape)}

    @classmethod
    def of(cls, header: Mapping[str, Any], checksums: Array) -> Self:
        n, d = header["columns_of"]
        return cls(RowFile.of(header, checksums), (n, d))


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
