"""Sources of rows: the protocol for every kind of storage, and the source for NumPy arrays.

A source represents one array, in a file or in memory, and returns its rows.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.errors import DataError

__all__ = ["ArraySource", "Source", "one_line", "plain_text", "require_plain_dtype"]


LONGEST_TEXT = 256
"""Largest number of characters of a label or of a feature name."""


class Source(Protocol):
    """Rows of one array.

    A source can be pickled; a file is opened again by the receiving process. Several threads may read. `close` frees
    the file, and the next `read` opens it again.
    """

    @property
    def name(self) -> str:
        """The name for messages, such as ``train.h5:X``."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """dtype as stored; ``str`` for text."""

    @property
    def buffer_bytes(self) -> int:
        """Memory of a `read` besides its result."""

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows `start` to `stop`, which the caller must not write to."""

    def close(self) -> None:
        """Free the file handle, if there is one."""


class ArraySource:
    """Rows of an array in memory, which is kept and not copied."""

    buffer_bytes = 0

    def __init__(self, values: NDArray[Any], name: str) -> None:
        self.name = name
        self._values = values
        self.shape: tuple[int, ...] = values.shape
        self.dtype: np.dtype[Any] = values.dtype

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows `start` to `stop`, as a view."""
        return self._values[start:stop]

    def close(self) -> None:
        """Do nothing: there is no file."""


def require_plain_dtype(dtype: np.dtype[Any], name: str) -> None:
    """Refuse types that are neither numbers nor text: compound, complex, date and object types."""
    if dtype.kind not in "fiubUST":
        raise DataError(f"{name} has type {dtype}: store plain numbers (or text for labels) instead")


def plain_text(values: NDArray[Any], name: str, *, first_row: int = 0) -> NDArray[Any]:
    """Text in any stored form (bytes, objects, variable length) as an array of str; other arrays unchanged.

    `first_row` is the number of the first row. A text longer than `LONGEST_TEXT` is refused, because every entry of an
    array takes the memory of the longest one.
    """
    if values.dtype.kind not in "SOTU":
        return values
    if values.dtype.kind == "U":
        if values.dtype.itemsize > 4 * LONGEST_TEXT and values.size:
            _require_short(values.ravel().tolist(), name, first_row)
            values = values.astype(f"U{LONGEST_TEXT}")
        return values
    items = values.ravel().tolist()
    try:
        texts = [item.decode("utf-8") if isinstance(item, bytes) else item for item in items]
    except UnicodeDecodeError:
        raise DataError(f"{name} holds text that is not UTF-8: store it as UTF-8 or as integers") from None
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(
                f"{name} holds a {type(text).__name__} at row {first_row + row} (0-based): store integers, or text only"
            )
    _require_short(texts, name, first_row)
    return np.array(texts, dtype=np.str_).reshape(values.shape)


def _require_short(texts: list[str], name: str, first_row: int) -> None:
    for row, text in enumerate(texts):
        if len(text) > LONGEST_TEXT:
            raise DataError(
                f"{name} has a text of {len(text):,} characters at row {first_row + row} (0-based), more than"
                f" {LONGEST_TEXT}: give the classes short names, or numbers"
            )


def one_line(error: BaseException) -> str:
    """The message of an error, on one line."""
    return " ".join(str(error).split())
