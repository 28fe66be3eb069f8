"""LIBSVM (svmlight) text to HDF5: `label index:value ... # comment`, absent values are zero.

The first pass finds the width and whether indices count from 0 or from 1; the second writes rows, dense or sparse.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mllkm_scale.data.converters.options import ConvertOptions
from mllkm_scale.data.converters.writer import ArrayWriter
from mllkm_scale.data.grid import MOST_DENSE, default_chunk_rows
from mllkm_scale.data.readers.layout import LARGEST_EXACT, is_number
from mllkm_scale.data.readers.limits import require_width
from mllkm_scale.data.readers.options import Progress
from mllkm_scale.data.readers.streams import text_blocks
from mllkm_scale.errors import DataError

__all__ = ["convert_libsvm"]

LARGEST_INDEX = 2**31
MOSTLY_ZEROS = 0.1  # share of entries below which a wide matrix is stored without its zeros
_NO_SEPARATORS = bytes(byte for byte in range(256) if byte not in b": ")


@dataclass(frozen=True)
class _Rows:
    """The entries of a block of rows; those of row i are at offsets[i] to offsets[i + 1]."""

    lines: list[int]
    labels: NDArray[np.float64]
    offsets: NDArray[np.int64]
    indices: NDArray[np.int64]
    values: NDArray[np.float64]


def convert_libsvm(source: Path, writer: ArrayWriter, options: ConvertOptions, progress: Progress) -> None:
    """Write the rows as X, and the labels as y.

    By default, X is stored as sparse rows if it is mostly zeros and has more columns than training uses without a
    reduction.
    """
    n_entries = 0
    n_rows, lowest, highest, whole = 0, LARGEST_INDEX, -1, True
    for rows in _blocks(source, lambda done, total: progress(done, 2 * total)):
        n_rows += len(rows.labels)
        n_entries += len(rows.indices)
        if len(rows.indices):
            lowest = min(lowest, int(rows.indices.min()))
            highest = max(highest, int(rows.indices.max()))
        whole = whole and bool((rows.labels == np.floor(rows.labels)).all())
    if highest < 0:
        raise DataError(f"{source} holds no rows with features: give lines such as '1 3:0.5 7:1'")
    base = min(lowest, 1)
    width = highest + 1 - base
    if options.known is not None:
        if width > len(options.known.columns):
            raise DataError(
                f"{source} has {width} features per row instead of {len(options.known.columns)}: give the same features"
                " in the same order"
            )
        width = len(options.known.columns)
    sparse = options.sparse
    if sparse is None:
        sparse = width > MOST_DENSE and n_entries < MOSTLY_ZEROS * n_rows * width
    writer.require_space(12 * n_entries + 8 * n_rows if sparse else 8 * n_rows * width)
    if not sparse:
        require_width(width, str(source))
    for rows in _blocks(source, lambda done, total: progress(total + done, 2 * total)):
        writer.append_labels("y", rows.labels.astype(np.int64) if whole else rows.labels)
        if sparse:
            writer.append_sparse("X", _sparse(source, rows, base, width))
            continue
        step = default_chunk_rows(width)
        for start in range(0, len(rows.labels), step):
            writer.append("X", _dense(source, rows, start, min(start + step, len(rows.labels)), base, width))


def _blocks(source: Path, progress: Progress) -> Iterator[_Rows]:
    for first, lines in text_blocks(source, progress):
        numbers: list[int] = []
        labels: list[str] = []
        entries: list[str] = []
        for number, line in enumerate(lines, first):
            label, *rest = line.partition("#")[0].split(None, 1) or [""]
            if not label:
                continue
            if rest and rest[0].startswith("qid:"):
                rest = rest[0].split(None, 1)[1:]
            numbers.append(number)
            labels.append(label)
            entries.extend(rest or [""])
        if numbers:
            yield _parse(source, numbers, labels, entries)


def _parse(source: Path, lines: list[int], labels: list[str], entries: list[str]) -> _Rows:
    try:
        pairs = " ".join(entries).split()
        joined = " ".join(pairs)
        tokens = joined.replace(":", " ").split()
        rows = _Rows(
            lines=lines,
            labels=np.array([float(label) for label in labels]),
            offsets=np.cumsum([0] + [entry.count(":") for entry in entries], dtype=np.int64),
            indices=np.array(list(map(int, tokens[0::2])), dtype=np.int64),
            values=np.array(list(map(float, tokens[1::2])), dtype=np.float64),
        )
        # With one colon in each pair, and a number on each side of it, tokens are index and value in turn.
        sound = (
            joined.encode().translate(None, delete=_NO_SEPARATORS) == (b": " * len(pairs))[:-1]
            and len(tokens) == 2 * len(pairs)
            and bool((np.abs(rows.labels) < LARGEST_EXACT).all())
            and bool(((rows.indices >= 0) & (rows.indices < LARGEST_INDEX)).all())
        )
    except (ValueError, OverflowError):
        sound = False
    if not sound:
        raise _first_problem(source, lines, labels, entries)
    return rows


def _first_problem(source: Path, lines: list[int], labels: list[str], entries: list[str]) -> DataError:
    for number, label, entry in zip(lines, labels, entries, strict=True):
        if not (is_number(label) and abs(float(label)) < LARGEST_EXACT):
            return DataError(f"{source}: line {number} begins with {label!r}: begin it with a number, the label")
        for pair in entry.split():
            index, _, value = pair.partition(":")
            if not (index.isdecimal() and int(index) < LARGEST_INDEX and is_number(value)):
                return DataError(f"{source}: line {number} has {pair!r}: write index:value, with a whole index")
    return DataError(f"{source}: lines {lines[0]} to {lines[-1]} cannot be read: write label index:value ...")


def _sparse(source: Path, rows: _Rows, base: int, width: int) -> csr_array:
    order = _order(source, rows, 0, len(rows.labels), base, width)
    return csr_array((rows.values[order], rows.indices[order] - base, rows.offsets), shape=(len(rows.labels), width))


def _dense(source: Path, rows: _Rows, start: int, stop: int, base: int, width: int) -> NDArray[np.float64]:
    begin, end = rows.offsets[start], rows.offsets[stop]
    _order(source, rows, start, stop, base, width)
    row = np.repeat(np.arange(stop - start), np.diff(rows.offsets[start : stop + 1]))
    dense = np.zeros((stop - start) * width)
    dense[row * width + rows.indices[begin:end] - base] = rows.values[begin:end]
    return dense.reshape(stop - start, width)


def _order(source: Path, rows: _Rows, start: int, stop: int, base: int, width: int) -> NDArray[np.int64]:
    """Entries of the rows in the order of their indices; a repeated index in a row is refused."""
    begin, end = rows.offsets[start], rows.offsets[stop]
    row = np.repeat(np.arange(stop - start), np.diff(rows.offsets[start : stop + 1]))
    places = row * width + rows.indices[begin:end] - base
    order = np.arange(len(places))
    if not (np.diff(places) > 0).all():
        order = np.argsort(places, kind="stable")
        twice = order[1:][np.diff(places[order]) == 0]
        if len(twice):
            line, index = rows.lines[start + row[twice[0]]], rows.indices[begin + twice[0]]
            raise DataError(f"{source}: line {line} has index {index} twice: keep one value")
    return begin + order
