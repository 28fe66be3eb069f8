"""The columns of a table, and the representation of a table as a matrix of numbers.

A row of a table is stored as d numbers: a number itself, a boolean as 0 or 1, a date as days since 1970, and a category
as its code, which is the index of its text among the levels of the column. A missing value is NaN. Three arrays beside
the matrix X describe the columns:

    column_kinds (d,)             "number", "category", "boolean" or "date"
    column_levels (total,)        the levels of all categories, column after column
    column_level_starts (d + 1,)  the levels of column j are column_levels[starts[j] : starts[j + 1]]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.errors import DataError

__all__ = [
    "BOOLEAN",
    "CATEGORY",
    "COLUMN_ARRAYS",
    "DATE",
    "KINDS",
    "MAX_ALL_LEVELS",
    "MAX_LEVELS",
    "MAX_LEVEL_BYTES",
    "MAX_LEVEL_LENGTH",
    "NUMBER",
    "Column",
    "Columns",
    "LevelCount",
]

NUMBER, CATEGORY, BOOLEAN, DATE = "number", "category", "boolean", "date"
KINDS = (NUMBER, CATEGORY, BOOLEAN, DATE)
COLUMN_ARRAYS = ("column_kinds", "column_levels", "column_level_starts")

MAX_LEVELS = 100_000
"""Largest number of levels of a column."""

MAX_ALL_LEVELS = 1_000_000
"""Largest number of levels of all columns of a table."""

MAX_LEVEL_LENGTH = 1_000
"""Largest number of characters of a level."""

MAX_LEVEL_BYTES = 64_000_000
"""Largest number of bytes of all levels of a table, in UTF-8."""


@dataclass(frozen=True)
class Column:
    """One column of a table: its name ("" for none), its kind, and the levels of a category.

    Examples
    --------
    >>> Column("colour", "category", ("red", "blue")).describe()
    "colour: category of 2 levels ('red', 'blue')"
    """

    name: str
    kind: str = NUMBER
    levels: tuple[str, ...] = ()

    def describe(self, called: str = "") -> str:
        """A description on one line; `called` replaces a missing name."""
        name = self.name or called
        if self.kind != CATEGORY:
            return f"{name}: {self.kind}"
        listed = ", ".join(repr(level[:20]) for level in self.levels[:4]) + (", ..." if len(self.levels) > 4 else "")
        return f"{name}: category of {len(self.levels):,} level{'s'[: len(self.levels) != 1]} ({listed})"


@dataclass(frozen=True)
class Columns:
    """The columns of a table, in order.

    Examples
    --------
    >>> columns = Columns((Column("size"), Column("colour", "category", ("red", "blue"))))
    >>> Columns.from_arrays(columns.to_arrays(), ["size", "colour"], "pets.h5") == columns
    True
    """

    columns: tuple[Column, ...]

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, j: int) -> Column:
        return self.columns[j]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns; "column 3" for the fourth column if it has no name."""
        return tuple(self.name(j) for j in range(len(self)))

    def name(self, j: int) -> str:
        """The name of column `j`."""
        return self.columns[j].name or f"column {j}"

    def describe(self) -> list[str]:
        """One line per column."""
        return [column.describe(f"column {j}") for j, column in enumerate(self.columns)]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Kinds and levels as plain arrays; names are stored separately."""
        levels = [level for column in self.columns for level in column.levels]
        counts = [len(column.levels) for column in self.columns]
        return {
            "column_kinds": np.array([column.kind for column in self.columns], dtype=np.str_),
            "column_levels": np.array(levels, dtype=np.str_),
            "column_level_starts": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], names: Sequence[str] | None, source: str) -> Columns:
        """The columns that `to_arrays` was called on; inconsistent arrays are refused with the name of `source`."""
        kinds, levels, starts = (np.asarray(arrays[key]) for key in COLUMN_ARRAYS)
        d = len(kinds) if kinds.ndim == 1 else 0
        fits = (
            d > 0
            and kinds.dtype.kind == "U"
            and set(kinds.tolist()) <= set(KINDS)
            and levels.ndim == 1
            and (levels.dtype.kind == "U" or not len(levels))
            and starts.shape == (d + 1,)
            and starts.dtype.kind in "iu"
            and starts[0] == 0
            and starts[-1] == len(levels)
            and bool((starts[1:] >= starts[:-1]).all())
            and bool((np.diff(starts.astype(np.int64))[kinds != CATEGORY] == 0).all())
            and (names is None or len(names) == d)
        )
        if not fits:
            raise DataError(
                f"{source} has kinds and levels of columns that do not fit together: the file is damaged; convert it"
                " again"
            )
        called = [""] * d if names is None else list(names)
        texts, total = levels.tolist(), LevelCount(source)
        columns = []
        for j in range(d):
            own = tuple(texts[int(starts[j]) : int(starts[j + 1])])
            total.add(own, called[j] or f"column {j}", len(own))
            if len(set(own)) < len(own):
                raise DataError(f"{source}: a level of {called[j] or j!r} is there twice: convert the table again")
            columns.append(Column(called[j], str(kinds[j]), own))
        return cls(tuple(columns))


class LevelCount:
    """Counts levels, and refuses too many or too long ones."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._bytes = self._levels = 0

    def add(self, levels: Sequence[str], name: str, n_levels: int) -> None:
        """Add levels of the column `name`, which then has `n_levels`."""
        if n_levels > MAX_LEVELS:
            raise DataError(
                f"{self.source}: column {name!r} has more than {MAX_LEVELS:,} levels: remove it if it names the rows,"
                " or group its values"
            )
        if any(len(level) > MAX_LEVEL_LENGTH for level in levels):
            raise DataError(
                f"{self.source}: column {name!r} has a text of more than {MAX_LEVEL_LENGTH:,} characters, too long for"
                " a category: remove the column, or shorten its texts"
            )
        self._bytes += sum(len(level.encode("utf-8", "replace")) for level in levels)
        self._levels += len(levels)
        if self._bytes > MAX_LEVEL_BYTES or self._levels > MAX_ALL_LEVELS:
            raise DataError(
                f"{self.source}: its categories have more than {MAX_ALL_LEVELS:,} levels or {MAX_LEVEL_BYTES:,} bytes"
                f" in all, with column {name!r}: remove columns of free text, or group their values"
            )
