"""Results as tables on a terminal that can show them, and as plain text everywhere else.

Pipes, files and dumb terminals get the text that they always got; NO_COLOR is obeyed by Rich.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mllkm_scale.cli.group import say
from mllkm_scale.printable import printable

if TYPE_CHECKING:
    from rich.table import Table as RichTable

__all__ = ["Facts", "Table", "plain_table", "tell"]

STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


@dataclass(frozen=True)
class Table:
    """Headings and rows of texts.

    Headings with a leading ``>`` are of columns that are flush right, and one without text is of levels such as "ok".
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""


@dataclass(frozen=True)
class Facts:
    """Names and what is to be said of each."""

    values: Mapping[str, str] = field(default_factory=dict)


Part = str | Table | Facts


def tell(plain: Callable[[], str], parts: Callable[[], Iterable[Part]]) -> None:
    """Print the parts on a terminal that can show tables, and the plain text otherwise."""
    if not _shows_tables():
        say(plain())
        return
    from rich.console import Console

    # Names of files and classes are shown as they are: "[a]" is no markup, and ":on:" no picture.
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    for part in parts():
        console.print(printable(part, keep="\n") if isinstance(part, str) else _drawn(part))


def plain_table(table: Table) -> str:
    """A table as text, its columns as wide as their longest text.

    >>> print(plain_table(Table(["name", ">rows"], [["usps", "7,291"], ["wine", "178"]])))
    name   rows
    usps  7,291
    wine    178
    """
    names = [heading.removeprefix(">") for heading in table.headings]
    rows = [[printable(cell) for cell in row] for row in table.rows]
    widths = [max(len(row[place]) for row in [names, *rows]) for place in range(len(names))]
    right = [heading.startswith(">") for heading in table.headings]
    lines = [
        "  ".join(
            text.rjust(width) if flush else text.ljust(width)
            for text, width, flush in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in [names, *rows]
    ]
    return "\n".join([table.title, *lines] if table.title else lines)


def _shows_tables() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def _drawn(part: Table | Facts) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    if isinstance(part, Facts):
        grid = RichTable.grid(padding=(0, 2))
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in part.values.items():
            grid.add_row(printable(name), printable(value))
        return grid
    drawn = RichTable(box=box.SIMPLE_HEAD, title=part.title or None, title_justify="left", title_style="bold")
    for heading in part.headings:
        options: dict[str, Any] = {"justify": "right", "no_wrap": True} if heading.startswith(">") else {}
        drawn.add_column(heading.removeprefix(">"), overflow="fold", **options)
    for row in part.rows:
        cells = zip(part.headings, row, strict=True)
        drawn.add_row(
            *(Text(printable(cell), style="" if heading else STYLES.get(cell, "")) for heading, cell in cells)
        )
    return drawn
