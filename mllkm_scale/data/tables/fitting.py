"""Fits the encoding of a table on training rows in one pass.

    statistic of a level = (rows of the class with this level + a prior) / (rows with this level + a)

The prior is the share of the class among all rows, and a is `SMOOTHING`. A number also has such statistics if few
values make up most of its rows. They are over steps, which are single values, or ranges of rare values between them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.units import format_bytes
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.labels import encode_labels, n_outputs
from mllkm_scale.data.preparation.quantile_sketch import QuantileSketch, buffer_rows
from mllkm_scale.data.tables.columns import BOOLEAN, CATEGORY, NUMBER, Column, Columns
from mllkm_scale.data.tables.encoding import (
    DROPPED,
    ONE_HOT,
    PLAIN,
    STEPS,
    TARGET,
    Encoding,
    FoldTables,
    folds_of_rows,
)
from mllkm_scale.data.tables.steps import ValueCounts, most_values
from mllkm_scale.errors import BudgetError, DataError

__all__ = [
    "LEAST_ROWS",
    "SMOOTHING",
    "fit_encoding",
    "require_numbers",
]


MOST_INDICATORS = 16
"""Largest number of levels of a category with an indicator for each; with more levels, statistics of the labels are
used."""

LEAST_ROWS = 5
"""A level with fewer training rows is rare: rare levels share features with unknown levels. In tables with fewer than
200 rows, the limit is lower."""

SMOOTHING = 10.0
"""Weight of the prior in a statistic of the labels, in rows."""

FOLDS = 5


def fit_encoding(
    dataset: Dataset,
    *,
    seed: int = 0,
    most_indicators: int = MOST_INDICATORS,
    least_rows: int | None = None,
    budget_bytes: int | None = None,
    open_ended: bool = False,
) -> tuple[Encoding, FoldTables]:
    """The encoding of a table, and the tables by which its training rows are encoded.

    Parameters
    ----------
    dataset : Dataset
        With `columns`, and labels.
    seed : int
        Seed of the folds.
    most_indicators, least_rows : int
        Largest number of levels of a category encoded by indicators; smallest number of rows of a level that is not
        rare, by default `LEAST_ROWS`, or one more than a fiftieth of the rows if that is less.
    budget_bytes : int, optional
        Memory for the pass; a BudgetError states what it needs.
    open_ended : bool
        Whether new levels will arrive later: they then have their own feature, even if no level is rare.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from mllkm_scale.data.tables.frames import table_dataset
    >>> table = pa.table({"size": [1.0, None, 3.0, 5.0], "colour": ["red", "red", "blue", "blue"]})
    >>> encoding, folds = fit_encoding(table_dataset(table, ["no", "no", "yes", "yes"]))
    >>> encoding.feature_names
    ('size', 'size missing', 'colour=blue')
    >>> encoding.dataset(table_dataset(table)).chunk(0).tolist()
    [[1.0, 0.0, 0.0], [3.0, 1.0, 0.0], [3.0, 0.0, 1.0], [5.0, 0.0, 1.0]]
    """
    columns = dataset.columns
    if columns is None:
        columns = Columns(tuple(Column(name) for name in dataset.feature_names or [""] * dataset.n_features))
    if least_rows is None:
        least_rows = min(LEAST_ROWS, 1 + dataset.n_rows // 50)
    classes, labels = encode_labels(dataset.labels())
    n_statistics = n_outputs(len(classes)) if n_outputs(len(classes)) <= most_indicators else 0
    step_rows = 0 if open_ended else dataset.n_rows
    needed = _fitting_bytes(columns, n_statistics, most_indicators, step_rows=step_rows)
    if budget_bytes is not None and needed > budget_bytes:
        raise BudgetError(
            f"the levels of the categories of {dataset.name} need {format_bytes(needed)} to be counted, of a budget of"
            f" which {format_bytes(budget_bytes)} are left for it: raise memory_budget, or group levels"
        )
    counts = _count(dataset, columns, labels, len(classes), n_statistics, most_indicators, seed, step_rows)
    fitted = [
        _category(counts, j, column, classes, most_indicators, least_rows, open_ended)
        if column.kind == CATEGORY
        else _number(counts, j, column, columns.name(j), classes)
        for j, column in enumerate(columns.columns)
    ]
    encoding = Encoding(
        columns=Columns(tuple(part.column for part in fitted)),
        methods=tuple(part.method for part in fitted),
        fills=np.array([part.fill for part in fitted]),
        widths=np.array([len(part.names) for part in fitted], dtype=np.int64),
        tables=tuple(part.table for part in fitted),
        feature_names=tuple(name for part in fitted for name in part.names),
        edges=tuple(part.edges for part in fitted) if any(part.edges is not None for part in fitted) else (),
    )
    if not encoding.n_features:
        raise DataError(f"{dataset.name} has no column with information: each is missing or the same in all rows")
    tables = {j: part.folds for j, part in enumerate(fitted) if part.folds is not None}
    return encoding, FoldTables(tables, seed)


def require_numbers(dataset: Dataset, then: str) -> None:
    """Refuse a table if only numbers are supported."""
    for j, column in enumerate(() if dataset.columns is None else dataset.columns.columns):
        if column.kind == CATEGORY:
            raise DataError(
                f"{dataset.name}: column {j} {column.name!r} (0-based) is a category, and only numbers can be {then}"
                " here: encode it as numbers"
            )


def _fitting_bytes(
    columns: Columns, n_statistics: int, most_indicators: int = MOST_INDICATORS, step_rows: int = 0
) -> int:
    """Memory of the counts, and of the tables made from them; `step_rows` is the number of rows for steps."""
    n_numbers, n_counts = _step_sizes(columns, n_statistics)
    total = 24 * n_numbers * most_values(n_numbers, step_rows, n_counts) * (n_counts + 1)
    for column in columns.columns:
        n = len(column.levels) + 2
        total += 16 * n
        if len(column.levels) > most_indicators:
            total += 8 * n * (n_statistics + 1) * (3 * FOLDS + 2)
    return total


def _step_sizes(columns: Columns, n_statistics: int) -> tuple[int, int]:
    """The number of numeric columns that may have steps, and the number of counts of each value."""
    numbers = sum(column.kind == NUMBER for column in columns.columns) if n_statistics else 0
    return numbers, FOLDS * (1 + n_statistics)


@dataclass
class _Counts:
    """The counts of one pass, by column."""

    n_rows: int
    present: NDArray[np.int64]  # number of values that are not missing
    ones: NDArray[np.float64]  # sums, used for booleans
    levels: dict[int, NDArray[np.int64]]  # rows of each level, and then rows without a value
    folds: dict[int, NDArray[np.float64]]  # (folds, levels + 1, 1 + statistics): rows, and rows of each class
    sketches: dict[int, QuantileSketch]
    class_folds: NDArray[np.float64]  # (folds, 1 + statistics)
    values: dict[int, ValueCounts]  # of numbers


def _count(
    dataset: Dataset,
    columns: Columns,
    labels: Array,
    n_classes: int,
    n_statistics: int,
    most_indicators: int,
    seed: int,
    step_rows: int,
) -> _Counts:
    d, kinds = len(columns), [column.kind for column in columns.columns]
    sizes = {j: len(columns[j].levels) + 1 for j in range(d) if kinds[j] == CATEGORY}
    big = [j for j, size in sizes.items() if size - 1 > most_indicators and n_statistics]
    numbers = [j for j in range(d) if kinds[j] not in (CATEGORY, BOOLEAN)]
    k = buffer_rows(max(1, len(numbers)))
    n_stepped, n_counts = _step_sizes(columns, n_statistics)
    most = most_values(n_stepped, step_rows, n_counts)
    counts = _Counts(
        n_rows=dataset.n_rows,
        present=np.zeros(d, dtype=np.int64),
        ones=np.zeros(d),
        levels={j: np.zeros(size, dtype=np.int64) for j, size in sizes.items()},
        folds={j: np.zeros((FOLDS, sizes[j], 1 + n_statistics)) for j in big},
        sketches={j: QuantileSketch(1, k) for j in numbers},
        class_folds=np.zeros((FOLDS, 1 + n_statistics)),
        values={j: ValueCounts(most, FOLDS, 1 + n_statistics) for j in numbers if kinds[j] == NUMBER and most > 0},
    )
    counted = range(n_classes) if n_statistics > 1 else range(1, 2)  # with two classes, only the second
    for start, chunk in dataset.chunks():
        own, fold = labels[start : start + len(chunk)], folds_of_rows(start, len(chunk), seed, FOLDS)
        missing = np.isnan(chunk)
        _require_sound(chunk, missing, start, dataset, columns, sizes)
        counts.present += (~missing).sum(axis=0)
        ones = np.stack([np.ones(len(own)), *(own == c for c in counted)], axis=1)[:, : 1 + n_statistics]
        np.add.at(counts.class_folds, fold, ones)
        for j in range(d):
            if j in sizes:
                codes = np.where(missing[:, j], sizes[j] - 1, chunk[:, j]).astype(np.int64)
                counts.levels[j] += np.bincount(codes, minlength=sizes[j])
                if j in counts.folds:
                    np.add.at(counts.folds[j], (fold, codes), ones)
            elif kinds[j] == BOOLEAN:
                counts.ones[j] += chunk[~missing[:, j], j].sum()
            elif not missing[:, j].all():
                counts.sketches[j].update(chunk[~missing[:, j], j : j + 1])
                if j in counts.values:
                    counts.values[j].update(chunk[:, j], fold, ones)
    return counts


def _require_sound(
    chunk: Array, missing: Array, start: int, dataset: Dataset, columns: Columns, sizes: dict[int, int]
) -> None:
    """Refuse infinity, and invalid codes."""
    wrong = np.isinf(chunk)
    for j, size in sizes.items():
        codes = chunk[:, j]
        wrong[:, j] |= ~missing[:, j] & ((codes < 0) | (codes >= size - 1) | (codes != np.floor(codes)))
    for j, column in enumerate(columns.columns):
        if column.kind == BOOLEAN:
            wrong[:, j] |= ~missing[:, j] & (chunk[:, j] != 0) & (chunk[:, j] != 1)
    if wrong.any():
        row, j = (int(number) for number in np.argwhere(wrong)[0])
        what = "infinity" if np.isinf(chunk[row, j]) else f"{chunk[row, j]:g}, which no {columns[j].kind} is coded by"
        raise DataError(
            f"{dataset.name} has {what} at row {start + row}, column {j} {columns.name(j)!r} (0-based):"
            " remove or replace it, then train"
        )


@dataclass
class _Fitted:
    """One column, encoded."""

    column: Column
    method: str
    names: list[str]
    fill: float = 0.0
    table: NDArray[np.float64] | None = None
    folds: NDArray[np.float64] | None = None
    edges: NDArray[np.float64] | None = None


def _dropped(column: Column) -> _Fitted:
    """A column without information: its later values are read as text, and ignored."""
    return _Fitted(Column(column.name, CATEGORY), DROPPED, [])


def _number(counts: _Counts, j: int, column: Column, name: str, classes: Array) -> _Fitted:
    """The number itself, with an indicator of missing values if there are any, and the statistics of its steps.

    The fill is a median or the mode.
    """
    present = int(counts.present[j])
    if not present:
        return _dropped(column)
    if column.kind == BOOLEAN:
        fill = float(counts.ones[j] * 2 > present)
    else:
        values, weights = counts.sketches[j].sample(0)
        order = np.argsort(values, kind="stable")
        below = np.cumsum(weights[order])
        fill = float(values[order][np.searchsorted(below, 0.5 * below[-1])])
    names = [name, f"{name} missing"][: 1 + (present < counts.n_rows)]
    steps = counts.values[j].steps() if j in counts.values else None
    if steps is None:
        return _Fitted(column, PLAIN, names, fill)
    edges, of_steps = steps
    table, folds = _shares(np.concatenate([of_steps, np.zeros_like(of_steps[:, :1])], axis=1), counts.class_folds)
    told = classes[1:] if len(classes) == 2 else classes
    names += [f"{name}: share of {label}" for label in told.tolist()]
    return _Fitted(column, STEPS, names, fill, table, folds, edges)


def _category(
    counts: _Counts,
    j: int,
    column: Column,
    classes: Array,
    most: int,
    least_rows: int,
    open_ended: bool,
) -> _Fitted:
    name, n_levels = column.name or f"column {j}", len(column.levels)
    rows, missing = counts.levels[j][:-1], int(counts.levels[j][-1])
    kept = np.flatnonzero(rows >= least_rows)
    if len(kept) > most and j in counts.folds:
        return _statistics(counts.folds[j], counts.class_folds, kept, column, name, classes, missing)
    if len(kept) > most:  # too many classes for statistics: the most frequent levels have indicators
        kept = np.sort(np.argsort(-rows, kind="stable")[:most])
    others = int(rows.sum() - rows[kept].sum())
    elsewhere = open_ended or others > 0
    names = [f"{name}={column.levels[code]}" for code in kept]
    names += [f"{name}=(other)"][:elsewhere] + [f"{name} missing"][: missing > 0]
    shares = np.append(rows[kept], [others] * elsewhere + [missing] * (missing > 0)) / max(1, counts.n_rows)
    places = len(names)
    left = Column(column.name, column.kind, tuple(column.levels[code] for code in kept))
    if places < 2 or not n_levels:
        return _dropped(column)
    table = np.zeros((len(kept) + 2, places))
    table[np.arange(len(kept)), np.arange(len(kept))] = 1.0
    if elsewhere:
        table[-2, len(kept)] = 1.0
    if missing:
        table[-1, -1] = 1.0
    elif len(kept):
        table[-1] = table[int(np.argmax(rows[kept]))]
    else:
        table[-1] = table[-2]
    if places == 2:  # the first is 1 minus the second: one feature suffices, and an unknown level is in between
        if not elsewhere:
            table[-2, 1] = shares[1]
        table, names = np.ascontiguousarray(table[:, 1:]), names[1:]
    return _Fitted(left, ONE_HOT, names, table=table)


def _statistics(
    folds: Array,
    class_folds: Array,
    kept: Array,
    column: Column,
    name: str,
    classes: Array,
    missing: int,
) -> _Fitted:
    """Smoothed shares of the classes among the rows of each level: over all rows, and without the rows of each fold."""

    # Levels, unknown ones, and missing values, which are a separate level if there are any.
    own = np.concatenate([folds[:, kept], np.zeros_like(folds[:, :1]), folds[:, -1:]], axis=1)
    table, tables = _shares(own, class_folds)
    if missing:
        mark = np.eye(len(table))[:, -1:]
        table = np.concatenate([table, mark], axis=1)
        tables = np.concatenate([tables, np.broadcast_to(mark, (len(tables), *mark.shape))], axis=2)
    told = classes[1:] if len(classes) == 2 else classes
    names = [f"{name}: share of {label}" for label in told.tolist()] + [f"{name} missing"][: missing > 0]
    return _Fitted(
        Column(column.name, column.kind, tuple(column.levels[code] for code in kept)),
        TARGET,
        names,
        table=table,
        folds=tables,
    )


def _shares(counts: Array, class_folds: Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Smoothed shares of the classes for each level: over all rows, and for each fold over the rows of the others.

    `counts` are the rows of each fold and level, and those of each class: (folds, levels, 1 + S).
    """

    def shares(own: Array, total: Array) -> NDArray[np.float64]:
        prior = total[1:] / max(1.0, total[0])
        table: NDArray[np.float64] = (own[:, 1:] + SMOOTHING * prior) / (own[:, :1] + SMOOTHING)
        return table

    whole, total = counts.sum(axis=0), class_folds.sum(axis=0)
    left = [shares(whole - own, total - part) for own, part in zip(counts, class_folds, strict=True)]
    return shares(whole, total), np.stack(left)
