"""What the user may choose when a file is converted, and how progress is told."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["LAST_COLUMN", "ConvertOptions", "Progress", "silent"]

Progress = Callable[[int, int], object]
LAST_COLUMN = -1


@dataclass(frozen=True)
class ConvertOptions:
    """Choices of one conversion; see `convert` for what they mean in each format."""

    x: str | None = None
    y: str | os.PathLike[str] | None = None
    label_column: str | int | None = LAST_COLUMN
    sample_weight: str | int | None = None
    header: bool | None = None
    hold_out: float | None = None
    seed: int = 0
    categories: tuple[str | int, ...] = ()
    as_number: tuple[str | int, ...] = ()


def silent(done: int, total: int) -> None:
    """Report nothing."""
