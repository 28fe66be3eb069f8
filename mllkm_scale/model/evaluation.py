"""Evaluation of a model on labelled data, in one pass over its chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.weighted import unit_weights
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.errors import DataError
from mllkm_scale.model.calibration import Calibration
from mllkm_scale.model.curves import Curve, CurveCounts
from mllkm_scale.model.inference.blocks import Rows
from mllkm_scale.model.inference.decision import decide
from mllkm_scale.model.model import Model

__all__ = ["Evaluation", "evaluate"]

LISTED = 10
BINS = 10  # of the largest probability, for the calibration error


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Counts of true and predicted classes, and measures derived from them.

    Attributes
    ----------
    classes : array (c,)
    confusion : int64 array (c, c)
        Rows are true classes, columns predicted ones.
    log_loss, brier, calibration_error : float or None
        For a model with a calibration: the mean of -log p of the true class; the mean of sum_k (p_k - [k is true])^2;
        and the mean difference, over ten bins weighted by their rows, between the largest probability and the frequency
        with which its class is true. Weights of rows, if there are any, count in all of these and in the bins.
    weighted_error : float or None
        Weighted share of the misclassified rows, if rows have weights; the confusion matrix counts rows.
    bins : array (3, 10) or None
        For each of these bins: rows, the sum of their largest probabilities, and the number of correct rows.
    curves : tuple of Curve
        ROC and precision-recall curves with their areas: one for two classes, and otherwise one per class.
    telling : tuple of int
        Rows to explain: the most certain correct row, the least certain row, and the most certain misclassified row, if
        they exist.
    calibration_by_chance : float or None
        Approximate calibration error of perfectly calibrated probabilities: bins of few rows deviate by chance.

    Examples
    --------
    >>> result = Evaluation(np.array(["no", "yes"]), np.array([[3, 1], [0, 4]]))
    >>> result.n, result.accuracy, result.recall.tolist(), result.precision.tolist()
    (8, 0.875, [0.75, 1.0], [1.0, 0.8])
    """

    classes: NDArray[Any]
    confusion: NDArray[np.int64]
    log_loss: float | None = None
    brier: float | None = None
    calibration_error: float | None = None
    bins: NDArray[np.float64] | None = None
    curves: tuple[Curve, ...] = ()
    telling: tuple[int, ...] = ()
    calibration_by_chance: float | None = None
    weighted_error: float | None = None

    @property
    def n(self) -> int:
        """Number of samples."""
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
        """Share of the samples predicted as each class that belong to it; 0 if there are none."""
        return _share(np.diagonal(self.confusion), self.confusion.sum(axis=0))

    @property
    def recall(self) -> NDArray[np.float64]:
        """Share of the samples of each class that are predicted as that class; 0 if there are none."""
        return _share(np.diagonal(self.confusion), self.confusion.sum(axis=1))

    @property
    def f1(self) -> NDArray[np.float64]:
        """Harmonic mean of precision and recall; 0 if a class neither occurs nor is predicted."""
        total = self.confusion.sum(axis=0) + self.confusion.sum(axis=1)
        return _share(2 * np.diagonal(self.confusion), total)

    def as_dict(self) -> dict[str, Any]:
        """The evaluation as plain data, for JSON."""
        arrays = ("classes", "confusion", "precision", "recall", "f1")
        numbers = ("n", "accuracy", "error", "log_loss", "brier", "calibration_error", "calibration_by_chance")
        return {
            **{name: getattr(self, name) for name in numbers},
            **{name: getattr(self, name).tolist() for name in arrays},
            "bins": None if self.bins is None else self.bins.tolist(),
            "curves": [vars(curve) for curve in self.curves],
            **({} if self.weighted_error is None else {"weighted_error": self.weighted_error}),
        }


