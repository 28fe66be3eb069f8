"""The table of the live display: a line a round, in as many columns as the terminal has room for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mllkm_scale.base.events import Round
from mllkm_scale.base.units import format_bytes
from mllkm_scale.base.wording import clock, idle_percent, rate, seconds, seen_gap

__all__ = ["Column", "choose_columns", "heading", "row"]


@dataclass(frozen=True)
class Column:
    """A heading, a width in characters, and what stands in it for a round."""

    heading: str
    width: int
    cell: Callable[[Round], str]
    of_workers: bool = False


COLUMNS = (
    Column("round", 5, lambda event: str(event.number)),
    Column("gap", 8, seen_gap),
    Column("kernels", 14, lambda event: f"{event.n_active}/{event.n_open}"),
    Column("support", 8, lambda event: str(event.n_support)),
    Column("scan/s", 7, lambda event: rate(event.kernels_per_s)),
    Column("workers", 7, lambda event: str(event.n_workers), of_workers=True),
    Column("idle", 5, idle_percent, of_workers=True),
    Column("waited", 7, lambda event: seconds(event.waited_s), of_workers=True),
    Column("memory", 15, lambda event: f"{format_bytes(event.rss_bytes)}/{format_bytes(event.budget_bytes)}"),
    Column("elapsed", 8, lambda event: clock(event.elapsed_s)),
    Column("left", 8, lambda event: clock(event.left_s)),
)
# The live line below the table has memory and times as well.
LEAST_MISSED = ("memory", "support", "waited", "left", "elapsed", "idle", "workers", "scan/s")


def choose_columns(width: int, workers: bool) -> tuple[Column, ...]:
    """The columns for a terminal of this width, with or without those about workers.

    >>> [column.heading for column in choose_columns(50, workers=False)]
    ['round', 'gap', 'kernels', 'scan/s', 'elapsed']
    """
    chosen = [column for column in COLUMNS if workers or not column.of_workers]
    for name in LEAST_MISSED:
        if len(heading(chosen)) <= width:
            break
        chosen = [column for column in chosen if column.heading != name]
    return tuple(chosen)


def heading(columns: Sequence[Column]) -> str:
    """The first line of the table."""
    return " ".join(column.heading.rjust(column.width) for column in columns)


def row(columns: Sequence[Column], event: Round) -> str:
    """The line of a round."""
    return " ".join(column.cell(event).rjust(column.width) for column in columns)
