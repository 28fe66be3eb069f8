"""Options for reading a table, and the report of progress."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mllkm_scale.data.tables.columns import Columns

__all__ = ["LAST_COLUMN", "KnownTable", "Pick", "Progress", "ReadOptions", "all_columns", "silent"]

Progress = Callable[[int, int], object]
LAST_COLUMN = -1

Pick = Callable[[Sequence[str] | None], Sequence[int] | None]
"""Given the names of the columns that are not the label, None if they have none: the positions of those that are taken,
in the order in which they are taken; or None for all of them as they stand."""


def all_columns(names: Sequence[str] | None) -> None:
    """Take all columns as they stand."""


def silent(done: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class KnownTable:
    """Columns that a file must have because those of another one are known: of training rows, or of a model.

    `plain` says that they are numbers of which none may be missing.
    """

    columns: Columns
    plain: bool
    pick: Pick = field(default=all_columns, repr=False)


@dataclass(frozen=True)
class ReadOptions:
    """Which columns of a table are the labels and the weights, and what the others hold; see `convert`."""

    label_column: str | int | None = LAST_COLUMN
    sample_weight: str | int | None = None
    header: bool | None = None
    categories: tuple[str | int, ...] = ()
    as_number: tuple[str | int, ...] = ()
    known: KnownTable | None = None
