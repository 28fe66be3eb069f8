"""Samples of a data set (HDF5, zarr, arrays), streamed chunk by chunk over its grid, in one pass or several.

Position p of n rows is in pass p // n. With `shuffle`, pass e visits the chunks in the order of a permutation keyed by
(seed, e), and the rows of chunk i in the order of one keyed by (seed, e, i + 1): samples move within their chunk, and
chunks within the pass. So the order is a function of the seed and the grid, and any position is reached by reading one
chunk. If rows are sorted by class over many chunks, shuffle the file once before.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.labels import as_label_vector
from mllkm_scale.data.tables.columns import Columns
from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.online.sources.class_labels import ClassLabels
from mllkm_scale.online.sources.samples import Chunk, check_end, require_known, require_skip, stored_labels

__all__ = ["DatasetSamples"]


class DatasetSamples:
    """The rows of a data set and their labels, with one chunk in memory at a time.

    Parameters
    ----------
    dataset : Dataset
        With labels. It is closed by `close`.
    classes : array-like, optional
        The classes; labels are matched with them as in `ClassLabels`. Without classes, labels are returned as stored.
    passes : int
        Number of passes over all rows.
    shuffle : bool
        Visit the chunks of a pass, and the rows of a chunk, in random order.
    seed : int
        Seed of the random order.

    Examples
    --------
    >>> data = Dataset.from_arrays([[0.0], [1.0], [2.0]], [0, 1, 0], chunk_rows=2)
    >>> [(chunk.first, chunk.X[:, 0].tolist()) for chunk in DatasetSamples(data, passes=2).chunks(skip=2)]
    [(2, [2.0]), (3, [0.0, 1.0]), (5, [2.0])]
    """

    remark = ""

    def __init__(
        self,
        dataset: Dataset,
        *,
        classes: ArrayLike | None = None,
        passes: int = 1,
        shuffle: bool = False,
        seed: int = 0,
    ) -> None:
        for option, value, least in (("passes", passes, 1), ("seed", seed, 0)):
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise ParameterError(f"{option}={value!r}: give a whole number from {least}")
        if dataset.label_source is None:
            raise DataError(f"{dataset.name} was opened without labels: name the data set of the labels (y)")
        n_labels = (*dataset.label_source.shape, 0)[0]
        if n_labels != dataset.n_rows:
            raise DataError(
                f"{dataset.label_name} has {n_labels} labels, but {dataset.name} has {dataset.n_rows} rows:"
                " give one label per row"
            )
        self.name = dataset.name
        self.dataset = dataset
        self.passes, self.shuffle, self.seed = int(passes), bool(shuffle), int(seed)
        self._label_source, self._weight_source = dataset.label_source, dataset.weight_source
        dataset.weights()  # checks the weights before anything is learned
        self._labels = ClassLabels(classes)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Those of the data set."""
        return self.dataset.feature_names

    @property
    def columns(self) -> Columns | None:
        """Those of the data set."""
        return self.dataset.columns

    def chunks(self, skip: int = 0) -> Iterator[Chunk]:
        """The samples from position `skip` on; the first chunk begins there."""
        skip = require_skip(skip)
        check_end(self.name, self.passes * self.dataset.n_rows, skip)
        for number in range(skip // self.dataset.n_rows, self.passes):
            position = number * self.dataset.n_rows
            for i in self._chunk_order(number):
                start, stop = self.dataset.bounds(i)
                done = max(0, skip - position)
                if done < stop - start:
                    yield self._chunk(number, i, position, done)
                position += stop - start

    def close(self) -> None:
        """Close the data set."""
        self.dataset.close()

    def _chunk(self, number: int, i: int, position: int, done: int) -> Chunk:
        """Chunk `i` in pass `number`, whose first row has that position, without the first `done` rows."""
        start, stop = self.dataset.bounds(i)
        X, name = self.dataset.chunk(i), self.dataset.label_name
        require_known(X, start, self.name, self.columns)
        stored = as_label_vector(self._label_source.read(start, stop), name)
        y = stored_labels(stored, self._labels, start, name)
        ids, weights = np.arange(start, stop), None
        if self._weight_source is not None:
            weights = np.asarray(self._weight_source.read(start, stop), np.float64)
        if self.shuffle:
            order = np.random.default_rng([self.seed, number, i + 1]).permutation(stop - start)
            X, y, ids = X[order], y[order], ids[order]
            weights = None if weights is None else weights[order]
        weights = None if weights is None else weights[done:]
        return Chunk(position + done, X[done:], y[done:], ids[done:], new=number == 0, weights=weights)

    def _chunk_order(self, number: int) -> list[int]:
        if not self.shuffle:
            return list(range(self.dataset.n_chunks))
        return np.random.default_rng([self.seed, number]).permutation(self.dataset.n_chunks).tolist()
