"""Sparse rows in memory and on disk, returned as CSR blocks.

An HDF5 file holds a sparse X as four arrays of one axis, those of CSR and its shape: the entries of row i are X_data
and X_indices from X_indptr[i] to X_indptr[i + 1], columns in ascending order.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mllkm_scale.data.grid import MAX_CHUNK_ROWS
from mllkm_scale.data.hdf5_source import HDF5Source
from mllkm_scale.data.sources import Source
from mllkm_scale.errors import DataError

__all__ = ["SPARSE_ARRAYS", "MatrixRows", "SparseRows", "StoredRows", "sparse_blocks"]

SPARSE_ARRAYS = ("indptr", "indices", "data", "shape")
MOST_SPARSE_COLUMNS = 2**31 - 1
BLOCK_ENTRIES = 2**19  # of a block of rows, on average: 6 MB


class SparseRows(Source, Protocol):
    """A source whose rows can also be read as CSR."""

    @property
    def n_entries(self) -> int:
        """Number of stored entries of all rows."""

    def read_sparse(self, start: int, stop: int) -> sparse.csr_array:
        """Rows `start` to `stop` in float64, with columns in ascending order, without duplicates."""


class MatrixRows:
    """Rows of a matrix of scipy.sparse. CSR is kept; other formats are converted to CSR."""

    buffer_bytes = 0

    def __init__(self, X: Any, name: str) -> None:
        if X.ndim != 2:
            raise DataError(f"{name} has shape {X.shape}: it must have two axes, one row per sample")
        rows = sparse.csr_array(X)
        if not rows.has_canonical_format:
            rows = rows.copy() if X.format == "csr" else rows  # do not change the given matrix
            rows.sum_duplicates()
        self.name = name
        self.shape: tuple[int, ...] = rows.shape
        self.dtype: np.dtype[Any] = rows.dtype
        self.n_entries = int(rows.nnz)
        self._rows = rows

    def read_sparse(self, start: int, stop: int) -> sparse.csr_array:
        """Rows `start` to `stop`."""
        return _checked(self._rows[start:stop].astype(np.float64), start, self.name)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows `start` to `stop`, dense."""
        dense: NDArray[Any] = self._rows[start:stop].toarray()
        return dense

    def close(self) -> None:
        """Do nothing: there is no file."""


class StoredRows:
    """Rows from the four arrays of an HDF5 file; arrays that are not valid CSR are refused when they are read."""

    def __init__(self, path: Path, x: str) -> None:
        self.name = f"{path.name}:{x}"
        self._arrays = {part: HDF5Source(path, f"{x}_{part}") for part in SPARSE_ARRAYS}
        lengths = {part: source.shape for part, source in self._arrays.items()}
        kinds = {part: source.dtype.kind for part, source in self._arrays.items()}
        whole = all(kinds[part] in "iu" for part in ("indptr", "indices", "shape")) and kinds["data"] in "fiu"
        if not whole or any(len(length) != 1 for length in lengths.values()) or lengths["shape"] != (2,):
            raise self._damaged("arrays of other shapes or types than those of CSR")
        n, d = (int(size) for size in self._arrays["shape"].read(0, 2))
        if lengths["indptr"] != (n + 1,) or lengths["indices"] != lengths["data"] or not 0 < d <= MOST_SPARSE_COLUMNS:
            raise self._damaged("arrays that do not fit their shape")
        self.shape: tuple[int, ...] = (n, d)
        self.dtype: np.dtype[Any] = self._arrays["data"].dtype
        self.n_entries = lengths["data"][0]
        self.buffer_bytes = sum(source.buffer_bytes for source in self._arrays.values()) + 64 * BLOCK_ENTRIES

    def read_sparse(self, start: int, stop: int) -> sparse.csr_array:
        """Rows `start` to `stop`."""
        stop = min(stop, self.shape[0])
        ends = self._arrays["indptr"].read(start, stop + 1).astype(np.int64)
        first, last = int(ends[0]), int(ends[-1])
        if not 0 <= first <= last <= self.n_entries or not (np.diff(ends) >= 0).all():
            raise self._damaged("ends of rows that do not rise")
        indices = self._arrays["indices"].read(first, last).astype(np.int64)
        if len(indices) and not 0 <= indices.min() <= indices.max() < self.shape[1]:
            raise self._damaged("columns that its shape does not have")
        begins = np.zeros(len(indices), dtype=bool)
        begins[(ends[:-1] - first)[np.diff(ends) > 0]] = True
        if not (begins[1:] | (np.diff(indices) > 0)).all():
            raise self._damaged("rows whose columns do not rise")
        data = self._arrays["data"].read(first, last).astype(np.float64)
        rows = sparse.csr_array((data, indices, ends - first), shape=(stop - start, self.shape[1]))
        return _checked(rows, start, self.name)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows `start` to `stop`, dense."""
        dense: NDArray[Any] = self.read_sparse(start, stop).toarray()
        return dense

    def close(self) -> None:
        """Close the file."""
        for source in self._arrays.values():
            source.close()

    def _damaged(self, what: str) -> DataError:
        return DataError(f"{self.name} is a sparse matrix with {what}: the file is damaged; convert it again")


def sparse_blocks(source: Any) -> Iterator[tuple[int, sparse.csr_array]]:
    """First row and rows of blocks in order, on a grid that depends only on the numbers of rows and entries; also for
    dense rows."""
    n, d = source.shape
    is_sparse = hasattr(source, "read_sparse")
    a_row = max(1, (source.n_entries // max(1, n)) if is_sparse else d)
    height = min(max(1, BLOCK_ENTRIES // a_row), MAX_CHUNK_ROWS)
    for start in range(0, n, height):
        stop = min(start + height, n)
        if is_sparse:
            yield start, source.read_sparse(start, stop)
        else:
            yield start, _checked(sparse.csr_array(source.read(start, stop).astype(np.float64)), start, source.name)


def _checked(rows: sparse.csr_array, first_row: int, name: str) -> sparse.csr_array:
    """The rows, after checking that their entries are finite."""
    broken = np.flatnonzero(~np.isfinite(rows.data))
    if len(broken):
        row = int(np.searchsorted(rows.indptr, broken[0], side="right")) - 1
        what = "NaN" if np.isnan(rows.data[broken[0]]) else "infinity"
        raise DataError(
            f"{name} has {what} at row {first_row + row}, column {int(rows.indices[broken[0]])} (0-based): remove or"
            " replace it"
        )
    return rows
