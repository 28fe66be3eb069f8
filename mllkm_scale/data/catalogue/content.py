"""The checksum of the content of a data set, which is the same for every exact copy.

Values are published with a fixed number of decimals, so a row is a vector of integers: its values times 10^decimals,
rounded, and the code of its label. This vector does not depend on the container or the float type. With the sha256 of
each row,

    ordered  = sha256 over the hashes of the rows, part by part
    content  = the same with the hashes of each part sorted, so that it does not depend on the order of the rows

A part is the training rows or the test rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mllkm_scale.base.arrays import Array

__all__ = ["Array", "Fingerprint", "Part", "canonical", "fingerprint"]

Part = tuple[Array, Array]

BLOCK_ROWS = 16384


class Fingerprint(NamedTuple):
    """Checksums of the rows as a set (`content`) and as a sequence (`ordered`)."""

    content: str
    ordered: str


def fingerprint(parts: Sequence[Part], decimals: int) -> Fingerprint:
    """Checksums of X and y of every part, whose values have this number of decimals.

    >>> X, y = np.array([[0.25, 1.0], [0.5, 2.0]]), np.array([0, 1])
    >>> there, back = fingerprint([(X, y)], 2), fingerprint([(X[::-1].astype("f4"), y[::-1])], 2)
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
    """The values with no more than their decimals, so that every route gives the same bits.

    They are float32, or uint8 if they are whole and fit.

    >>> canonical(np.array([[0.30000001, 2.0]]), 1).tolist() == [[np.float32(0.3), 2.0]]
    True
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
        with np.errstate(
            invalid="ignore"
        ):  # NaN is not an integer; the checksum then differs for any result of the cast
            rows[:, :-1] = np.rint(X[block].astype(np.float64) * 10.0**decimals)
            rows[:, -1] = y[block]
        hashes += [hashlib.sha256(row).digest() for row in rows]
    return hashes
