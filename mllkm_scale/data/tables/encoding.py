"""From rows of a table to rows of features: the first step of the preparation, kept in the model.

    number, boolean, date   x, or the fill of its column if it is missing; and 1 or 0 for missing or not, if
                            values are missing among the training rows; and, for a number whose values come back
                            often enough, the statistics of the labels of its step: an interval between two edges
    category                a row of a small table, which has one for each level, one for levels that are unknown or
                            rare, and one for a missing value: indicators of the levels (one-hot), or statistics of the
                            labels of the training rows with that level

A step expresses what a smooth function of x cannot: that a value such as 0, 7298 or 7688 has a meaning of its own.
Training rows take statistics of the labels from tables without the rows of their own fold, so that no row uses its own
label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.arrays import Array
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.sources import Source
from mllkm_scale.data.tables.columns import CATEGORY, COLUMN_ARRAYS, Column, Columns
from mllkm_scale.data.tables.translation import Translation
from mllkm_scale.errors import DataError, ModelFileError

__all__ = ["ENCODING_ARRAYS", "METHODS", "Encoding", "FoldTables", "folds_of_rows"]


_LISTED = 2  # number of levels with the same features that are shown
DROPPED, PLAIN, STEPS, ONE_HOT, TARGET = "dropped", "number", "number+steps", "one-hot", "target"
METHODS = (DROPPED, PLAIN, STEPS, ONE_HOT, TARGET)
ENCODING_ARRAYS = (
    "column_names",
    *COLUMN_ARRAYS,
    "column_methods",
    "column_fills",
    "column_widths",
    "level_features",
    "encoded_names",
)
STEP_ARRAYS = ("step_edges", "step_edge_counts", "step_widths")  # only in encodings with steps


@dataclass(frozen=True, eq=False)
class Encoding:
    """Converts the d columns of a table to p features.

    Attributes
    ----------
    columns : Columns
        Columns of the table; for categories, with the levels that have their own row in the table.
    methods : tuple of str
        For each column: "number", "number+steps", "one-hot", "target", or "dropped" for a column without information.
    fills : float64 array (d,)
        Replacement of a missing number.
    widths : int64 array (d,)
        Number of features of each column. A number may have a second feature that marks missing values.
    tables : tuple of float64 array (levels + 2, width) or None
        For each category: features of each level, of other levels, and of a missing value. For a number with steps: the
        last features of each step, and of a missing value.
    feature_names : tuple of str
        Names of the p features.
    edges : tuple of float64 array or None
        For each number with steps: increasing edges between the steps. Empty if no column has steps.

    Examples
    --------
    >>> columns = Columns((Column("size"), Column("colour", "category", ("red", "blue", "green"))))
    >>> tables = (None, np.concatenate([np.eye(3), np.zeros((1, 3)), np.eye(3)[:1]]))
    >>> encoding = Encoding(
    ...     columns, ("number", "one-hot"), np.array([7.0, 0.0]), np.array([1, 3]), tables, ("size", "r", "b", "g")
    ... )
    >>> encoding.apply(np.array([[1.5, 2.0], [np.nan, np.nan]])).tolist()
    [[1.5, 0.0, 0.0, 1.0], [7.0, 1.0, 0.0, 0.0]]
    """

    columns: Columns
    methods: tuple[str, ...]
    fills: NDArray[np.float64]
    widths: NDArray[np.int64]
    tables: tuple[NDArray[np.float64] | None, ...]
    feature_names: tuple[str, ...]
    edges: tuple[NDArray[np.float64] | None, ...] = ()

    @property
    def n_columns(self) -> int:
        """Number of input columns."""
        return len(self.columns)

    @property
    def n_features(self) -> int:
        """Number of output features."""
        return int(self.widths.sum())

    @property
    def size_bytes(self) -> int:
        """Approximate memory of the tables and their levels."""
        levels = sum(60 + len(level) for column in self.columns.columns for level in column.levels)
        return levels + sum(table.nbytes for table in self.tables if table is not None)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The first feature of each column, and p."""
        return np.concatenate([[0], np.cumsum(self.widths)]).astype(np.int64)

    @property
    def indicators(self) -> NDArray[np.bool_]:
        """Which features are 0 or 1, for a level or for a missing value, shape (p,)."""
        found = np.zeros(self.n_features, dtype=bool)
        for j, method in enumerate(self.methods):
            first, after = self.starts[j], self.starts[j + 1]
            if method == ONE_HOT:
                found[first:after] = True
            elif self.marked[j]:
                found[first + 1] = True
        return found

    @cached_property
    def marked(self) -> NDArray[np.bool_]:
        """Which columns are numbers with a feature that marks missing values, shape (d,)."""
        numbers = np.array([method in (PLAIN, STEPS) for method in self.methods], dtype=bool)
        marked: NDArray[np.bool_] = numbers & (self.widths - self.step_widths == 2)
        return marked

    @property
    def step_widths(self) -> NDArray[np.int64]:
        """Number of features of the steps of each column, shape (d,)."""
        steps = [None] * self.n_columns if not self.edges else self.edges
        pairs = zip(steps, self.tables, strict=True)
        return np.array([0 if own is None or table is None else table.shape[1] for own, table in pairs], dtype=np.int64)

    def apply(self, X: Array, folds: FoldTables | None = None, first_row: int = 0) -> NDArray[np.float64]:
        """Features (n, p) of rows (n, d), whose categories are codes of `columns`.

        `folds` and the number of the first row are for training rows.
        """
        encoded = np.empty((len(X), self.n_features))
        places, sources = self._numbers
        values = X[:, sources]
        missing = np.isnan(values)
        encoded[:, places] = np.where(missing, self.fills[sources], values)
        told = self.marked[sources]
        encoded[:, places[told] + 1] = missing[:, told]
        own_fold = None if folds is None else folds_of_rows(first_row, len(X), folds.seed)
        for j, table in enumerate(self.tables):
            if table is None:
                continue
            codes, features = X[:, j], slice(self.starts[j + 1] - table.shape[1], self.starts[j + 1])
            if self.methods[j] == STEPS:
                codes = self.step_of(j, codes)
            rows = np.where(np.isnan(X[:, j]), len(table) - 1, codes).astype(np.int64)
            if folds is not None and j in folds.tables:
                encoded[:, features] = folds.tables[j][own_fold, rows]
            else:
                encoded[:, features] = table[rows]
        return encoded

    def step_of(self, j: int, values: Array) -> NDArray[np.int64]:
        """The step of each value of column `j`, from 0."""
        edges = self.edges[j]
        assert edges is not None
        return np.searchsorted(edges, values, side="right")

    def shown(self, features: Array) -> tuple[str, ...]:
        """The values of a row of the table, recovered from its features (p,); all levels with the same features are
        named.

        A missing value that has the features of a level is shown as that level.
        """
        found = []
        for j, (column, table) in enumerate(zip(self.columns.columns, self.tables, strict=True)):
            own = features[self.starts[j] : self.starts[j + 1]]
            if self.methods[j] == DROPPED:
                found.append("not used")
            elif table is None or self.methods[j] == STEPS:
                found.append("missing" if self.marked[j] and own[1] else f"{own[0]:.6g}")
            else:
                same = (table == own).all(axis=1)
                alike = [(*column.levels, "another level")[row] for row in np.flatnonzero(same[:-1])] or ["missing"]
                found.append(" or ".join(alike) if len(alike) <= _LISTED else f"one of {len(alike):,} levels")
        return tuple(found)

    def dataset(self, dataset: Dataset, folds: FoldTables | None = None) -> Dataset:
        """The rows of a data set as features; nothing is read yet. `folds` are for the training rows.

        Raises
        ------
        DataError
            If the data set has other columns than the encoding. Values that do not fit are refused when they are read.
        """
        translation = self.translation(dataset.columns, dataset.n_features, dataset.name)
        source = EncodedSource(dataset.source, self, translation, folds)
        weights = dataset.weight_source
        encoded = Dataset(source, dataset.label_source, weights=weights, path=dataset.path).with_names(
            self.feature_names
        )
        encoded.indicators = self.indicators
        return encoded

    def translation(self, given: Columns | None, n_features: int, name: str) -> Translation:
        """The translation from the codes of a table with these columns (None for plain numbers) to those of this
        encoding."""
        if n_features != self.n_columns:
            raise DataError(
                f"{name} has {n_features} features per row, but the model was trained with {self.n_columns}: give the"
                " same features in the same order"
            )
        own = Columns((Column(""),) * self.n_columns) if given is None else given
        return Translation.between(own, self.columns, [method != DROPPED for method in self.methods])

    @cached_property
    def codes(self) -> tuple[dict[str, int], ...]:
        """The code of each level, for each column."""
        return tuple({level: code for code, level in enumerate(column.levels)} for column in self.columns.columns)

    @cached_property
    def _numbers(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Indices of numbers among the features, and their columns."""
        sources = [j for j, method in enumerate(self.methods) if method in (PLAIN, STEPS)]
        return self.starts[sources].astype(np.int64), np.array(sources, dtype=np.int64)

    def to_arrays(self) -> dict[str, Array]:
        """The encoding as plain arrays, for a model file."""
        features = [table.ravel() for table in self.tables if table is not None]
        edges = [np.empty(0) if own is None else own for own in self.edges]
        steps = (np.concatenate(edges), np.array(list(map(len, edges))), self.step_widths) if edges else ()
        return {
            **dict(zip(STEP_ARRAYS, steps, strict=False)),
            "column_names": np.array([column.name for column in self.columns.columns], dtype=np.str_),
            **self.columns.to_arrays(),
            "column_methods": np.array(self.methods, dtype=np.str_),
            "column_fills": self.fills,
            "column_widths": self.widths,
            "level_features": np.concatenate([np.empty(0), *features]),
            "encoded_names": np.array(self.feature_names, dtype=np.str_),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Encoding:
        """The encoding that `to_arrays` was called on, bit for bit; inconsistent arrays are refused."""
        missing = [name for name in ENCODING_ARRAYS if name not in arrays]
        _require(not missing, "has no array " + ", ".join(missing))
        names, methods, widths, fills, features, encoded = (
            np.asarray(arrays[key])
            for key in (
                "column_names",
                "column_methods",
                "column_widths",
                "column_fills",
                "level_features",
                "encoded_names",
            )
        )
        _require(names.ndim == 1 and names.dtype.kind == "U", "column_names has another shape or type")
        try:
            columns = Columns.from_arrays(arrays, names.tolist(), "the model")
        except DataError as error:
            raise ModelFileError(str(error)) from error
        d = len(columns)
        kinds = methods.shape == (d,) and methods.dtype.kind == "U" and set(methods.tolist()) <= set(METHODS)
        _require(kinds, "column_methods does not fit the columns")
        _require(widths.shape == (d,) and widths.dtype.kind == "i", "column_widths does not fit the columns")
        _require(fills.shape == (d,) and fills.dtype.kind == "f", "column_fills does not fit the columns")
        _require(features.ndim == 1 and features.dtype.kind == "f", "level_features has another shape or type")
        _require(bool(np.isfinite(fills).all() and np.isfinite(features).all()), "column_fills holds NaN or infinity")
        edges, step_widths = _steps_of(arrays, d)
        tables = _tables_of(columns, methods.tolist(), widths.tolist(), features, edges, step_widths)
        p = int(widths.sum())
        _require(
            p > 0 and encoded.shape == (p,) and encoded.dtype.kind == "U", "encoded_names does not fit the columns"
        )
        return cls(
            columns,
            tuple(methods.tolist()),
            fills.astype(np.float64),
            widths.astype(np.int64),
            tables,
            tuple(encoded.tolist()),
            edges,
        )

    def describe(self) -> list[str]:
        """One line per column: its kind and its features."""
        return [
            f"{self.columns.name(j)}: left out, because it has no information"
            if self.methods[j] == DROPPED
            else f"{column.describe(f'column {j}')}; {self._told(j)}"
            for j, column in enumerate(self.columns.columns)
        ]

    def _told(self, j: int) -> str:
        method, width = self.methods[j], int(self.widths[j])
        if method in (PLAIN, STEPS):
            told = f"missing values become {self.fills[j]:.6g}" + (", and are marked" if self.marked[j] else "")
            edges = self.edges[j] if self.edges else None
            return told if edges is None else f"{told}; statistics of the labels of {len(edges) + 1:,} steps"
        features = f"{width} feature{'s'[: width != 1]}"
        return f"one-hot, {features}" if method == ONE_HOT else f"statistics of the labels, {features}"


@dataclass(frozen=True)
class FoldTables:
    """Tables (folds, levels + 2, width) of the columns with statistics of labels, each without the rows of its fold."""

    tables: dict[int, NDArray[np.float64]]
    seed: int

    @property
    def size_bytes(self) -> int:
        return sum(table.nbytes for table in self.tables.values())


class EncodedSource:
    """Rows of a table as features, computed while reading."""

    def __init__(
        self, source: Source, encoding: Encoding, translation: Translation, folds: FoldTables | None = None
    ) -> None:
        self.name = source.name
        self.shape: tuple[int, ...] = (source.shape[0], encoding.n_features)
        self.dtype = np.dtype(np.float64)
        self._source, self._encoding, self._translation, self._folds = source, encoding, translation, folds
        tables = encoding.size_bytes + (0 if folds is None else folds.size_bytes)
        # Ranges of rows: as stored, as codes with missing values, and as features.
        self.buffer_bytes = source.buffer_bytes + tables + 6 * RUN_BYTES

    def read(self, start: int, stop: int) -> Array:
        """Rows `start` to `stop` as features."""
        encoded = np.empty((stop - start, self.shape[1]))
        run = max(1, RUN_BYTES // (8 * max(self._encoding.n_columns, self.shape[1])))
        for first in range(start, stop, run):
            last = min(first + run, stop)
            rows = self._translation.apply(self._source.read(first, last), first, self.name)
            encoded[first - start : last - start] = self._encoding.apply(rows, self._folds, first)
        return encoded

    def close(self) -> None:
        """Close the source of the rows."""
        self._source.close()


RUN_BYTES = 2**21


def folds_of_rows(first: int, count: int, seed: int, n_folds: int = 5) -> NDArray[np.int64]:
    """The fold of each row: a hash of its number, so that any range of rows can be read separately.

    >>> whole = folds_of_rows(0, 1000, 0)
    >>> bool((folds_of_rows(300, 100, 0) == whole[300:400]).all()), bool(np.bincount(whole).min() > 150)
    (True, True)
    """
    with np.errstate(over="ignore"):  # splitmix64
        z = np.arange(first, first + count, dtype=np.uint64) + np.uint64(seed % 2**64)
        z = (z + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z % np.uint64(n_folds)).astype(np.int64)


def _steps_of(arrays: Mapping[str, Array], d: int) -> tuple[tuple[NDArray[np.float64] | None, ...], NDArray[np.int64]]:
    """The edges of the steps of each column, and their numbers of features; inconsistent arrays are refused."""
    if not any(name in arrays for name in STEP_ARRAYS):
        return (), np.zeros(d, dtype=np.int64)
    _require(all(name in arrays for name in STEP_ARRAYS), "has not all arrays of its steps")
    edges, counts, widths = (np.asarray(arrays[name]) for name in STEP_ARRAYS)
    sizes = all(found.shape == (d,) and found.dtype.kind == "i" for found in (counts, widths))
    _require(sizes and bool(((counts >= 0) & (widths >= 0)).all()), "has counts of steps that do not fit the columns")
    _require(bool(((counts > 0) == (widths > 0)).all()), "has counts of steps that do not fit the columns")
    sound = edges.ndim == 1 and edges.dtype.kind == "f" and sum(counts.tolist()) == len(edges)
    _require(sound and bool(np.isfinite(edges).all()), "has edges of steps that do not fit their counts")
    own = [part.astype(np.float64) for part in np.split(edges, np.cumsum(counts)[:-1])]
    _require(all(bool((np.diff(part) > 0).all()) for part in own), "has edges of steps that do not rise")
    return tuple(part if len(part) else None for part in own), widths.astype(np.int64)


def _tables_of(
    columns: Columns,
    methods: Sequence[str],
    widths: Sequence[int],
    features: Array,
    edges: Sequence[NDArray[np.float64] | None],
    step_widths: NDArray[np.int64],
) -> tuple[NDArray[np.float64] | None, ...]:
    """The table of each column, cut from the features of all levels and steps; inconsistent arrays are refused."""
    tables: list[NDArray[np.float64] | None] = []
    taken = 0
    for j, (column, method, width) in enumerate(zip(columns.columns, methods, widths, strict=True)):
        own = edges[j] if edges else None
        is_category, n_plain = column.kind == CATEGORY, width - int(step_widths[j])
        if method == DROPPED:
            fits = width == 0
        elif method in (PLAIN, STEPS):
            fits = not is_category and n_plain in (1, 2)
        else:
            fits = is_category and width > 0
        fits = fits and (method == STEPS) == (own is not None)
        _require(fits, f"column_widths does not fit the method of column {j}")
        if method in (DROPPED, PLAIN):
            tables.append(None)
            continue
        rows = len(column.levels if own is None else own) + 2
        of_table = width if own is None else int(step_widths[j])
        _require(taken + rows * of_table <= len(features), "level_features is too short")
        tables.append(features[taken : taken + rows * of_table].reshape(-1, of_table).astype(np.float64))
        taken += rows * of_table
    _require(taken == len(features), "level_features is too long")
    return tuple(tables)


def _require(fits: bool, why: str) -> None:
    if not fits:
        raise ModelFileError(f"the model {why}: the file is damaged; copy or train it again")
