"""Prepared rows written by workers: files with equal numbers of rows, which are read as one matrix.

Every file is a function of its number, and is written atomically: a worker that takes over a task writes the same bytes
again.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.executor import Executor
from mllkm_scale.base.files.folders import require_room, writing_scratch
from mllkm_scale.base.files.npy import map_npy
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.grid import default_chunk_rows
from mllkm_scale.data.preparation.preprocessing import Preprocessor
from mllkm_scale.errors import DataError

__all__ = ["WritingWork", "WrittenRows", "rows_of_workers"]

FILE_BYTES = 1 << 26
"""Approximate size of a file."""


@dataclass(frozen=True)
class WrittenRows:
    """A source of rows: file i holds the rows from i * height on."""

    folder: Path
    stem: str
    height: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    name: str

    @property
    def buffer_bytes(self) -> int:
        """Bytes of pages of mapped files, and of a copy if a chunk spans two files."""
        width = self.shape[1]
        return 2 * default_chunk_rows(width) * width * max(8, self.dtype.itemsize)

    def file(self, number: int) -> Path:
        return self.folder / f"{self.stem}-{number:06d}.npy"

    @property
    def files(self) -> list[Path]:
        return [self.file(number) for number in range(-(-self.shape[0] // self.height))]

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows `start` to `stop`."""
        pieces = []
        for number in range(start // self.height, max(start, stop - 1) // self.height + 1):
            first, path = number * self.height, self.file(number)
            try:
                stored = map_npy(path, DataError)
            except OSError as error:
                raise DataError(f"{path}, a part of {self.name}, cannot be read: train again") from error
            pieces.append(np.array(stored[max(start - first, 0) : stop - first]))
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def close(self) -> None:
        """Do nothing: a file is open only while it is read."""

    def remove(self) -> None:
        """Remove the files."""
        for path in self.files:
            path.unlink(missing_ok=True)


@dataclass(frozen=True)
class WritingWork:
    """Prepares chunks of a data set, and writes them to files of `group` chunks each."""

    dataset: Dataset
    preprocessor: Preprocessor
    rows: WrittenRows
    group: int

    @property
    def unit_work(self) -> float:
        width, made = self.preprocessor.width, self.preprocessor.n_features_out
        return float(self.group * self.dataset.chunk_rows * width * (10 + made))

    @property
    def paths(self) -> tuple[Path, ...]:
        return (*self.dataset.paths, self.rows.folder)

    def __call__(self, units: range) -> int:
        for unit in units:
            self._write(unit)
        return len(units)

    def describe(self, units: range) -> str:
        return f"chunks {units[0] * self.group} to {units[-1] * self.group} of {self.dataset.name}, to be prepared"

    def _write(self, unit: int) -> None:
        rows, dataset = self.rows, self.dataset
        first = unit * rows.height
        shape = min(rows.height, rows.shape[0] - first), rows.shape[1]
        path = rows.file(unit)
        partial = path.with_suffix(f".{secrets.token_hex(4)}.partial")
        header = {"descr": np.lib.format.dtype_to_descr(rows.dtype), "fortran_order": False, "shape": shape}
        with writing_scratch(rows.folder):
            try:
                with partial.open("wb") as file:
                    np.lib.format.write_array_header_1_0(file, header)
                    for chunk in range(unit * self.group, min((unit + 1) * self.group, dataset.n_chunks)):
                        file.write(self.preprocessor.transform(dataset.chunk(chunk)).data)
                os.replace(partial, path)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise


def rows_of_workers(dataset: Dataset, preprocessor: Preprocessor, folder: Path, executor: Executor) -> WrittenRows:
    """Let the members of the executor prepare all rows, and write them to new files of the folder."""
    shape, dtype = (dataset.n_rows, preprocessor.n_features_out), dataset.work_dtype
    row_bytes = shape[1] * dtype.itemsize
    require_room(folder, shape[0] * row_bytes, "the transformed data needs")
    group = max(1, FILE_BYTES // (dataset.chunk_rows * row_bytes))
    stem = f"prepared-{secrets.token_hex(4)}"
    rows = WrittenRows(folder, stem, group * dataset.chunk_rows, shape, dtype, f"prepared {dataset.name}")
    try:
        for _ in executor.start(WritingWork(dataset, preprocessor, rows, group), -(-dataset.n_chunks // group)):
            pass
    except BaseException:
        rows.remove()
        raise
    return rows
