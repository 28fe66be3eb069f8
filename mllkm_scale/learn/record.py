"""What run.json remembers of learned kernels: how many there were, and how much each feature counts in the metric."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mllkm_scale.data.preparation.preprocessing import Preprocessor
from mllkm_scale.learn.machine import Metric
from mllkm_scale.learn.proposals import Learned

__all__ = ["LearnedRecord", "record_of"]


@dataclass(frozen=True)
class LearnedRecord:
    """What was learned, in numbers.

    Attributes
    ----------
    n_kernels : int
        Kernels that were learned.
    metric : str, int or None
        What was learned of the features.
    importance : tuple of float
        Of each prepared column, with six digits: its spread in the metric, divided by the largest.
    features : tuple of int, or None
        The feature that each column is made of; None if columns are principal components.
    quantile : tuple of bool
        Whether each column is a quantile column.
    dropped_columns, dropped_features : int
        Columns that vanish in the metric, and features of which no column is left.
    """

    n_kernels: int
    metric: Metric
    importance: tuple[float, ...]
    features: tuple[int, ...] | None
    quantile: tuple[bool, ...]
    dropped_columns: int
    dropped_features: int

    def as_dict(self, n_kept: int | None, n_beside: int | None) -> dict[str, Any]:
        """Plain data, for JSON, with the learned kernels and the others that the model has."""
        return asdict(self) | {"kept_kernels": n_kept, "other_kernels": n_beside}


def record_of(learned: Learned, preprocessor: Preprocessor) -> LearnedRecord:
    """The record of what was learned on rows that `preprocessor` has prepared, which has no metric in it yet."""
    layout, scaling = learned.machine.layout, preprocessor.scaling
    kept = (
        learned.kept_features if layout.metric is not None and not layout.linear else np.ones(layout.n_features, bool)
    )
    features, quantile, lost = None, np.zeros(layout.n_features, dtype=bool), 0
    if preprocessor.projection is None:
        features = np.array([scaling.feature(column) for column in range(layout.n_features)])
        quantile, lost = scaling.mapped, len(np.unique(features)) - len(np.unique(features[kept]))
    return LearnedRecord(
        n_kernels=layout.n_kernels,
        metric=layout.metric,
        importance=tuple(float(f"{value:.6g}") for value in learned.importance),
        features=None if features is None else tuple(features.tolist()),
        quantile=tuple(quantile.tolist()),
        dropped_columns=int(np.count_nonzero(~kept)),
        dropped_features=lost,
    )
