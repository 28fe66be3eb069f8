"""Lines of CSV as records: a quoted cell may contain line breaks, as written by spreadsheets.

A record has the number of its first line. If a quote is never closed, only its line is affected: that line is a
separate record, which is refused with its number when its cells are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from mllkm_scale.data.readers.options import Progress, silent
from mllkm_scale.data.readers.streams import text_blocks

__all__ = ["MOST_LINES", "Records", "csv_records", "in_records"]

MOST_LINES = 100
"""Most lines of a record: a quote that is not closed within these lines is an error."""

_OPENING = re.compile(r'(?:^|[,;\t])"')
_WITHIN = re.compile(r'[^"]*(?:""[^"]*)*')

Line = tuple[int, str]


def csv_records(path: Path, progress: Progress = silent) -> Iterator[list[Line]]:
    """Numbered records of a file, plain or gzip, some 4 MB at a time; progress is reported in bytes."""
    return in_records(list(enumerate(lines, first)) for first, lines in text_blocks(path, progress))


def in_records(blocks: Iterable[list[Line]]) -> Iterator[list[Line]]:
    """Blocks of numbered lines as blocks of records."""
    records = Records()
    for lines in blocks:
        yield list(records.take(lines))
    yield list(records.rest())


class Records:
    """Joins the lines of records, for any division into blocks.

    Examples
    --------
    >>> records = Records()
    >>> list(records.take([(1, 'note,kind'), (2, '"two')])), list(records.take([(3, 'lines",cat'), (4, '"open,dog')]))
    ([(1, 'note,kind')], [(2, '"two\\nlines",cat')])
    >>> list(records.rest())
    [(4, '"open,dog')]
    """

    def __init__(self) -> None:
        self._begun: list[Line] = []  # lines of the incomplete record

    @property
    def begun(self) -> bool:
        """Whether the last line ended within quotes."""
        return bool(self._begun)

    def take(self, lines: Iterable[Line]) -> Iterator[Line]:
        """The records that are completed by these lines."""
        for number, line in lines:
            if not self._begun and '"' not in line:
                yield number, line
                continue
            within = _ends_within(line.rstrip("\r\n"), bool(self._begun))
            self._begun.append((number, line))
            if not within:
                yield self._begun[0][0], _joined([text for _, text in self._begun])
                self._begun = []
            elif len(self._begun) == MOST_LINES:
                yield from self._without_the_first()

    def rest(self) -> Iterator[Line]:
        """The remaining lines at the end, after a quote that is never closed."""
        while self._begun:
            yield from self._without_the_first()

    def _without_the_first(self) -> Iterator[Line]:
        (number, line), *others = self._begun
        self._begun = []
        yield number, line
        yield from self.take(others)


def _joined(lines: list[str]) -> str:
    return "\n".join([line.rstrip("\r\n") for line in lines[:-1]] + lines[-1:])


def _ends_within(line: str, within: bool) -> bool:
    """Whether a line ends within a quoted cell, given whether it begins within one.

    >>> _ends_within('a,"b', False), _ends_within('b",c', True), _ends_within('5" pipe,"a",2', False)
    (True, False, False)
    """
    at = 0
    while True:
        if not within:
            opening = _OPENING.search(line, at)
            if opening is None:
                return False
            at = opening.end()
        closing = _WITHIN.match(line, at)
        at = len(line) if closing is None else closing.end()
        if at == len(line):
            return True
        at, within = at + 1, False
