"""Tables and figures in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["figure", "markdown_table"]


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table.

    >>> print(*markdown_table(["a", "b"], [["1", "2"]]), sep="\\n")
    | a | b |
    | --- | --- |
    | 1 | 2 |
    """
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def figure(value: float) -> str:
    """A number with at least two digits that count.

    >>> figure(1234.5), figure(12.34), figure(1.234), figure(0.01234)
    ('1,234', '12', '1.2', '0.012')
    """
    return f"{value:,.0f}" if value >= 10.0 else f"{value:.2g}"
