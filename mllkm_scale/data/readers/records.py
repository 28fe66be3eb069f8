"""Lines of CSV as records: a cell in quotes may hold line breaks, as spreadsheets write them.

A record is called by the number of its first line. A quote that is never closed takes no more than the line that it is
in: that line is a record of its own, which is refused by its number where its cells are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from mllkm_scale.data.readers.options import Progress, silent
from mllkm_scale.data.readers.streams import text_blocks

__all__ = ["MOST_LINES", "Records", "csv_records", "in_records"]

MOST_LINES = 100
"""Most lines of a record: a quote that is not closed within so many is a mistake."""

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
    """Puts the lines of records together, however they come in blocks.

    Examples
    --------
    >>> records = Records()
    >>> list(records.take([(1, 'note,kind'), (2, '"two')])), list(records.take([(3, 'lines",cat'), (4, '"open,dog')]))
    ([(1, 'note,kind')], [(2, '"two\\nlines",cat')])
    >>> list(records.rest())
    [(4, '"open,dog')]
    """

    def __init__(self) -> None:
        self._begun: list[Line] = []  # lines of the record that is not yet ended

    @property
    def begun(self) -> bool:
        """Whether the last line ended within quotes."""
        return bool(self._begun)

    def take(self, lines: Iterable[Line]) -> Iterator[Line]:
        """The records that these lines end."""
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
        """What is left at the end: lines after a quote that nothing closes."""
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
    """Whether a line ends within a cell in quotes, if it begins within one or not.

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
