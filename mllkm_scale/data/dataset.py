"""The data for training: rows on disk or in memory, read over a fixed grid of chunks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import h5py
import numpy as np
from numpy.typing import ArrayLike, NDArray

from mllkm_scale.base.closing import Closing
from mllkm_scale.base.location import URL, Location, as_location, is_parquet
from mllkm_scale.data.grid import MOST_FEATURES, MOST_ROWS, require_chunk_rows, work_dtype
from mllkm_scale.data.hdf5_source import HDF5Source, named, open_hdf5
from mllkm_scale.data.labels import LABEL_ROWS, as_label_vector, encode_blocks
from mllkm_scale.data.sources import LONGEST_TEXT, ArraySource, Source
from mllkm_scale.data.stored_columns import stored_columns, stored_names
from mllkm_scale.data.tables.columns import Columns
from mllkm_scale.errors import DataError, ParameterError

__all__ = ["Dataset"]


class Dataset(Closing):
    """A matrix of samples and their labels, read one chunk of rows at a time.

    Make one with `Dataset.open` or `Dataset.from_arrays`. A data set on disk can be pickled: the pickle holds its path,
    and the receiving process opens the file itself. Returned arrays may be views of the data: do not write to them.

    Attributes
    ----------
    n_rows, n_features : int
        Shape of the matrix.
    dtype : numpy.dtype
        Type as stored.
    work_dtype : numpy.dtype
        Type of the returned rows: float32 or float64.
    path : pathlib.Path, URL or None
        Where it is on disk, or where other processes can open it.
    name : str
        Its name in messages, such as ``train.h5:X``.
    chunk_rows, n_chunks : int
        The grid. By default `chunk_rows` depends on `n_features` only, so that results have the same bits everywhere.
    has_labels, has_weights : bool
        Whether there are labels, and weights of the rows.
    feature_names : tuple of str or None
        What the features are called, where that is known.
    columns : Columns or None
        What the columns of a table hold; None for a matrix of numbers without missing values.
    indicators : array of bool of shape (n_features,) or None
        Which features are indicators (0 or 1) of a level of a category, or of a missing value.
    buffer_bytes : int
        Memory for reading a chunk, besides the chunk itself.
    held_bytes : int
        Memory that the data set holds as long as it is used.

    Examples
    --------
    >>> data = Dataset.from_arrays(np.arange(10.0).reshape(5, 2), [0, 1, 0, 1, 1], chunk_rows=2)
    >>> [(start, chunk.tolist()) for start, chunk in data.chunks()][-1]
    (4, [[8.0, 9.0]])
    >>> data.rows([3, 0]).tolist()
    [[6.0, 7.0], [0.0, 1.0]]
    """

    def __init__(
        self,
        x: Source,
        y: Source | None = None,
        *,
        weights: Source | None = None,
        path: Location | None = None,
        chunk_rows: int | None = None,
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
        self._w = weights
        # Rows that other processes cannot open count as in memory.
        self.path = None if isinstance(path, URL) and not path.shared else path
        self.name = x.name
        self.dtype = x.dtype
        self.work_dtype = work_dtype(x.dtype)
        self.n_rows, self.n_features = (int(size) for size in x.shape)
        if self.n_rows == 0 or self.n_features == 0:
            empty = "rows (0 sample(s))" if self.n_rows == 0 else "columns (0 feature(s))"
            raise DataError(f"{x.name} has shape {x.shape}, no {empty}, while a minimum of 1 is required")
        if self.n_rows > MOST_ROWS:
            raise DataError(f"{x.name} declares more than {MOST_ROWS:,} rows: it is damaged, copy it again")
        if self.n_features > MOST_FEATURES and not hasattr(x, "read_sparse"):
            raise DataError(f"{x.name} has {self.n_features:,} features, more than {MOST_FEATURES:,}: leave some out")
        self.chunk_rows = require_chunk_rows(chunk_rows, self.n_features)
        self.n_chunks = -(-self.n_rows // self.chunk_rows)
        self.has_labels, self.has_weights = y is not None, weights is not None
        self.buffer_bytes = x.buffer_bytes
        self._remove: Callable[[], object] | None = None
        self._names: Callable[[], tuple[str, ...] | None] = _no_names
        self.indicators: NDArray[np.bool_] | None = None
        self.held_bytes = 0
        self._columns: Callable[[], Columns | None] | Columns | None = None

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | URL,
        x: str = "X",
        y: str | int | None = "y",
        *,
        sample_weight: str | None = None,
        chunk_rows: int | None = None,
    ) -> Self:
        """Open an HDF5 file, a zarr group or Parquet files.

        Parameters
        ----------
        path : path or URL
            An HDF5 file; the folder of a zarr group; a Parquet file, or a folder of such, whose name ends with
            .parquet. zarr and Parquet may also be a URL that fsspec opens, such as s3://bucket/train.zarr: each reading
            process uses its own credentials.
        x, y : str
            Names of the data sets of the samples and of the labels; ``y=None`` for data without labels. For Parquet,
            `y` is the column of the labels (name or position), and all other columns are features.
        sample_weight : str, optional
            Name of the data set of the weights of the rows.
        chunk_rows : int, optional
            Rows of a chunk.

        Raises
        ------
        DataError
            If it cannot be read as a matrix; the message says why, and lists the existing data sets if one is missing.

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
        where = as_location(path)
        for name in (x, y or ""):
            if isinstance(name, str) and "\0" in name:
                raise DataError(f"{where}: the name {name!r} has a NUL character: name the data set as the file has it")
        if is_parquet(where):
            if sample_weight is not None:
                raise ParameterError(
                    f"sample_weight={sample_weight!r}: weights of Parquet rows are not read in place: convert"
                    f" {where} with --sample-weight first"
                )
            return cls._open_parquet(where, x, y, chunk_rows)
        if isinstance(where, Path):
            where = where.absolute()
        kind: Any = _zarr_source() if isinstance(where, URL) or os.path.isdir(where) else HDF5Source
        try:
            samples: Source = kind(where, x)
        except DataError:
            sparse = _stored_sparse(where, x) if isinstance(where, Path) else None
            if sparse is None:
                raise
            samples = sparse
        try:
            labels = None if y is None else kind(where, y)
            weights = None if sample_weight is None else kind(where, sample_weight)
            for opened in (labels, weights):
                if opened is not None:
                    opened.close()
            dataset = cls(samples, labels, weights=weights, path=where, chunk_rows=chunk_rows)
            dataset._names = partial(stored_names, kind, where, x, dataset.n_features)
            dataset._columns = partial(stored_columns, kind, where, x, dataset.n_features, dataset.name)
            return dataset
        except BaseException:
            samples.close()
            raise

    @classmethod
    def _open_parquet(cls, where: Location, x: str, y: str | int | None, chunk_rows: int | None) -> Self:
        from mllkm_scale.data.parquet_source import parquet_sources

        if x != "X":
            raise ParameterError(f"x={x!r} does not belong to Parquet, of which all columns but y are features")
        samples, labels = parquet_sources(where if isinstance(where, URL) else where.absolute(), y)
        dataset = cls(samples, labels, path=where, chunk_rows=chunk_rows)
        return dataset.with_names(samples.feature_names).with_columns(samples.columns)

    @classmethod
    def from_arrays(
        cls,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        chunk_rows: int | None = None,
        name: str = "X",
        feature_names: Sequence[str] | None = None,
    ) -> Self:
        """Wrap arrays in memory without copying them; sparse matrices other than CSR are converted.

        `sample_weight` holds the weights of the rows. `feature_names` defaults to the column names of X, if X is a
        table.

        Examples
        --------
        >>> Dataset.from_arrays([[1, 2], [3, 4]]).chunk(0).dtype
        dtype('float64')
        """
        samples = _matrix_rows(X, name) if hasattr(X, "toarray") else ArraySource(np.asarray(X), name)
        labels = None if y is None else ArraySource(np.asarray(y), "y" if name == "X" else f"y of {name}")
        weights = None if sample_weight is None else ArraySource(np.asarray(sample_weight), "sample_weight")
        dataset = cls(samples, labels, weights=weights, chunk_rows=chunk_rows)
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
        """Whether rows are stored without their zeros; returned rows are dense."""
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
        """Rows by number, in the given order; numbers may repeat.

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

        Labels are read in blocks. Missing or continuous labels and more than 1,000 classes are refused.

        Examples
        --------
        >>> classes, codes = Dataset.from_arrays([[0.0], [1.0], [2.0]], ["dog", "cat", "dog"]).label_codes()
        >>> classes.tolist(), codes.tolist()
        (['cat', 'dog'], [1, 0, 1])
        """
        return encode_blocks(self.label_blocks(), self.n_rows, self.label_name)

    def label_blocks(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """First row and labels of each block of rows, as stored, text decoded.

        The number of labels and their size are checked at once, not with the first block: callers reserve memory.
        """
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
        return self._label_blocks(self._y)

    def _label_blocks(self, y: Source) -> Iterator[tuple[int, NDArray[Any]]]:
        for start in range(0, self.n_rows, LABEL_ROWS):
            yield start, as_label_vector(y.read(start, min(start + LABEL_ROWS, self.n_rows)), y.name, start)
        y.close()

    def weights(self, *, some: bool = True) -> NDArray[np.float64] | None:
        """The weight of every row in the loss, (n_rows,); None if there are none.

        Negative and infinite weights are refused; with `some`, weights that are all zero are refused, too.

        Examples
        --------
        >>> Dataset.from_arrays([[0.0], [1.0]], sample_weight=[1, -2]).weights()
        Traceback (most recent call last):
        mllkm_scale.errors.DataError: sample_weight is -2 at row 1 (0-based): weights are finite numbers from 0
        """
        if self._w is None:
            return None
        name, shape = self._w.name, self._w.shape
        if shape != (self.n_rows,):
            given = f"has {shape[0]} weights" if len(shape) == 1 else f"has shape {shape}"
            raise DataError(f"{name} {given}, but {self.name} has {self.n_rows} rows: give one weight per row")
        if self._w.dtype.kind not in "fiub":
            raise DataError(f"{name} has type {self._w.dtype}: weights are finite numbers from 0")
        stored = np.asarray(self._w.read(0, self.n_rows))
        self._w.close()
        values: NDArray[np.float64] = np.asarray(stored, np.float64)
        refused = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
        if len(refused):
            row = int(refused[0])
            raise DataError(f"{name} is {stored[row]} at row {row} (0-based): weights are finite numbers from 0")
        if some and not values.any():
            raise DataError(f"{name} is zero for every row: give some rows a positive weight")
        return values

    def with_weights(self, values: NDArray[Any]) -> Dataset:
        """The same samples and labels with these weights of the rows."""
        weights = ArraySource(values, "sample_weight" if self._w is None else self._w.name)
        return Dataset(self._x, self._y, weights=weights, path=self.path, chunk_rows=self.chunk_rows).named_as(self)

    def unlabelled(self) -> Dataset:
        """The same samples without their labels and weights, so that these are not sent to other processes."""
        return Dataset(self._x, None, path=self.path, chunk_rows=self.chunk_rows).named_as(self)

    @property
    def paths(self) -> tuple[Path, ...]:
        """Files that another process must see to read the samples; none if they are in memory."""
        return (self.path,) if isinstance(self.path, Path) else ()

    @property
    def label_name(self) -> str:
        """Name of the labels in messages."""
        return "y" if self._y is None else self._y.name

    @property
    def source(self) -> Source:
        """The source of the samples; data sets made from this one share it."""
        return self._x

    @property
    def label_source(self) -> Source | None:
        """The source of the labels; data sets made from this one share it."""
        return self._y

    @property
    def weight_source(self) -> Source | None:
        """The source of the weights; data sets made from this one share it."""
        return self._w

    @property
    def weight_name(self) -> str:
        """Name of the weights in messages."""
        return "class_weight" if self._w is None else self._w.name

    def named_as(self, other: Dataset) -> Self:
        """This data set with the names of features and the columns of another one."""
        self._names, self._columns, self.indicators = other._names, other._columns, other.indicators
        return self

    def with_names(self, names: Sequence[str]) -> Self:
        """This data set with these names of its features."""
        self._names = partial(_given_names, tuple(names))
        return self

    def with_columns(self, columns: Columns | None) -> Self:
        """This data set as a table with these columns."""
        self._columns = columns
        return self

    def remove_on_close(self, remove: Callable[[], object]) -> None:
        """Call `remove` when this data set is closed; not for copies of it."""
        self._remove = remove

    def close(self) -> None:
        """Close the file; a temporary one (see `prepare`) is removed, any other opens again when read."""
        self._x.close()
        for source in (self._y, self._w):
            if source is not None:
                source.close()
        if self._remove is not None:
            self._remove()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_remove": None}

    def __repr__(self) -> str:
        return f"Dataset({self.name}, {self.n_rows} rows, {self.n_features} features, {self.dtype})"

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        return np.ascontiguousarray(self._x.read(start, stop), dtype=self.work_dtype)


def _zarr_source() -> Callable[[Location, str], Source]:
    # The import of zarr takes memory, which training from HDF5 does not need.
    from mllkm_scale.data.zarr_source import ZarrSource

    return ZarrSource


def _matrix_rows(X: Any, name: str) -> Source:
    from mllkm_scale.data.sparse.rows import MatrixRows

    return MatrixRows(X, name)


def _stored_sparse(path: Path, x: str) -> Source | None:
    """The sparse rows with this name in an HDF5 file, if there are any."""
    if os.path.isdir(path) or not h5py.is_hdf5(path):
        return None
    with open_hdf5(path) as file, named(path):
        if f"{x}_indptr" not in file:
            return None
    from mllkm_scale.data.sparse.rows import StoredRows

    return StoredRows(path, x)


def _no_names() -> tuple[str, ...] | None:
    return None


def _given_names(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return names
