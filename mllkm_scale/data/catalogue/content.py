"""What a data set holds, as a checksum that every faithful copy shares.

Values are published with a fixed number of decimals, so a row is exactly a vector of integers: value times
10^decimals, rounded, and the code of its label last. That vector does not depend on the container or on float32 or
float64. Each row is hashed, and then

    ordered  = sha256 over the hashes of the rows, part by part
    content  = the same with the hashes of each part sorted: any order of the rows gives it

A part is the training rows or the test rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Fingerprint", "Part", "canonical", "fingerprint"]

Array = NDArray[Any]
Part = tuple[Array, Array]

BLOCK_ROWS = 16384


@dataclass(frozen=True)
class Fingerprint:
    """Checksums of the rows as a set (`content`) and as a sequence (`ordered`)."""

    content: str
    ordered: str


def fingerprint(parts: Sequence[Part], decimals: int) -> Fingerprint:
    """Checksums of X and y of every part.

    Parameters
    ----------
    parts : sequence of (X, y)
        Rows of numbers and their integer labels; X may be of any numeric type.
    decimals : int
        Decimals that the values are published with.

    Examples
    --------
    >>> X, y = np.array([[0.25, 1.0], [0.5, 2.0]]), np.array([0, 1])
    >>> there = fingerprint([(X, y)], decimals=2)
    >>> there == fingerprint([(X.astype(np.float32), y)], decimals=2)
    True
    >>> back = fingerprint([(X[::-1], y[::-1])], decimals=2)
    >>> back.content == there.content, back.ordered == there.ordered
    (True, False)
    """
    content, ordered = hashlib.sha256(), hashlib.sha256()
    for X, y in parts:
        rows = _row_hashes(X, y, decimals)
        head = f"{X.shape[0]} x {X.shape[1]}\n".encode()
        content.update(head + b"".join(sorted(rows)))
        ordered.update(head + b"".join(rows))
    return Fingerprint(content.hexdigest(), ordered.hexdigest())


def canonical(X: Array, decimals: int) -> Array:
    """The values with no more than their decimals: float32, or uint8 where they are whole and fit.

    Every route then gives the same bits, whether its carrier wrote 0.3 or 0.30000001.

    >>> canonical(np.array([[0.30000001, 2.0]]), 1).tolist() == [[np.float32(0.3), 2.0]]
    True
    >>> canonical(np.array([[3.0, 255.0]]), 0).dtype
    dtype('uint8')
    """
    small = decimals == 0 and X.size > 0 and X.min() >= 0 and X.max() <= 255
    out = np.empty(X.shape, dtype=np.uint8 if small else np.float32)
    for start in range(0, len(X), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        out[block] = np.round(X[block].astype(np.float64), decimals)
    return out


def _row_hashes(X: Array, y: Array, decimals: int) -> list[bytes]:
    hashes = []
    for start in range(0, len(X), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        rows = np.empty((len(X[block]), X.shape[1] + 1), dtype="<i8")
        # What is no number has no place among the integers; the checksum differs then, whatever the cast gives.
        with np.errstate(invalid="ignore"):
            rows[:, :-1] = np.rint(X[block].astype(np.float64) * 10.0**decimals)
            rows[:, -1] = y[block]
        hashes += [hashlib.sha256(row).digest() for row in rows]
    return hashes
