"""Bytes and lines of a file, plain or gzip, in blocks."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from mllkm_scale.data.readers.limits import BoundedLines
from mllkm_scale.data.readers.options import Progress, silent
from mllkm_scale.data.sources import one_line
from mllkm_scale.errors import DataError

__all__ = ["BLOCK_BYTES", "is_gzip", "open_stream", "read_exactly", "text_blocks"]

BLOCK_BYTES = 2**22
PACKING_ERRORS = (EOFError, zlib.error, gzip.BadGzipFile)


def is_gzip(path: Path) -> bool:
    """Whether a file begins like gzip."""
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


@contextmanager
def open_stream(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """The file itself, whose position shows the progress, and the stream of its decompressed bytes."""
    with path.open("rb") as file:
        if not is_gzip(path):
            yield file, file
            return
        with gzip.GzipFile(fileobj=file) as stream:
            try:
                yield file, stream  # type: ignore[misc]
            except PACKING_ERRORS as error:
                raise DataError(f"{path} cannot be unpacked ({one_line(error)}): copy it again") from error


def read_exactly(stream: IO[bytes], size_bytes: int, called: str) -> bytes:
    """Read this number of bytes, in parts, so that a wrong size in a header cannot allocate too much memory."""
    parts = []
    missing_bytes = size_bytes
    while missing_bytes:
        part = stream.read(min(missing_bytes, BLOCK_BYTES))
        if not part:
            raise DataError(f"{called} is shorter than its header says: it is cut short; copy it again")
        parts.append(part)
        missing_bytes -= len(part)
    return b"".join(parts)


def text_blocks(path: Path, progress: Progress = silent) -> Iterator[tuple[int, list[str]]]:
    """Number of the first line, from 1, and lines of some 4 MB; progress is reported in bytes of the file."""
    total_bytes = path.stat().st_size
    with open_stream(path) as (file, stream):
        bounded: Any = BoundedLines(stream, path)
        text = io.TextIOWrapper(bounded, encoding="utf-8-sig")
        number = 1
        while True:
            try:
                lines = text.readlines(BLOCK_BYTES)
            except UnicodeDecodeError:
                raise DataError(f"{path} is not UTF-8 text after line {number}: save it as UTF-8") from None
            if not lines:
                return
            yield number, lines
            number += len(lines)
            progress(file.tell(), total_bytes)
