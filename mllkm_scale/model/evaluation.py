"""How good a model is on labelled data: one pass over its chunks that fills the confusion matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.data.dataset import Dataset
from mllkm_scale.errors import DataError
from mllkm_scale.model.inference.blocks import Rows
from mllkm_scale.model.inference.labels import label_codes
from mllkm_scale.model.model import Model

__all__ = ["Evaluation", "evaluate"]

LISTED = 10


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Counts of true and predicted classes, and what follows from them.

    Attributes
    ----------
    classes : array (c,)
    confusion : int64 array (c, c)
        Rows are true classes, columns predicted ones.

    Examples
    --------
    >>> result = Evaluation(np.array(["no", "yes"]), np.array([[3, 1], [0, 4]]))
    >>> result.n, result.accuracy, result.recall.tolist(), result.precision.tolist()
    (8, 0.875, [0.75, 1.0], [1.0, 0.8])
    """

    classes: NDArray[Any]
    confusion: NDArray[np.int64]

    @property
    def n(self) -> int:
        """Samples."""
        return int(self.confusion.sum())

    @property
    def accuracy(self) -> float:
        """Share of the samples whose label was predicted."""
        return float(np.trace(self.confusion) / self.n)

    @property
    def error(self) -> float:
        """Share of the samples whose label was not predicted."""
        return float((self.n - np.trace(self.confusion)) / self.n)

    @property
    def precision(self) -> NDArray[np.float64]:
        """Of the samples predicted as each class, the share that are; 0 if there are none."""
        return _share(np.diagonal(self.confusion), self.confusion.sum(axis=0))

    @property
    def recall(self) -> NDArray[np.float64]:
        """Of the samples of each class, the share predicted so; 0 if there are none."""
        return _share(np.diagonal(self.confusion), self.confusion.sum(axis=1))

    @property
    def f1(self) -> NDArray[np.float64]:
        """Harmonic mean of precision and recall; 0 if a class is neither there nor predicted."""
        total = self.confusion.sum(axis=0) + self.confusion.sum(axis=1)
        return _share(2 * np.diagonal(self.confusion), total)

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON holds it."""
        arrays = ("classes", "confusion", "precision", "recall", "f1")
        return {"n": self.n, "accuracy": self.accuracy, "error": self.error} | {
            name: getattr(self, name).tolist() for name in arrays
        }


def evaluate(model: Model, dataset: Dataset, *, by_position: bool = False, n_jobs: int | None = None) -> Evaluation:
    """Predict a labelled data set chunk by chunk, and compare.

    Parameters
    ----------
    model : Model
    dataset : Dataset
        With labels, each a class of the model; not all classes need occur. Columns are matched by name where both the
        data set and the model have names.
    by_position : bool
        Take columns by position though they have names.
    n_jobs : int, optional
        Threads; -1 for one a core.

    Raises
    ------
    DataError
        If there are no labels, or one that the model does not know.

    Examples
    --------
    >>> from mllkm_scale import MLLKMClassifier
    >>> X, y = [[0.0, 0.0], [0.0, 1.0], [3.0, 3.0], [3.0, 4.0]], ["near", "near", "far", "far"]
    >>> model = MLLKMClassifier().fit(X, y).model_
    >>> evaluate(model, Dataset.from_arrays(X, y)).confusion.tolist()
    [[2, 0], [0, 2]]
    """
    model, dataset = model.numeric(dataset, by_position=by_position)
    truth = np.empty(dataset.n_rows, np.int32)
    for start, labels in dataset.label_blocks():
        truth[start : start + len(labels)] = _codes(model.classes, labels, dataset.label_name, start)
    c = len(model.classes)
    counts = np.zeros(c * c, dtype=np.int64)
    for start, chunk in dataset.chunks():
        predicted = label_codes(model, Rows(chunk, start, dataset.name), n_jobs)
        counts += np.bincount(truth[start : start + len(predicted)].astype(np.int64) * c + predicted, minlength=c * c)
    return Evaluation(model.classes, counts.reshape(c, c))


def _codes(classes: NDArray[Any], labels: NDArray[Any], name: str, first_row: int) -> NDArray[np.intp]:
    """Position of each label among the classes; `first_row` is the number of the first."""
    known = ", ".join(repr(label) for label in classes[:LISTED].tolist())
    known += ", ..." if len(classes) > LISTED else ""
    if (classes.dtype.kind == "U") != (labels.dtype.kind == "U"):
        row = 0
    else:
        codes = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
        unknown = np.flatnonzero(classes[codes] != labels)
        if not len(unknown):
            return codes
        row = int(unknown[0])
    raise DataError(
        f"{name} has the label {labels[row].item()!r} at row {first_row + row} (0-based), which the model does not"
        f" know: its classes are {known}"
    )


def _share(part: NDArray[Any], whole: NDArray[Any]) -> NDArray[np.float64]:
    shares = np.zeros(len(whole))
    np.divide(part, whole, out=shares, where=whole > 0)
    return shares
