"""Samples of a stream of text, one per line: the shared part of CSV and JSON lines.

Arrived lines are parsed together. If that fails, they are parsed one by one: the lines before the bad one are returned,
and then it is refused with its number; or it is skipped and counted, and the other lines are returned as well.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.units import parse_bytes
from mllkm_scale.data.grid import require_chunk_rows
from mllkm_scale.data.readers.lines import MAX_LINE_BYTES, line_blocks
from mllkm_scale.data.tables.columns import Columns
from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.online.sources.class_labels import ClassLabels
from mllkm_scale.online.sources.samples import CHUNK_ROWS, Chunk, check_end, require_skip

__all__ = ["Lines", "Numbered", "TextOptions", "TextSamples"]


BAD_LINES = ("error", "skip")
Numbered = list[tuple[int, bytes]]


@dataclass(frozen=True)
class Lines:
    """Lines that are not blank, as bytes, and their numbers, from 1."""

    numbers: list[int]
    lines: list[bytes]

    def __len__(self) -> int:
        return len(self.lines)

    def part(self, start: int, stop: int | None = None) -> Lines:
        """The lines from `start` to `stop`."""
        return Lines(self.numbers[start:stop], self.lines[start:stop])

    def __add__(self, other: Lines) -> Lines:
        return Lines(self.numbers + other.numbers, self.lines + other.lines)

    def texts(self, name: str) -> list[str]:
        """The decoded lines."""
        texts = []
        for number, line in zip(self.numbers, self.lines, strict=True):
            try:
                texts.append(line.removesuffix(b"\r").decode("utf-8"))
            except UnicodeDecodeError:
                raise DataError(f"{name}: line {number} is not UTF-8 text: write it as UTF-8") from None
        return texts

    def numbered(self, name: str) -> list[tuple[int, str]]:
        """Number and text of each line."""
        return list(zip(self.numbers, self.texts(name), strict=True))


class TextOptions(TypedDict, total=False):
    """Options of all streams of text; see `TextSamples`."""

    classes: ArrayLike | None
    bad_lines: str
    chunk_rows: int
    max_line_bytes: int | str
    name: str
    owns_stream: bool


class TextSamples(ABC):
    """Samples of a text, which can be iterated only once.

    Parameters
    ----------
    stream : stream of bytes or text
        An unread stream such as `sys.stdin`.
    classes : array-like, optional
        The classes; labels are matched with them as in `ClassLabels`. Without classes, labels are text.
    bad_lines : {"error", "skip"}
        Refuse the first line that cannot be read, or skip such lines and count them in `skipped`.
    chunk_rows : int
        Largest number of rows of a chunk; a chunk is smaller if no more lines have arrived.
    max_line_bytes : int or str
        Longest line; a longer one always ends the stream with an error.
    name : str
        The name of the stream for messages.
    owns_stream : bool
        Whether `close` closes it.

    Attributes
    ----------
    skipped : int
        Number of lines skipped so far.
    """

    columns: Columns | None = None

    def __init__(
        self,
        stream: IO[Any],
        *,
        classes: ArrayLike | None = None,
        bad_lines: str = "error",
        chunk_rows: int = CHUNK_ROWS,
        max_line_bytes: int | str = MAX_LINE_BYTES,
        name: str = "standard input",
        owns_stream: bool = False,
    ) -> None:
        if bad_lines not in BAD_LINES:
            raise ParameterError(f"bad_lines={bad_lines!r} is not known: choose one of {', '.join(BAD_LINES)}")
        self.name = name
        self.skipped = 0
        self._first_bad = ""
        self._stream = stream
        self._owns_stream = owns_stream
        self._started = False
        self._labels = ClassLabels(classes)
        self._refuse = bad_lines == "error"
        self._chunk_rows = require_chunk_rows(chunk_rows, 1)
        self._max_line_bytes = parse_bytes(max_line_bytes)

    @abstractmethod
    def _records(self, blocks: Iterator[Lines]) -> Iterator[Lines]:
        """The lines that are samples, without a header."""

    @abstractmethod
    def _parse(self, lines: Lines) -> tuple[Array, Array]:
        """Rows and labels of lines; a DataError if one is bad, which names it if it is the only line."""

    @property
    @abstractmethod
    def _layout_known(self) -> bool:
        """Whether lines can be parsed without earlier ones."""

    @property
    @abstractmethod
    def feature_names(self) -> tuple[str, ...] | None:
        """The names of the features, if the first line has arrived and has them."""

    @property
    def remark(self) -> str:
        """The number of skipped lines, and the problem of the first one."""
        lines = "1 bad line was" if self.skipped == 1 else f"{self.skipped} bad lines were"
        return f"{self.name}: {lines} skipped; the first: {self._first_bad}" if self.skipped else ""

    def chunks(self, skip: int = 0) -> Iterator[Chunk]:
        """The samples from position `skip` on; earlier ones are read and discarded."""
        skip = require_skip(skip)
        if self._started:
            raise ParameterError(f"{self.name} was already read: open it again, or convert it to HDF5 for more passes")
        self._started = True
        return self._chunks(skip)

    def close(self) -> None:
        """Close the stream, if this source owns it."""
        if self._owns_stream:
            self._stream.close()

    def _chunks(self, skip: int) -> Iterator[Chunk]:
        position = 0
        for record in self._records(self._blocks()):
            lines = record
            if self._refuse and self._layout_known:  # every earlier line is a sample, or it would have been refused
                dropped = min(len(lines), max(0, skip - position))
                lines, position = lines.part(dropped), position + dropped
            for start in range(0, len(lines), self._chunk_rows):
                X, y, error = self._read(lines.part(start, start + self._chunk_rows))
                done = max(0, skip - position)
                if done < len(y):
                    yield Chunk(position + done, X[done:], y[done:])
                position += len(y)
                if error is not None:
                    raise error
        check_end(f"{self.name} ({self.remark})" if self.skipped else self.name, position, skip)

    def _joined(self, blocks: Iterator[Numbered]) -> Iterator[Numbered]:
        """Lines, with those that belong together joined."""
        return blocks

    def _blocks(self) -> Iterator[Lines]:
        for block in self._joined(self._numbered()):
            kept = [(number, line) for number, line in block if line.strip(b" \r")]
            if kept:
                yield Lines([number for number, _ in kept], [line for _, line in kept])

    def _numbered(self) -> Iterator[Numbered]:
        for first, lines in line_blocks(self._stream, self.name, self._max_line_bytes):
            if first == 1:
                lines[0] = lines[0].removeprefix(BOM_UTF8)
            yield list(enumerate(lines, first))

    def _read(self, lines: Lines) -> tuple[Array, Array, DataError | None]:
        """Rows and labels of the good lines, up to a refused line, and its error."""
        try:
            return *self._parse(lines), None
        except DataError:
            pass  # the bad line is found below
        good: list[tuple[Array, Array]] = []
        refused = None
        for i in range(len(lines)):
            try:
                good.append(self._parse(lines.part(i, i + 1)))
            except DataError as error:
                if self._refuse:
                    refused = error
                    break
                self._first_bad = self._first_bad or str(error).removeprefix(f"{self.name}: ")
                self.skipped += 1
        if not good:
            return np.empty((0, 0)), np.empty(0), refused
        return np.concatenate([X for X, _ in good]), np.concatenate([y for _, y in good]), refused
