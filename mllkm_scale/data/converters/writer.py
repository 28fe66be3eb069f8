"""Target of conversions: arrays that grow by blocks, in an HDF5 file that appears completely or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import h5py
import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array

from mllkm_scale.base.files.whole import cannot_write
from mllkm_scale.base.units import format_bytes
from mllkm_scale.data.converters.whole_file import WholeFile
from mllkm_scale.data.stored_columns import FEATURE_NAMES
from mllkm_scale.data.tables.columns import Columns
from mllkm_scale.errors import DataError, ScratchError

__all__ = ["ArrayWriter", "HDF5Writer"]

CHUNK_BYTES = 2**20
MIN_CHUNK_ROWS = 256


class ArrayWriter(Protocol):
    """Takes the arrays of a conversion, block by block."""

    def append(self, name: str, block: NDArray[Any]) -> None:
        """Take rows of the array `name`."""

    def append_labels(self, name: str, block: NDArray[Any]) -> None:
        """Take labels."""

    def append_sparse(self, name: str, rows: csr_array) -> None:
        """Take sparse rows of the array `name`, whose width may grow."""

    def write_scalar(self, name: str, value: NDArray[Any]) -> None:
        """Take an array without axes."""

    def write_names(self, names: Sequence[str]) -> None:
        """Take the names of the features."""

    def require_space(self, size_bytes: int) -> None:
        """Refuse data of this size if they will not fit."""


class HDF5Writer(WholeFile):
    """Writes arrays to an HDF5 file that appears completely or not at all."""

    def _open(self, path: Path) -> Any:
        return h5py.File(path, "x")

    def restart(self) -> None:
        """Discard everything written so far."""
        self._file.close()
        try:
            self._file = h5py.File(self._partial, "w")
        except OSError as error:
            raise cannot_write(self.target, error) from error

    def append(self, name: str, block: NDArray[Any]) -> None:
        """Add rows to the array `name`, which is created by the first block."""
        try:
            if name not in self._file:
                self._create(name, block)
            stored = self._file[name]
            rows = stored.shape[0]
            stored.resize(rows + len(block), axis=0)
            stored[rows:] = block.astype(object) if block.dtype.kind == "U" else block
            self._file.flush()  # otherwise an error of a delayed write could be lost when HDF5 closes the array
        except (OSError, RuntimeError) as error:
            raise cannot_write(self.target, error) from error

    def append_sparse(self, name: str, rows: csr_array) -> None:
        """Add sparse rows, in the format of `sparse.rows`."""
        begun = f"{name}_indptr" in self._file
        before = self._file[f"{name}_indptr"][-1] if begun else 0
        HDF5Writer.append(self, f"{name}_indptr", rows.indptr[begun:].astype(np.int64) + before)
        HDF5Writer.append(self, f"{name}_indices", rows.indices.astype(np.int32))
        HDF5Writer.append(self, f"{name}_data", rows.data)
        n = len(self._file[f"{name}_indptr"]) - 1
        self._file.require_dataset(f"{name}_shape", (2,), np.int64)[:] = n, rows.shape[1]

    def create_compressed(
        self, name: str, shape: tuple[int, int], chunk_rows: int, dtype: DTypeLike, level: int
    ) -> Any:
        """An array whose chunks the caller compresses by zlib and writes."""
        chunks = (min(chunk_rows, shape[0]), shape[1])
        return self._file.create_dataset(name, shape, dtype, chunks=chunks, compression="gzip", compression_opts=level)

    def append_labels(self, name: str, block: NDArray[Any]) -> None:
        """Add labels: integers and booleans as int64, floats as float64, text as UTF-8 of variable length."""
        kind = block.dtype.kind
        if kind == "u" and len(block) and int(block.max()) > np.iinfo(np.int64).max:
            raise DataError(f"{name} has the label {block.max()}, which is too large: number the classes from 0")
        if kind == "U" and any("\x00" in text for text in block.tolist()):
            raise DataError(f"{name} has a label with a NUL character: remove it")
        self.append(name, block.astype({"f": np.float64, "U": np.str_}.get(kind, np.int64), copy=False))

    def write_scalar(self, name: str, value: NDArray[Any]) -> None:
        """Write an array without axes."""
        self._file[name] = value.item() if value.dtype.kind == "U" else value

    def write_names(self, names: Sequence[str]) -> None:
        """Write the names of the features, for `Dataset.feature_names`."""
        self.append(FEATURE_NAMES, np.array(names, dtype=np.str_))

    def write_columns(self, columns: Columns) -> None:
        """Write the columns of a table, for `Dataset.columns`."""
        for name, values in columns.to_arrays().items():
            self.append(name, values)

    def write_attributes(self, **attributes: str) -> None:
        """Write attributes of the file, such as the source of its arrays."""
        self._file.attrs.update(attributes)

    def require_space(self, size_bytes: int) -> None:
        """Refuse data that do not fit on the disk, before writing."""
        free_bytes = shutil.disk_usage(self.target.parent).free
        if free_bytes < size_bytes:
            raise ScratchError(
                f"{self.target} would need {format_bytes(size_bytes)}, and its folder has"
                f" {format_bytes(free_bytes)} free: free space or choose another folder"
            )

    @property
    def arrays(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and type of every array written, by name."""
        found: dict[str, tuple[tuple[int, ...], str]] = {}

        def note(name: str, node: Any) -> None:
            if isinstance(node, h5py.Dataset):
                text = h5py.check_string_dtype(node.dtype) is not None
                found[name] = (tuple(node.shape), "text" if text else str(node.dtype))

        self._file.visititems(note)
        return found

    def _create(self, name: str, block: NDArray[Any]) -> None:
        text = block.dtype.kind == "U"
        width = block.shape[1:]
        if 0 in width:
            raise DataError(f"{name} has rows of no columns: give at least one feature")
        row_bytes = max(1, int(np.prod(width, dtype=np.int64)) * (16 if text else block.dtype.itemsize))
        # A file of few rows gets one chunk of this number of rows, not a chunk of 1 MB.
        rows = max(1, min(CHUNK_BYTES // row_bytes, max(len(block), MIN_CHUNK_ROWS)))
        self._file.create_dataset(
            name,
            shape=(0, *width),
            maxshape=(None, *width),
            chunks=(rows, *width),
            dtype=h5py.string_dtype() if text else block.dtype,
        )
