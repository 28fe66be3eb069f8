"""From the codes of one table to those of another: the columns of a file as those that an encoding was fitted on.

category to category    by the text of the levels; levels that are not known have a code of their own
number to category      by value, if each level is the text of a number
other kinds             refused, at the first value that is not missing
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.arrays import Array
from mllkm_scale.data.tables.cells import is_number
from mllkm_scale.data.tables.columns import BOOLEAN, CATEGORY, NUMBER, Columns
from mllkm_scale.errors import DataError

__all__ = ["Translation"]


@dataclass(frozen=True)
class Translation:
    """Translates the codes of a table to those of an encoding.

    `refused` are columns of another kind, and `numbers` the codes of categories that the table has as numbers.
    """

    given: Columns
    trained: Columns
    codes: tuple[NDArray[np.float64] | None, ...]
    refused: tuple[int, ...]
    numbers: dict[int, dict[float, int]]

    @classmethod
    def between(cls, given: Columns, trained: Columns, used: Sequence[bool]) -> Translation:
        """The translation from the columns that are given to those of an encoding, of which some may be not `used`."""
        codes: list[NDArray[np.float64] | None] = []
        refused, numbers = [], {}
        for j, (there, wanted) in enumerate(zip(given.columns, trained.columns, strict=True)):
            table = None
            if not used[j]:
                pass
            elif wanted.kind == CATEGORY and there.kind == CATEGORY:
                known = {level: code for code, level in enumerate(wanted.levels)}
                table = np.array([known.get(level, len(known)) for level in there.levels] + [len(known)], np.float64)
            elif wanted.kind == CATEGORY and there.kind == NUMBER and _are_numbers(wanted.levels):
                numbers[j] = {float(level): code for code, level in enumerate(wanted.levels)}
            elif wanted.kind != there.kind and not (there.kind == NUMBER and wanted.kind != CATEGORY):
                refused.append(j)
            codes.append(table)
        return cls(given, trained, tuple(codes), tuple(refused), numbers)

    def apply(self, X: Array, first_row: int, name: str) -> NDArray[np.float64]:
        """Rows with the codes of the encoding; a DataError names the first value that cannot be encoded."""
        rows = np.array(X, dtype=np.float64)

        def cell(row: Any, j: int) -> str:
            called = self.given[j].name or self.trained.name(j)
            return f"{name}: row {first_row + int(row)}, column {j} {called!r} (0-based)"

        infinite = np.argwhere(np.isinf(rows))
        if len(infinite):
            raise DataError(f"{cell(infinite[0][0], int(infinite[0][1]))} is infinity: correct it or leave it empty")
        for j in self.refused:
            given = np.flatnonzero(~np.isnan(rows[:, j]))
            if len(given):
                raise DataError(
                    f"{cell(given[0], j)} is a {self.given[j].kind}, but the model was trained with a"
                    f" {self.trained[j].kind} in this column: {_remedy(self.trained[j].kind)}"
                )
        for j, known in self.numbers.items():
            values, places = np.unique(rows[:, j], return_inverse=True)
            codes = [value if np.isnan(value) else known.get(value, len(known)) for value in values.tolist()]
            rows[:, j] = np.array(codes)[places]
        for j, table in enumerate(self.codes):
            missing = np.isnan(rows[:, j])
            plain = np.where(missing, 0, rows[:, j])
            if table is not None:
                wrong = np.flatnonzero((plain < 0) | (plain >= len(table)) | (plain != np.floor(plain)))
                if len(wrong):
                    raise DataError(
                        f"{cell(wrong[0], j)} is {plain[wrong[0]]:g}, which is no code of its {len(table) - 1} levels:"
                        " the file is damaged; convert it again"
                    )
                rows[:, j] = np.where(missing, np.nan, table[plain.astype(np.int64)])
            elif self.trained[j].kind == BOOLEAN and j not in self.refused:
                wrong = np.flatnonzero((plain != 0) & (plain != 1))
                if len(wrong):
                    raise DataError(
                        f"{cell(wrong[0], j)} is {plain[wrong[0]]:g}, but the model was trained with true and false"
                        " in this column: give these, or 1 and 0"
                    )
        return rows


def _are_numbers(levels: tuple[str, ...]) -> bool:
    """Whether the text of each level is the normal form of a number, unlike "01"."""
    return bool(levels) and all(is_number(level) and _plain(float(level)) == level for level in levels)


def _plain(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


def _remedy(kind: str) -> str:
    if kind == CATEGORY:
        return "convert it with --categories and the name of this column, or predict from the table itself"
    if kind == NUMBER:
        return "convert it with --as-number and the name of this column, and correct the cells that are not numbers"
    return f"give {'true or false' if kind == BOOLEAN else 'dates'}, or numbers"
