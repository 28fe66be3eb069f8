"""Sources of streamed samples: their protocol, and the source for Python iterators.

A source returns its samples in order, one chunk at a time, and holds little more than that chunk in memory. The
position of a sample is its number in the stream, from 0, over all passes; blank, skipped and header lines are not
counted. `chunks(skip=p)` begins with the sample at position p, so that a stream can be resumed in its middle. The
division into chunks may depend on the time of arrival; the samples and their order do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from mllkm_scale.base.arrays import Array
from mllkm_scale.data.checks import require_finite
from mllkm_scale.data.grid import require_chunk_rows
from mllkm_scale.data.labels import as_label_vector
from mllkm_scale.data.tables.columns import Columns
from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.online.sources.class_labels import BadLabel, ClassLabels, label_text

__all__ = [
    "CHUNK_ROWS",
    "Chunk",
    "IterableSamples",
    "Samples",
    "check_end",
    "require_known",
    "require_skip",
    "stored_labels",
]


CHUNK_ROWS = 1024


@dataclass(frozen=True)
class Chunk:
    """Consecutive samples of a stream.

    Attributes
    ----------
    first : int
        Position of the first sample.
    X : array (n, d), float32 or float64
    y : array (n,)
        Labels, of the type of the classes if these were given to the source.
    ids : array (n,)
        Identities of the samples: equal for a sample that arrives again in a later pass. Default: their positions.
    new : bool
        Whether they arrive for the first time.
    weights : array (n,) or None
        Their weights in the loss, if there are any.
    """

    first: int
    X: Array
    y: Array
    ids: Array = field(default_factory=lambda: np.empty(0, np.int64))
    new: bool = True
    weights: Array | None = None

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.y):
            object.__setattr__(self, "ids", np.arange(self.first, self.first + len(self.y)))

    def __len__(self) -> int:
        return len(self.y)

    @property
    def stop(self) -> int:
        """Position after the last sample, to skip to when the chunk is learned."""
        return self.first + len(self)


class Samples(Protocol):
    """A stream of labelled samples."""

    @property
    def name(self) -> str:
        """The name for messages."""

    @property
    def remark(self) -> str:
        """A remark at the end, such as the number of skipped lines; empty if there is none."""

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The names of the features, if known; for text, after its first line."""

    @property
    def columns(self) -> Columns | None:
        """The columns of a table, after its first samples; None if samples are numbers."""

    def chunks(self, skip: int = 0) -> Iterator[Chunk]:
        """The samples from position `skip` on."""

    def close(self) -> None:
        """Close the file, if the source opened one."""


class IterableSamples:
    """Pairs (x, y) of any iterable: a sample with x of shape (d,), or a batch with X of shape (n, d) and n labels y.

    Every pair is returned before the next one is requested; large batches are divided.

    Parameters
    ----------
    pairs : iterable of pairs
        Iterated once per call of `chunks`; skipped samples are drawn and discarded.
    classes : array-like, optional
        The classes; labels are matched with them as in `ClassLabels`. Without classes, labels are returned unchanged.
    chunk_rows : int
        Largest number of rows of a chunk.
    name : str
        How messages call it.

    Examples
    --------
    >>> pairs = [([0.0, 1.0], "no"), (np.eye(2), ["no", "yes"])]
    >>> [(chunk.first, chunk.X.shape, chunk.y.tolist()) for chunk in IterableSamples(pairs).chunks(skip=1)]
    [(1, (2, 2), ['no', 'yes'])]
    """

    remark = ""
    feature_names: tuple[str, ...] | None = None
    columns: Columns | None = None

    def __init__(
        self,
        pairs: Iterable[tuple[ArrayLike, Any]],
        *,
        classes: ArrayLike | None = None,
        chunk_rows: int = CHUNK_ROWS,
        name: str = "the stream",
    ) -> None:
        self.name = name
        self._pairs = pairs
        self._labels = ClassLabels(classes)
        self._chunk_rows = require_chunk_rows(chunk_rows, 1)

    def chunks(self, skip: int = 0) -> Iterator[Chunk]:
        """The samples from position `skip` on."""
        skip = require_skip(skip)
        position, width = 0, None
        for pair in self._pairs:
            X, y = self._batch(pair, position)
            if width not in (None, X.shape[1]):
                raise DataError(
                    f"{self.name}: sample {position} (0-based) has {X.shape[1]} features instead of {width}:"
                    " give every sample the same features"
                )
            width = X.shape[1]
            for start in range(max(0, skip - position), len(X), self._chunk_rows):
                part, first = slice(start, start + self._chunk_rows), position + start
                require_finite(X[part], first, self.name, "learn")
                yield Chunk(first, X[part], stored_labels(y[part], self._labels, first, f"the label of {self.name}"))
            position += len(X)
        check_end(self.name, position, skip)

    def close(self) -> None:
        """Do nothing: the iterable belongs to the caller."""

    def _batch(self, pair: tuple[ArrayLike, Any], position: int) -> tuple[Array, Array]:
        where = f"{self.name}: sample {position} (0-based)"
        try:
            x, label = pair
            rows, labels = np.asarray(x), np.asarray(label)
        except (TypeError, ValueError):
            raise DataError(
                f"{where} is not a pair of features and label: give pairs (x, y), or batches (X, y)"
            ) from None
        if rows.dtype.kind not in "fiub" or rows.ndim not in (1, 2) or rows.shape[-1] == 0:
            raise DataError(
                f"{where} has features of shape {rows.shape} and type {rows.dtype}: give dense rows of real numbers"
            )
        rows = np.ascontiguousarray(np.atleast_2d(rows), dtype=np.float64)
        y = as_label_vector(np.atleast_1d(labels), f"the label of {where}")
        if len(y) != len(rows):
            raise DataError(f"{where} begins a batch of {len(rows)} rows with {len(y)} labels: give one label per row")
        return rows, y


def stored_labels(y: Array, labels: ClassLabels, first: int, name: str) -> Array:
    """Labels of an array, matched with the given classes; without classes unchanged, if each can be a label."""
    if labels.classes is None and y.dtype.kind in "biu":
        return y
    if labels.classes is None and y.dtype.kind == "f":
        broken = np.flatnonzero(~np.isfinite(y) | (y != np.floor(y)))
        if len(broken):
            raise DataError(
                f"{name} is {y[broken[0]]} at row {first + broken[0]} (0-based): give classes as integers or text"
            )
        return y
    try:
        return labels.read([label_text(value) for value in y.tolist()])
    except BadLabel as bad:
        raise DataError(f"{name}, row {first + bad.place} (0-based), {bad.problem}") from None


def require_known(X: Array, first: int, name: str, columns: Columns | None) -> None:
    """Refuse infinity, and NaN unless it is a missing value of a table."""
    require_finite(X if columns is None else np.where(np.isnan(X), 0.0, X), first, name, "learn")


def require_skip(skip: int) -> int:
    """A checked position at which a stream can begin."""
    if isinstance(skip, bool) or not isinstance(skip, int | np.integer) or skip < 0:
        raise ParameterError(f"skip={skip!r}: give a number of samples from 0")
    return int(skip)


def check_end(name: str, n_samples: int, skip: int) -> None:
    """Refuse a stream that ended without a sample, or before the position at which it was to be resumed."""
    if n_samples < skip:
        raise DataError(
            f"{name} ended after {n_samples} samples, but {skip} should be skipped:"
            " give the same stream from its beginning"
        )
    if n_samples == 0:
        raise DataError(f"{name} holds no samples: give at least one")
