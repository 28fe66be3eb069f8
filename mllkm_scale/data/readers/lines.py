"""Lines of a stream of bytes as they arrive, without waiting for more than the current line.

A read takes the available bytes, up to 1 MB, and complete lines are returned at once; only the incomplete line is kept.
So memory is bounded by a read and a line. A line longer than the limit is refused.
"""

from __future__ import annotations

import io
import os
import select
from collections.abc import Callable, Iterator
from typing import IO, Any

from mllkm_scale.base.units import format_bytes
from mllkm_scale.data.readers.streams import PACKING_ERRORS
from mllkm_scale.data.sources import one_line
from mllkm_scale.errors import DataError

__all__ = ["MAX_LINE_BYTES", "line_blocks"]

READ_BYTES = 2**20
MAX_LINE_BYTES = 2**22


def line_blocks(stream: IO[Any], name: str, max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[tuple[int, list[bytes]]]:
    """Number of the first line, from 1, and lines without their ends; the last may have none.

    Parameters
    ----------
    stream : stream of bytes or text
        From a text stream such as `sys.stdin`, the underlying bytes are read.
    name : str
        The name for messages.
    max_line_bytes : int
        Longest line that is read.

    Raises
    ------
    DataError
        If a line is longer.

    Examples
    --------
    >>> list(line_blocks(io.BytesIO(b"1,2\\n3,4"), "standard input"))
    [(1, [b'1,2']), (2, [b'3,4'])]
    """
    read = _reader(stream, name)
    number = 1
    begun: list[bytes] = []  # parts of the line that is not yet ended
    begun_bytes = 0
    while data := read():
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = b"".join([*begun, lines[0]])
            begun, begun_bytes = [], 0
        begun.append(rest)
        begun_bytes += len(rest)
        for i, size_bytes in enumerate([*map(len, lines), begun_bytes]):
            if size_bytes > max_line_bytes:
                if i:
                    yield number, lines[:i]
                raise DataError(
                    f"{name}: line {number + i} is longer than {format_bytes(max_line_bytes)}, the limit of a line:"
                    " end lines with a line feed, or raise the limit (max_line_bytes)"
                )
        if lines:
            yield number, lines
            number += len(lines)
    if begun_bytes:
        yield number, [b"".join(begun)]


def _reader(stream: IO[Any], name: str) -> Callable[[], bytes]:
    """A function that reads the available bytes, and waits only if there are none."""
    source: Any = getattr(stream, "buffer", stream)
    if isinstance(source, io.TextIOBase):
        return lambda: source.read(READ_BYTES).encode("utf-8", "surrogatepass")
    take = getattr(source, "read1", source.read)

    def read() -> bytes:
        data = None
        try:
            while data is None:
                _wait(source)
                data = take(READ_BYTES)
        except (OSError, *PACKING_ERRORS) as error:
            raise DataError(f"{name} cannot be read ({one_line(error)}): start the stream again") from error
        return bytes(data)

    return read


def _wait(source: Any) -> None:
    """Wait for a pipe that another process made non-blocking: empty for now, it would look as if it had ended."""
    try:
        descriptor = source.fileno()
    except (AttributeError, OSError):  # no file
        return
    if not os.get_blocking(descriptor):
        select.select([descriptor], [], [])
