"""Weights of the rows in the loss: given weights of rows, times weights of classes.

    C_i = C weight_i        weight_i = sample_weight_i class_weight of y_i

A row of weight zero is left out of the data. "balanced" gives every class the same sum of weights. Weights affect only
the loss and the measured errors: scaling, projection, gammas and anchors do not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.class_weight import ClassWeight
from mllkm_scale.base.units import format_bytes
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.subset import subset
from mllkm_scale.errors import BudgetError, DataError, ParameterError

__all__ = [
    "SAMPLE_WEIGHT",
    "WEIGHT_BYTES",
    "Weighed",
    "class_weights",
    "require_weights",
    "weigh",
    "weights_in_numbers",
]

SAMPLE_WEIGHT = "sample_weight"
"""Name of the data set of weights written by a conversion."""

WEIGHT_BYTES = 48
"""Bytes per row for weights: given and used, bounds, and derived values."""

_LEAST = 1e-100  # smallest weight, and inverse of the largest one


@dataclass(frozen=True)
class Weighed:
    """The rows of positive weight as a data set, with their weights, if any were given.

    `kept` are their numbers among all `n_rows`; None if all are kept.
    """

    dataset: Dataset
    n_rows: int
    kept: NDArray[np.int64] | None = None


def weigh(
    dataset: Dataset, class_weight: ClassWeight = None, *, relative: bool = False, budget_bytes: int | None = None
) -> Weighed:
    """A data set with the weight of every row in the loss, without rows of weight zero.

    Without weights, the data set is unchanged. With `relative`, weights are divided by their mean. They are not read if
    they do not fit the budget.

    Examples
    --------
    >>> data = Dataset.from_arrays([[0.0], [1.0], [2.0], [3.0]], [0, 0, 0, 1], sample_weight=[1.0, 0.0, 1.0, 1.0])
    >>> weigh(data).dataset.weights().tolist(), weigh(data, "balanced").dataset.weights().tolist()
    ([1.0, 1.0, 1.0], [0.75, 0.75, 1.5])
    """
    if not dataset.has_weights and class_weight is None:
        return Weighed(dataset, dataset.n_rows)
    needed = WEIGHT_BYTES * dataset.n_rows
    if budget_bytes is not None and needed > budget_bytes:
        raise BudgetError(
            f"memory_budget={format_bytes(budget_bytes)} is too small for the weights of {dataset.n_rows} rows alone:"
            f" they take {format_bytes(needed)}"
        )
    given = dataset.weights()
    weights = np.ones(dataset.n_rows) if given is None else given
    if class_weight is not None:
        classes, codes = dataset.label_codes()
        weights = weights * _of_classes(classes, codes, weights, class_weight, dataset.label_name)[codes]
    least, largest = weights[weights > 0].min(), weights.max()
    if not _LEAST <= least <= largest <= 1.0 / _LEAST:
        raise DataError(
            f"{dataset.weight_name} of {dataset.name} goes from {least:g} to {largest:g}, which is too far from one:"
            " divide the weights by their mean"
        )
    if relative:
        weights = weights / weights[weights > 0].mean()
    rows = np.flatnonzero(weights)
    if len(rows) == dataset.n_rows:
        return Weighed(dataset.with_weights(weights), dataset.n_rows)
    return Weighed(subset(dataset, rows, "weighted rows").with_weights(weights[rows]), dataset.n_rows, rows)


def require_weights(values: Array, place: Callable[[int], str]) -> Array:
    """Checked weights from a file; negative and infinite weights are refused with the place of the row.

    >>> require_weights(np.array([1.0, -1.0]), "line {}".format)
    Traceback (most recent call last):
    mllkm_scale.errors.DataError: line 1, the weight, is -1: weights are finite numbers from 0
    """
    refused = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(refused):
        row = int(refused[0])
        raise DataError(f"{place(row)}, the weight, is {values[row]:g}: weights are finite numbers from 0")
    return values


def _of_classes(classes: Array, codes: Array, weights: Array, given: ClassWeight, name: str) -> Array:
    """The weight of each class."""
    if isinstance(given, str):
        sums = np.bincount(codes, weights, minlength=len(classes))
        there = sums > 0
        return np.where(there, weights.sum() / (there.sum() * np.where(there, sums, 1.0)), 0.0)
    return class_weights(classes, dict(given or {}), name)


def class_weights(classes: Array, given: ClassWeight, name: str) -> Array:
    """The weight of each class, given by label; 1 for other classes.

    >>> class_weights(np.array(["no", "yes"]), {"yes": 5.0}, "y").tolist()
    [1.0, 5.0]
    """
    if isinstance(given, str):
        raise ParameterError(f"class_weight={given!r} needs all rows at once: give weights by label")
    factors = np.ones(len(classes))
    for label, weight in dict(given or {}).items():
        at = [place for place, known in enumerate(classes.tolist()) if known == label or str(known) == str(label)]
        if not at:
            known = ", ".join(repr(one) for one in classes.tolist()[:10])
            raise ParameterError(
                f"class_weight names {label!r}, which is not a label of {name}: its classes are {known}"
            )
        factors[at] = float(weight)
    return factors


def weights_in_numbers(weights: Array | None) -> dict[str, float]:
    """The entry of a record about the weights of the rows; empty if there are none."""
    if weights is None:
        return {}
    return {
        "least_weight": float(weights.min()),
        "mean_weight": float(weights.mean()),
        "largest_weight": float(weights.max()),
    }
