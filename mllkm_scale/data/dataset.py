"""The data as the training sees it: rows on disk or in memory, walked over a fixed grid of chunks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import h5py
import numpy as np
from numpy.typing import ArrayLike, NDArray

from mllkm_scale.data.grid import MOST_FEATURES, require_chunk_rows, work_dtype
from mllkm_scale.data.hdf5_source import HDF5Source, open_hdf5
from mllkm_scale.data.labels import LABEL_ROWS, as_label_vector, encode_blocks
from mllkm_scale.data.sources import LONGEST_TEXT, ArraySource, Source
from mllkm_scale.data.tables.columns import COLUMN_ARRAYS, MAX_ALL_LEVELS, Columns
from mllkm_scale.errors import DataError, ParameterError

__all__ = ["FEATURE_NAMES", "Dataset"]

FEATURE_NAMES = "feature_names"
"""Name of the data set that holds the names of the features, beside that of the samples."""


class Dataset:
    """A matrix of samples, and their labels, of which only a chunk of rows is ever read at once.

    Make one with `Dataset.open` or `Dataset.from_arrays`. A data set on disk can be pickled: what travels is
    its path, and the receiving process opens the file itself. Arrays that are handed out may be views of the
    data: do not write to them.

    Attributes
    ----------
    n_rows, n_features : int
        Shape of the matrix.
    dtype : numpy.dtype
        Type as stored.
    work_dtype : numpy.dtype
        Type of what is handed out: float32 or float64.
    path : pathlib.Path or None
        Where it stands on disk.
    name : str
        How messages call it, such as ``train.h5:X``.
    chunk_rows, n_chunks : int
        The grid. By default `chunk_rows` follows from `n_features` alone, so that results have the same bits
        everywhere.
    has_labels : bool
        Whether there are labels.
    feature_names : tuple of str or None
        What the features are called, where that is known.
    columns : Columns or None
        What the columns of a table hold; None for a matrix of numbers without missing values.
    indicators : array of bool of shape (n_features,) or None
        Which features are 0 or 1 and stand for a level of a category, or for a missing value.
    buffer_bytes : int
        Memory that reading a chunk may take beside the chunk itself.
    held_bytes : int
        Memory that is held for it as long as it is used, where a training has made it.

    Examples
    --------
    >>> data = Dataset.from_arrays(np.arange(10.0).reshape(5, 2), [0, 1, 0, 1, 1], chunk_rows=2)
    >>> [(start, chunk.tolist()) for start, chunk in data.chunks()][-1]
    (4, [[8.0, 9.0]])
    >>> data.rows([3, 0]).tolist()
    [[6.0, 7.0], [0.0, 1.0]]
    """

    def __init__(
        self, x: Source, y: Source | None = None, *, path: Path | None = None, chunk_rows: int | None = None
    ) -> None:
        if len(x.shape) != 2:
            raise DataError(f"{x.name} has shape {x.shape}: it must have two axes, one row per sample")
        if x.dtype.kind not in "fiub":
            raise DataError(
                f"{x.name} has type {x.dtype}: features must be real numbers; encode text as numbers, or give a table"
                " (a CSV file to mllkm convert, a DataFrame to fit)"
            )
        self._x = x
        self._y = y
        self.path = path
        self.name = x.name
        self.dtype = x.dtype
        self.work_dtype = work_dtype(x.dtype)
        self.n_rows, self.n_features = (int(size) for size in x.shape)
        if self.n_rows == 0 or self.n_features == 0:
            empty = "rows (0 sample(s))" if self.n_rows == 0 else "columns (0 feature(s))"
            raise DataError(f"{x.name} has shape {x.shape}, no {empty}, while a minimum of 1 is required")
        if self.n_features > MOST_FEATURES:
            raise DataError(f"{x.name} has {self.n_features:,} features, more than {MOST_FEATURES:,}: leave some out")
        self.chunk_rows = require_chunk_rows(chunk_rows, self.n_features)
        self.n_chunks = -(-self.n_rows // self.chunk_rows)
        self.has_labels = y is not None
        self.buffer_bytes = x.buffer_bytes
        self._remove: Callable[[], object] | None = None
        self._names: Callable[[], tuple[str, ...] | None] = _no_names
        self.indicators: NDArray[np.bool_] | None = None
        self.held_bytes = 0
        self._columns: Callable[[], Columns | None] | Columns | None = None

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], x: str = "X", y: str | None = "y", *, chunk_rows: int | None = None
    ) -> Self:
        """Open an HDF5 file or a zarr group.

        Parameters
        ----------
        path : path
            An HDF5 file, or the folder of a zarr group.
        x, y : str
            Names of the data sets of the samples and of the labels; ``y=None`` for data without labels.
        chunk_rows : int, optional
            Rows of a chunk.

        Raises
        ------
        DataError
            If it cannot be read as a matrix; the message says why, and lists the data sets if one is missing.

        Examples
        --------
        >>> import tempfile, h5py
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with h5py.File(f"{folder}/train.h5", "w") as file:
        ...         file["X"] = np.eye(3)
        ...     with Dataset.open(f"{folder}/train.h5", y=None) as data:
        ...         data.n_rows, data.n_features, data.name
        (3, 3, 'train.h5:X')
        """
        where = Path(path).absolute()
        for name in (x, y or ""):
            if "\0" in name:
                raise DataError(f"{where}: the name {name!r} has a NUL character: name the data set as the file has it")
        kind = _zarr_source() if os.path.isdir(where) else HDF5Source
        try:
            samples: Source = kind(where, x)
        except DataError:
            sparse = _stored_sparse(where, x)
            if sparse is None:
                raise
            samples = sparse
        try:
            labels = None if y is None else kind(where, y)
            if labels is not None:
                labels.close()
            dataset = cls(samples, labels, path=where, chunk_rows=chunk_rows)
            dataset._names = partial(_stored_names, kind, where, x, dataset.n_features)
            dataset._columns = partial(_stored_columns, kind, where, x, dataset.n_features, dataset.name)
            return dataset
        except BaseException:
            samples.close()
            raise

    @classmethod
    def from_arrays(
        cls,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        chunk_rows: int | None = None,
        name: str = "X",
        feature_names: Sequence[str] | None = None,
    ) -> Self:
        """Wrap arrays in memory; they are kept as they are and not copied, but for sparse ones that are not CSR.

        `feature_names` are by default the columns of X, if it is a table that has such.

        Examples
        --------
        >>> Dataset.from_arrays([[1, 2], [3, 4]]).chunk(0).dtype
        dtype('float64')
        """
        samples = _matrix_rows(X, name) if hasattr(X, "toarray") else ArraySource(np.asarray(X), name)
        labels = None if y is None else ArraySource(np.asarray(y), "y" if name == "X" else f"y of {name}")
        dataset = cls(samples, labels, chunk_rows=chunk_rows)
        columns = getattr(X, "columns", None) if feature_names is None else feature_names
        names = None if columns is None else tuple(str(column) for column in columns)
        if names is not None and len(names) != dataset.n_features:
            raise ParameterError(f"{len(names)} feature_names, but {name} has {dataset.n_features} features: name each")
        dataset._names = partial(_given_names, names)
        return dataset

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """What the features are called, where that is known."""
        return self._names()

    @property
    def is_sparse(self) -> bool:
        """Whether rows are stored without their zeros; those that are handed out are dense."""
        return hasattr(self._x, "read_sparse")

    @property
    def columns(self) -> Columns | None:
        """What the columns of a table hold; None for a matrix of numbers without missing values."""
        if callable(self._columns):
            self._columns = self._columns()
        return self._columns

    def bounds(self, i: int) -> tuple[int, int]:
        """First row of chunk `i`, and the row after its last."""
        if not 0 <= i < self.n_chunks:
            raise IndexError(f"{self.name} has chunks 0 to {self.n_chunks - 1}, not {i}")
        start = i * self.chunk_rows
        return start, min(start + self.chunk_rows, self.n_rows)

    def chunk(self, i: int) -> NDArray[Any]:
        """Rows of chunk `i` as a C-contiguous array of `work_dtype`."""
        return self._read(*self.bounds(i))

    def part(self, start: int, stop: int) -> NDArray[Any]:
        """Rows `start` to `stop` as a C-contiguous array of `work_dtype`."""
        return self._read(start, stop)

    def chunks(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """First row and rows of each chunk, in order."""
        for i in range(self.n_chunks):
            yield self.bounds(i)[0], self.chunk(i)

    def rows(self, indices: ArrayLike) -> NDArray[Any]:
        """Rows by number, in the order asked for; a row may be asked for several times.

        No more than one chunk is read at once.
        """
        wanted = np.asarray(indices)
        if wanted.ndim != 1 or (wanted.dtype.kind not in "iu" and wanted.size):
            raise ParameterError(f"rows of {self.name} are asked for by a list of integers, not {wanted.dtype}")
        out = np.empty((len(wanted), self.n_features), dtype=self.work_dtype)
        if not len(wanted):
            return out
        if wanted.min() < 0 or wanted.max() >= self.n_rows:
            raise ParameterError(f"{self.name} has rows 0 to {self.n_rows - 1}: {wanted.min()} to {wanted.max()} asked")
        order = np.argsort(wanted, kind="stable")
        ordered = wanted[order].astype(np.int64)
        edges = np.flatnonzero(np.diff(ordered // self.chunk_rows)) + 1
        for places, numbers in zip(np.split(order, edges), np.split(ordered, edges), strict=True):
            first, last = int(numbers[0]), int(numbers[-1])
            out[places] = self._read(first, last + 1)[numbers - first]
        return out

    def labels(self) -> NDArray[Any]:
        """All labels as stored, text decoded, shape (n_rows,); `label_codes` takes less memory."""
        blocks = [values for _, values in self.label_blocks()]
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)

    def label_codes(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Classes in ascending order, and the position of each label among them, (n_rows,).

        Labels are read in blocks; those that are missing or continuous, and more than 1,000 classes, are refused.

        Examples
        --------
        >>> classes, codes = Dataset.from_arrays([[0.0], [1.0], [2.0]], ["dog", "cat", "dog"]).label_codes()
        >>> classes.tolist(), codes.tolist()
        (['cat', 'dog'], [1, 0, 1])
        """
        return encode_blocks(self.label_blocks(), self.n_rows, self.label_name)

    def label_blocks(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """First row and labels of each block of rows, as stored, text decoded."""
        if self._y is None:
            raise DataError(f"{self.name} was opened without labels: name the data set of the labels (y)")
        length = self._y.shape[0] if self._y.shape else 0
        if length != self.n_rows:
            raise DataError(
                f"{self._y.name} has {length} labels, but {self.name} has {self.n_rows} rows: give one label per row"
            )
        item_bytes = getattr(self._y, "item_bytes", 0)
        if item_bytes > 4 * LONGEST_TEXT:
            raise DataError(
                f"{self._y.name} has labels of {item_bytes:,} bytes, and the longest may have {LONGEST_TEXT}"
                " characters: give the classes short names, or numbers"
            )
        for start in range(0, self.n_rows, LABEL_ROWS):
            stop = min(start + LABEL_ROWS, self.n_rows)
            yield start, as_label_vector(self._y.read(start, stop), self._y.name, start)
        self._y.close()

    def unlabelled(self) -> Dataset:
        """The same samples without their labels, which then do not travel with them to another process."""
        return Dataset(self._x, None, path=self.path, chunk_rows=self.chunk_rows).named_as(self)

    @property
    def paths(self) -> tuple[Path, ...]:
        """Files that another process must see to read the samples; none if they are in memory."""
        return () if self.path is None else (self.path,)

    @property
    def label_name(self) -> str:
        """How messages call the labels."""
        return "y" if self._y is None else self._y.name

    @property
    def source(self) -> Source:
        """Where the samples come from, to be shared by data sets made of this one."""
        return self._x

    @property
    def label_source(self) -> Source | None:
        """Where the labels come from, to be shared by data sets made of this one."""
        return self._y

    def named_as(self, other: Dataset) -> Self:
        """This data set, whose features are called, and whose columns are, as those of another."""
        self._names, self._columns, self.indicators = other._names, other._columns, other.indicators
        return self

    def with_names(self, names: Sequence[str]) -> Self:
        """This data set, whose features are called so."""
        self._names = partial(_given_names, tuple(names))
        return self

    def with_columns(self, columns: Columns | None) -> Self:
        """This data set as a table with such columns."""
        self._columns = columns
        return self

    def named(self, names: Sequence[str]) -> Self:
        """This data set with these names of its features."""
        self._names = partial(_given_names, tuple(names))
        return self

    def remove_on_close(self, remove: Callable[[], object]) -> None:
        """Call `remove` when this data set, but no copy of it, is closed."""
        self._remove = remove

    def close(self) -> None:
        """Close the file; a temporary one (see `prepare`) is removed, any other opens again when read."""
        self._x.close()
        if self._y is not None:
            self._y.close()
        if self._remove is not None:
            self._remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_remove": None}

    def __repr__(self) -> str:
        return f"Dataset({self.name}, {self.n_rows} rows, {self.n_features} features, {self.dtype})"

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        return np.ascontiguousarray(self._x.read(start, stop), dtype=self.work_dtype)


def _zarr_source() -> Callable[[Path, str], Source]:
    from mllkm_scale.data.zarr_source import ZarrSource  # zarr takes memory that a training from HDF5 can use

    return ZarrSource


def _matrix_rows(X: Any, name: str) -> Source:
    from mllkm_scale.data.sparse.rows import MatrixRows

    return MatrixRows(X, name)


def _stored_sparse(path: Path, x: str) -> Source | None:
    """The sparse rows of an HDF5 file, if it has some of this name."""
    if os.path.isdir(path) or not h5py.is_hdf5(path):
        return None
    with open_hdf5(path) as file:
        if f"{x}_indptr" not in file:
            return None
    from mllkm_scale.data.sparse.rows import StoredRows

    return StoredRows(path, x)


def _no_names() -> tuple[str, ...] | None:
    return None


def _given_names(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return names


def _stored_names(kind: Callable[[Path, str], Source], path: Path, x: str, n_features: int) -> tuple[str, ...] | None:
    """The text of the data set `feature_names` beside x, if there is one for each feature."""
    group, _, _ = x.rstrip("/").rpartition("/")
    try:
        source = kind(path, f"{group}/{FEATURE_NAMES}" if group else FEATURE_NAMES)
        try:
            fits = source.shape == (n_features,) and source.dtype.kind == "U"
            return tuple(source.read(0, n_features).tolist()) if fits else None
        finally:
            source.close()
    except DataError:  # there is none, or it cannot be read: the features go without names
        return None


def _stored_columns(kind: Callable[[Path, str], Source], path: Path, x: str, d: int, called: str) -> Columns | None:
    """What the arrays beside x say of its columns, if they are there; refused if they do not fit together."""
    group, _, _ = x.rstrip("/").rpartition("/")
    arrays = {}
    most = dict(zip(COLUMN_ARRAYS, (d, MAX_ALL_LEVELS, d + 1), strict=True))
    for name in COLUMN_ARRAYS:
        try:
            source = kind(path, f"{group}/{name}" if group else name)
        except DataError:
            if name == COLUMN_ARRAYS[0]:
                return None
            raise
        try:
            if len(source.shape) != 1 or source.shape[0] > most[name]:
                raise DataError(
                    f"{source.name} has shape {source.shape}, which does not fit {d} features: convert the table again"
                )
            arrays[name] = source.read(0, source.shape[0])
        finally:
            source.close()
    if len(arrays[COLUMN_ARRAYS[0]]) != d:
        raise DataError(
            f"{called} has {d} features, but kinds of {len(arrays[COLUMN_ARRAYS[0]])} columns stand beside it:"
            " convert the table again"
        )
    return Columns.from_arrays(arrays, _stored_names(kind, path, x, d), called)