def evaluate(model: Model, dataset: Dataset, *, by_position: bool = False, n_jobs: int | None = None) -> Evaluation:
    """Predict a labelled data set chunk by chunk, and compare.

    Parameters
    ----------
    model : Model
    dataset : Dataset
        With labels, which must be classes of the model, and optionally weights; not all classes need to occur. Columns
        are matched by name if both data set and model have names.
    by_position : bool
        Match columns by position even if they have names.
    n_jobs : int, optional
        Threads; -1 for one per core.

    Raises
    ------
    DataError
        If there are no labels, or a label is not a class of the model.

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
    c, weights, wrong = len(model.classes), dataset.weights(), 0.0
    weights = unit_weights(dataset.n_rows) if weights is None else weights / weights.mean()
    counts = np.zeros(c * c, dtype=np.int64)
    sums = None if model.calibration is None else _Sums(model.calibration)
    ranks, telling = CurveCounts(model.classes.tolist()), _Telling()
    for start, chunk in dataset.chunks():
        scores = decide(model, Rows(chunk, start, dataset.name), n_jobs)
        predicted, codes = model.codes(scores), truth[start : start + len(scores)].astype(np.int64)
        counts += np.bincount(codes * c + predicted, minlength=c * c)
        ranks.add(scores.reshape(len(scores), -1), codes)
        telling.add(scores, predicted == codes, start)
        own = weights[start : start + len(scores)]
        wrong += float(own[predicted != codes].sum())
        if sums is not None:
            sums.add(scores, codes, own)
    measured = {} if sums is None else sums.measured()
    return Evaluation(
        model.classes,
        counts.reshape(c, c),
        **measured,
        curves=ranks.curves(),
        telling=tuple(telling.rows()),
        weighted_error=wrong / dataset.n_rows if dataset.has_weights else None,
    )


class _Telling:
    """The most certain correct, the least certain, and the most certain misclassified row so far."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[float, int]] = {}

    def add(self, scores: NDArray[Any], right: NDArray[np.bool_], start: int) -> None:
        """Add rows with these scores; the first row has the number `start`."""
        if scores.ndim == 1:
            sure = np.abs(scores)
        else:
            second, first = np.partition(scores, -2, axis=1)[:, -2:].T
            sure = first - second
        for what, value in (
            ("right", np.where(right, sure, -1.0)),
            ("unsure", -sure),
            ("wrong", np.where(right, -1.0, sure)),
        ):
            at = int(np.argmax(value))
            found = float(value[at]), start + at
            if (what == "unsure" or found[0] >= 0) and (what not in self._found or found[0] > self._found[what][0]):
                self._found[what] = found

    def rows(self) -> list[int]:
        """Their numbers, without duplicates."""
        return list(dict.fromkeys(self._found[what][1] for what in ("right", "unsure", "wrong") if what in self._found))


class _Sums:
    """Sums over the rows for the measures of probabilities."""

    def __init__(self, calibration: Calibration) -> None:
        self._calibration = calibration
        self._log_loss = self._brier = 0.0
        # For each bin: rows, their largest probabilities, the number of correct rows, and its variance.
        self._bins = np.zeros((4, BINS))

    def add(self, scores: NDArray[Any], truth: NDArray[np.int64], weights: NDArray[np.float64]) -> None:
        """Add rows with these scores, true classes and weights."""
        log_p, at = self._calibration.log_probabilities(scores), np.arange(len(truth))
        p = np.exp(log_p)
        self._log_loss -= float((weights * log_p[at, truth]).sum())
        squares, own = (weights[:, None] * np.square(p)).sum(), (weights * p[at, truth]).sum()
        self._brier += float(squares - 2.0 * own + weights.sum())
        likely, largest = p.argmax(axis=1), p.max(axis=1)
        bins = np.minimum((largest * BINS).astype(np.intp), BINS - 1)
        spread = np.square(weights) * largest * (1.0 - largest)
        for row, values in enumerate((weights, weights * largest, weights * (likely == truth), spread)):
            self._bins[row] += np.bincount(bins, values, minlength=BINS)

    def measured(self) -> dict[str, Any]:
        """Log loss, Brier score, calibration error, its expected value by chance, and its bins.

        By chance, the error of the sum over a bin is approximately normal: its mean absolute value is sqrt(2 / pi)
        standard deviations.
        """
        rows, largest, true, variance = self._bins
        n = float(rows.sum())
        error, chance = np.abs(largest - true).sum(), np.sqrt(2.0 / np.pi * variance).sum()
        return {
            "log_loss": self._log_loss / n,
            "brier": self._brier / n,
            "calibration_error": float(error) / n,
            "calibration_by_chance": float(chance) / n,
            "bins": self._bins[:3],
        }


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
