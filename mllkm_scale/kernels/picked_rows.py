"""Some rows of a source that may be on disk; only one run of them is in memory at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from mllkm_scale.base.arrays import Array

if TYPE_CHECKING:
    from mllkm_scale.kernels.grid import RowSource

__all__ = ["PickedRows", "Rows", "pick"]


class Rows(Protocol):
    """Rows that are indexed by slices or lists of positions: an array, or rows that are read on demand."""

    def __len__(self) -> int: ...
    def __getitem__(self, places: Any, /) -> Any: ...


@dataclass(frozen=True)
class PickedRows:
    """The rows of a source with these numbers, read on demand."""

    source: RowSource
    numbers: Array

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, places: slice | Array, /) -> Array:
        return self.source.rows(self.numbers[places])


def pick(source: RowSource, numbers: Array, most_bytes: float) -> Rows:
    """These rows: in memory if they take at most `most_bytes`, otherwise read on demand."""
    rows = PickedRows(source, numbers)
    row_bytes = rows[:1].nbytes
    return rows[:] if len(rows) * row_bytes <= most_bytes else rows
