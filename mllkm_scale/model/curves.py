"""ROC and precision-recall curves of scores, counted in one pass over any number of rows.

Rows are counted between thresholds, which are the scores of the first block of rows: all of them, or `MOST_EDGES` at
even ranks. A curve is exact if all rows are in one block and have no more different scores than that. Otherwise rows
between two thresholds count as ties, and the error of the area under the ROC curve is at most half of the tied pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mllkm_scale.base.arrays import Array

__all__ = ["Curve", "CurveCounts"]

MOST_EDGES = 1024
MOST_CELLS = 1 << 20  # of the counts of all classes
POINTS = 64  # of a curve that are kept
MOST_CURVES = 30  # curves whose points are kept: those with the smallest areas


@dataclass(frozen=True)
class Curve:
    """How well a score ranks the rows of its class before all others.

    Attributes
    ----------
    label : object
        The class; for two classes the second one.
    roc_area : float
        Share of the pairs of a row of the class and another row in which the former has the larger score.
    average_precision : float
        Mean of the precision over the rows of the class, in the order of their scores.
    false_rate, recall, precision : list of float
        Points of the curves, from the largest threshold down; empty if they were not kept.
    """

    label: Any
    roc_area: float
    average_precision: float
    false_rate: list[float] = field(default_factory=list)
    recall: list[float] = field(default_factory=list)
    precision: list[float] = field(default_factory=list)


class CurveCounts:
    """Rows of each class and of all others between thresholds of each score (n, K).

    Examples
    --------
    >>> counts = CurveCounts(["no", "yes"])
    >>> counts.add(np.array([[0.1], [0.4], [0.35], [0.8]]), np.array([0, 0, 1, 1]))
    >>> counts.curves()[0].roc_area
    0.75
    """

    def __init__(self, classes: list[Any]) -> None:
        self._labels = classes[1:] if len(classes) == 2 else classes
        self._first = len(classes) - len(self._labels)
        self._edges: list[Array] = []
        self._counts: list[Array] = []  # (2, edges + 1): others, and rows of the class

    def add(self, scores: Array, codes: Array) -> None:
        """Count rows with these scores (n, K) and positions of their true classes."""
        if not self._edges:
            most = max(2, min(MOST_EDGES, MOST_CELLS // len(self._labels)))
            self._edges = [_edges(column, most) for column in scores.T]
            self._counts = [np.zeros((2, len(edges) + 1), np.int64) for edges in self._edges]
        for k, (edges, counts) in enumerate(zip(self._edges, self._counts, strict=True)):
            places = np.searchsorted(edges, scores[:, k], side="right")
            own = codes == k + self._first
            for of_class in (0, 1):
                counts[of_class] += np.bincount(places[own == of_class], minlength=counts.shape[1])

    def curves(self) -> tuple[Curve, ...]:
        """The curves of the classes that some rows, but not all, belong to."""
        found = [
            (label, *(np.cumsum(row[::-1]) for row in counts))
            for label, counts in zip(self._labels, self._counts, strict=True)
            if counts.any(axis=1).all()
        ]
        made = [_curve(*parts) for parts in found]
        kept = np.argsort([curve.roc_area for curve in made], kind="stable")[:MOST_CURVES].tolist()
        return tuple(
            curve if i in kept else Curve(curve.label, curve.roc_area, curve.average_precision)
            for i, curve in enumerate(made)
        )


def _edges(scores: Array, most: int) -> Array:
    """Distinct scores, or `most` of them at even ranks."""
    distinct = np.unique(scores)
    if len(distinct) <= most:
        return distinct
    return np.unique(np.sort(scores)[np.linspace(0, len(scores) - 1, most).round().astype(np.intp)])


def _curve(label: Any, others: Array, own: Array) -> Curve:
    """The curve from the numbers of rows above each threshold."""
    false_rate, recall = (np.append(0.0, counts / counts[-1]) for counts in (others, own))
    seen = np.maximum(own + others, 1)
    precision = np.append(1.0, own / seen)
    area = float(np.sum(np.diff(false_rate) * (recall[1:] + recall[:-1]) / 2))
    average = float(np.sum(np.diff(recall) * precision[1:]))
    along = (false_rate + recall) / 2
    kept = np.unique(np.append(np.searchsorted(along, np.linspace(0, 1, POINTS)), len(along) - 1))
    kept = kept[kept < len(along)]
    points = (np.round(values[kept], 5).tolist() for values in (false_rate, recall, precision))
    return Curve(label if not hasattr(label, "item") else label.item(), area, average, *points)
