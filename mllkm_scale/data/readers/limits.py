"""Limits of the lengths of lines and labels and of the width of rows: anything longer is refused."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mllkm_scale.base.units import format_bytes
from mllkm_scale.data.grid import MOST_FEATURES
from mllkm_scale.data.sources import LONGEST_TEXT
from mllkm_scale.errors import DataError

__all__ = ["LONGEST_LINE_BYTES", "MOST_COLUMNS", "BoundedLines", "require_short", "require_width"]

LONGEST_LINE_BYTES = 2**24
"""Longest line of text: a million cells of 16 characters."""

MOST_COLUMNS = 200_000
"""Most columns of a table: a column has a name and a description, which take a kilobyte."""


def require_width(n_features: int, what: str, most: int = MOST_FEATURES) -> None:
    """Refuse rows that are too wide; `what` names them.

    >>> require_width(2_000_000_000, "rows.libsvm: line 1")
    Traceback (most recent call last):
    mllkm_scale.errors.DataError: rows.libsvm: line 1 has 2,000,000,000 features, more than 1,000,000: leave some out
    """
    if n_features > most:
        raise DataError(f"{what} has {n_features:,} features, more than {most:,}: leave some out")


def require_short(texts: Sequence[str]) -> int | None:
    """The index of the first label that is too long, if there is one."""
    if max(map(len, texts), default=0) <= LONGEST_TEXT:
        return None
    return next(at for at, text in enumerate(texts) if len(text) > LONGEST_TEXT)


class BoundedLines(io.BufferedIOBase):
    """A stream of bytes for text that raises an error within a line that is too long."""

    def __init__(self, stream: Any, path: Path) -> None:
        self._stream, self._path = stream, path
        self._number, self._length = 1, 0  # of the current line

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        return self.read1(-1 if size is None else size)

    def read1(self, size: int = -1, /) -> bytes:
        part: bytes = self._stream.read1(io.DEFAULT_BUFFER_SIZE if size < 0 else size)
        ends = part.count(b"\n") or part.count(b"\r")  # old files have lines that end with a carriage return
        if ends:
            self._number += ends
            self._length = len(part) - 1 - max(part.rfind(b"\n"), part.rfind(b"\r"))
        else:
            self._length += len(part)
        if self._length > LONGEST_LINE_BYTES:
            raise DataError(
                f"{self._path}: line {self._number} is longer than {format_bytes(LONGEST_LINE_BYTES)}: check that its"
                " rows end with line breaks"
            )
        return part
