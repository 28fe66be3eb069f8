"""Collections of dask and xarray: their columns and blocks of rows, determined without computing anything.

dask array (n, d)                 a block is a chunk of rows, of all columns
dask DataFrame                    a block is a partition, whose lengths may be unknown
xarray DataArray, two dimensions  rows along the first; coordinates of text along the second are names
xarray Dataset                    a variable is a column
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.data.parts import TableOptions
from mllkm_scale.errors import DataError, ParameterError

__all__ = ["Collection", "as_dask", "is_collection", "is_frame_of_dask"]


def is_collection(X: object) -> TypeGuard[Any]:
    """Whether this is a collection of dask or an object of xarray, without importing either.

    >>> import dask.array as da
    >>> is_collection(da.ones((4, 2))), is_collection(np.ones((4, 2)))
    (True, False)
    """
    return _is_xarray(X) or ("dask" in sys.modules and sys.modules["dask"].is_dask_collection(X))


def as_dask(X: Any, name: str = "X") -> tuple[Any, tuple[str, ...] | None]:
    """A dask array or DataFrame with the same rows, and the names of its columns.

    Examples
    --------
    >>> import dask.array as da
    >>> as_dask(da.ones((4, 2), chunks=(2, 1)))[0].chunks
    ((2, 2), (2,))
    """
    names = None
    if _is_xarray(X):
        X, names = _of_xarray(X, name)
    if is_frame_of_dask(X) and X.ndim == 2:
        return X, tuple(str(column) for column in X.columns)
    if not _is_array(X):
        raise DataError(f"{name} is a {type(X).__name__} of dask: give a dask array or DataFrame")
    if X.ndim == 2 and X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    return X, names


@dataclass(frozen=True)
class Collection:
    """Rows and labels that are not yet computed, in blocks.

    Attributes
    ----------
    blocks : list of Delayed
        Blocks of rows: arrays or data frames.
    labels : list of Delayed, array or None
        Labels of the same rows.
    n_features : int
    names : tuple of str or None
    block_bytes : int or None
        Size of the largest block of rows; None if it is unknown before computing.
    options : TableOptions

    Examples
    --------
    >>> import dask.array as da
    >>> found = Collection.of(da.ones((6, 2), chunks=(4, 1)), da.zeros(6, chunks=3))
    >>> len(found.blocks), len(found.labels), found.n_features, found.block_bytes
    (2, 2, 2, 64)
    """

    blocks: Sequence[Any]
    labels: Sequence[Any] | Array | None
    n_features: int
    names: tuple[str, ...] | None
    block_bytes: int | None
    options: TableOptions = TableOptions()

    @classmethod
    def of(cls, X: Any, y: Any = None) -> Collection:
        """The collection of X and y; an error if X is neither a matrix of numbers nor a table, or if rows and labels do
        not match.

        Parameters
        ----------
        X : dask array, dask DataFrame, xarray DataArray or Dataset
        y : the same with one axis or column, or array-like, optional
            Labels. Labels in a dask collection must have the chunks or partitions of X, unless the sizes of both are
            known; then they are rechunked.
        """
        _require_one_index(X, y)
        rows, names = as_dask(X)
        if names is not None and len(set(names)) < len(names):
            raise DataError("X has two columns of one name: rename one")
        is_array = _is_array(rows)
        if is_array:
            _require_matrix(rows)
        n_features = int(rows.shape[1]) if is_array else len(rows.columns)
        if not n_features:
            raise DataError("X has no columns (0 feature(s)) while a minimum of 1 is required: give at least one")
        found = cls(_blocks(rows), None, n_features, names, _largest_bytes(rows) if is_array else None)
        if y is None:
            return found
        return replace(found, labels=_labels(rows, y) if is_collection(y) else np.asarray(y))

    def with_options(self, options: TableOptions) -> Collection:
        """The same collection, in which some columns are categories or numbers, independent of their type."""
        if options != TableOptions() and self.names is None:
            raise ParameterError("categories and as_number name columns of a table, which X is not: give a DataFrame")
        return replace(self, options=options)

    def sample(self) -> Any:
        """An empty sample with the columns of the collection."""
        import pandas as pd

        width = np.empty((0, self.n_features))
        return width if self.names is None else pd.DataFrame(width, columns=list(self.names))


def _is_xarray(X: object) -> bool:
    return type(X).__module__.partition(".")[0] == "xarray" and hasattr(X, "dims")


def _is_array(X: object) -> bool:
    return "dask.array" in sys.modules and isinstance(X, sys.modules["dask.array"].Array)


def is_frame_of_dask(X: object) -> bool:
    """Whether this is a DataFrame or Series of dask."""
    return "dask.dataframe" in sys.modules and isinstance(
        X, (sys.modules["dask.dataframe"].DataFrame, sys.modules["dask.dataframe"].Series)
    )


def _of_xarray(X: Any, name: str) -> tuple[Any, tuple[str, ...] | None]:
    """The dask array of an object of xarray, and the names of its columns."""
    names = None
    if hasattr(X, "data_vars"):
        dims = {variable.dims for variable in X.data_vars.values()}
        if len(dims) != 1 or len(next(iter(dims))) != 1:
            raise DataError(
                f"{name} is a Dataset whose variables are no columns along one dimension: give such variables, or a"
                " DataArray of two dimensions, such as X.stack(row=(...)).transpose('row', ...)"
            )
        names = tuple(str(column) for column in X.data_vars)
        X = X.to_dataarray("column").transpose(..., "column")
    elif X.ndim == 2 and X.dims[1] in X.coords and X[X.dims[1]].dtype.kind in "UOT":
        names = tuple(str(column) for column in X[X.dims[1]].values.tolist())
    return (X if X.chunks is not None else X.chunk()).data, names


def _require_matrix(X: Any) -> None:
    if X.ndim != 2:
        raise DataError(f"X has shape {X.shape}: it must have two axes, one row per sample")
    if X.dtype is None or X.dtype.kind not in "fiub":
        raise DataError(
            f"X has type {X.dtype}: features must be real numbers; X.astype(float) makes them so, and a dask DataFrame"
            " may have text and categories"
        )
    if X.shape[0] == 0:
        raise DataError(f"X has shape {X.shape}, no rows (0 sample(s)), while a minimum of 1 is required")
    if math.isnan(X.shape[1]):
        raise DataError("X has an unknown number of columns: call X.compute_chunk_sizes() first")


def _labels(X: Any, y: Any) -> Sequence[Any]:
    """The blocks of the labels, divided as those of X."""
    labels = y if is_frame_of_dask(y) else as_dask(y, "y")[0]
    if is_frame_of_dask(labels) and labels.ndim == 2:
        if len(labels.columns) != 1:
            raise DataError(f"y has {len(labels.columns)} columns: give one, such as y['label']")
        labels = labels[labels.columns[0]]
    if _is_array(X) and _is_array(labels):
        rows, given = X.shape[0], labels.shape[0] if labels.ndim else 0
        if not math.isnan(rows) and not math.isnan(given):
            if rows != given:
                raise DataError(f"y has {given} labels, but X has {rows} rows: give one label per row")
            labels = labels.rechunk({0: X.chunks[0]} | dict.fromkeys(range(1, labels.ndim), -1))
    ours, theirs = getattr(X, "divisions", (None,)), getattr(labels, "divisions", (None,))
    if None not in ours and None not in theirs and ours != theirs:
        raise DataError(
            "X and y have other divisions of their index: cut one as the other, with"
            " y.repartition(divisions=X.divisions)"
        )
    blocks = _blocks(labels)
    if len(blocks) != X.npartitions:
        raise DataError(
            f"X has {X.npartitions} blocks and y has {len(blocks)}, of unknown lengths: give both the same chunks or"
            " partitions, or call compute_chunk_sizes() of both first"
        )
    return blocks


def _require_one_index(X: Any, y: Any) -> None:
    """Objects of xarray must have the same coordinates of rows, if both have any."""
    if not (_is_xarray(X) and _is_xarray(y)):
        return
    rows = [found.dims[0] for found in (next(iter(X.data_vars.values())) if hasattr(X, "data_vars") else X, y)]
    own, given = X.indexes.get(rows[0]), y.indexes.get(rows[1])
    if own is not None and given is not None and not own.equals(given):
        raise DataError(
            f"X and y have other coordinates along {rows[0]!r}: align them first, with xarray.align(X, y, join='inner')"
        )


def _blocks(collection: Any) -> list[Any]:
    """The blocks as Delayed objects, after optimising the whole collection."""
    delayed = collection.to_delayed()
    return delayed.ravel().tolist() if isinstance(delayed, np.ndarray) else list(delayed)


def _largest_bytes(X: Any) -> int | None:
    heights = [height for height in X.chunks[0] if not math.isnan(height)]
    return None if len(heights) < len(X.chunks[0]) else int(max(heights) * X.shape[1] * X.dtype.itemsize)
