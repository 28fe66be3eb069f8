"""Labels: from stored values to classes and codes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from mllkm_scale.data.sources import plain_text, require_plain_dtype
from mllkm_scale.errors import DataError

__all__ = [
    "LABEL_ROWS",
    "MAX_CLASSES",
    "as_label_vector",
    "check_labels",
    "encode_blocks",
    "encode_labels",
    "n_outputs",
    "require_classes",
    "signs_of",
]

MAX_CLASSES = 1000

LABEL_ROWS = 65_536
"""Number of labels that are read at once."""


def as_label_vector(values: NDArray[Any], name: str, first_row: int = 0) -> NDArray[Any]:
    """One label per row, as stored: text decoded, a single column flattened; `first_row` is the number of the first
    row."""
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise DataError(f"{name} has shape {values.shape}: labels must be one-dimensional, one per row")
    values = plain_text(values, name, first_row=first_row)
    require_plain_dtype(values.dtype, name)
    return values


def encode_labels(labels: ArrayLike) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Classes in ascending order, and the position of each label among them.

    Parameters
    ----------
    labels : array-like of shape (n,)
        Integers, whole floats, booleans or text.

    Returns
    -------
    classes : array of shape (n_classes,)
    codes : int64 array of shape (n,)
        ``classes[codes]`` are the labels.

    Examples
    --------
    >>> classes, codes = encode_labels(["dog", "cat", "dog"])
    >>> classes.tolist(), codes.tolist()
    (['cat', 'dog'], [1, 0, 1])
    """
    values = as_label_vector(np.asarray(labels), "labels")
    classes, codes = np.unique(values, return_inverse=True)
    return classes, codes.astype(np.int64, copy=False)


def n_outputs(n_classes: int) -> int:
    """K, the number of columns of signs: two classes share one."""
    return n_classes if n_classes > 2 else 1


def signs_of(codes: NDArray[Any], n_classes: int, dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """+1 for the class of a column and -1 for the others; two classes share one column.

    >>> signs_of(np.array([0, 1]), 2).tolist(), signs_of(np.array([2]), 3, np.int8).tolist()
    ([[-1.0], [1.0]], [[-1, -1, 1]])
    """
    columns = np.arange(n_classes) if n_classes > 2 else np.array([1])
    return np.where(codes[:, None] == columns, np.ones((), dtype), -np.ones((), dtype))


def check_labels(labels: NDArray[Any], name: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Classes and their counts; invalid labels are refused."""
    _require_known(labels, name, 0)
    classes, codes = encode_labels(labels)
    require_classes(classes, name)
    return classes, np.bincount(codes, minlength=len(classes)).astype(np.int64, copy=False)


def require_classes(classes: NDArray[Any], name: str) -> None:
    """Refuse a single class, or too many classes."""
    if len(classes) < 2:
        raise DataError(f"{name} has one class, {classes[0].item()!r}: training needs at least two classes")
    if len(classes) > MAX_CLASSES:
        raise DataError(f"{name} has {len(classes)} classes, more than {MAX_CLASSES}: merge classes, or check y")


def encode_blocks(
    blocks: Iterable[tuple[int, NDArray[Any]]], n_rows: int, name: str
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Classes in ascending order, and codes, of labels in blocks, each with the number of its first row.

    Missing or continuous labels, and too many classes, are refused as soon as they are found. Only the codes, a
    dictionary of the classes, and a block are in memory.

    >>> classes, codes = encode_blocks([(0, np.array(["b", "a"])), (2, np.array(["b"]))], 3, "y")
    >>> classes.tolist(), codes.tolist()
    (['a', 'b'], [1, 0, 1])
    """
    numbers: dict[Any, int] = {}
    codes = np.empty(n_rows, np.int64)
    classes = np.empty(0)
    for start, values in blocks:
        _require_known(values, name, start)
        found, own = np.unique(values, return_inverse=True)
        new = [label for label in found.tolist() if label not in numbers]
        numbers |= {label: len(numbers) + at for at, label in enumerate(new)}
        if len(numbers) > MAX_CLASSES:
            raise DataError(
                f"{name} has {len(numbers)} classes up to row {start + len(values) - 1}, more than {MAX_CLASSES}:"
                " merge classes, or check y"
            )
        codes[start : start + len(values)] = np.array([numbers[label] for label in found.tolist()], np.int64)[own]
        classes = np.unique(np.concatenate([classes, found]) if len(classes) else found)
    rank = np.empty(len(classes), np.int64)
    rank[[numbers[label] for label in classes.tolist()]] = np.arange(len(classes))
    np.take(rank, codes, out=codes)
    return classes, codes


def _require_known(labels: NDArray[Any], name: str, first_row: int) -> None:
    """Refuse labels that are missing or continuous."""
    if labels.dtype.kind == "f":
        _require_whole(labels, name, first_row)
    elif labels.dtype.kind == "U":
        empty = np.flatnonzero(np.char.str_len(np.char.strip(labels)) == 0)
        if len(empty):
            raise DataError(f"{name} is empty at row {first_row + empty[0]} (0-based): label every row or remove it")


def _require_whole(labels: NDArray[Any], name: str, first_row: int) -> None:
    unknown = np.flatnonzero(~np.isfinite(labels))
    if len(unknown):
        raise DataError(
            f"{name} is {labels[unknown[0]]} (NaN or infinity) at row {first_row + unknown[0]} (0-based):"
            " label every row or remove it"
        )
    broken = np.flatnonzero(labels != np.floor(labels))
    if len(broken):
        raise DataError(
            f"{name} is {labels[broken[0]]} at row {first_row + broken[0]} (0-based). Unknown label type: continuous."
            " Give classes as integers or text"
        )
