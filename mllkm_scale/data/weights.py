"""Weights of the rows in the loss: those that are given, times those of the classes.

    C_i = C weight_i        weight_i = sample_weight_i class_weight of y_i

A row of weight zero is left out, as if it were not there. "balanced" gives every class the same sum of weights. Weights
change the loss and what is measured by it, and nothing else: scaling, projection, scales and anchors are those of the
rows as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.units import format_bytes
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.subset import subset
from mllkm_scale.errors import BudgetError, DataError, ParameterError

__all__ = [
    "SAMPLE_WEIGHT",
    "WEIGHT_BYTES",
    "ClassWeight",
    "Weighed",
    "check_class_weight",
    "class_weight_in_words",
    "class_weights",
    "read_class_weight",
    "require_weights",
    "weigh",
    "weights_in_numbers",
]

ClassWeight = str | Mapping[Any, float] | None

SAMPLE_WEIGHT = "sample_weight"
"""Name of the data set of the weights that a conversion writes."""

WEIGHT_BYTES = 48
"""Memory that the weight of a row takes: as it is given and as it is used, its bound, and what is made of it."""

_LEAST = 1e-100  # of a weight, and the inverse of the largest
_LONGEST = 900  # characters that a record has room for


@dataclass(frozen=True)
class Weighed:
    """The rows that have a weight, as a data set with the weights of all of its rows, if any were given.

    `kept` are their numbers among all `n_rows`; None if these are all.
    """

    dataset: Dataset
    n_rows: int
    kept: NDArray[np.int64] | None = None


def weigh(
    dataset: Dataset, class_weight: ClassWeight = None, *, relative: bool = False, budget_bytes: int | None = None
) -> Weighed:
    """A data set with the weight of every row in the loss, without the rows that have none.

    Without any weights it stays as it is. With `relative`, weights count by their ratios alone: their mean becomes one.
    They are not read if they would not fit the budget.

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
    """Weights as they are read from a file; those that are negative or not finite are refused by the place of the row.

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
    """The weight of each class as it is given by label; 1 for those that are not named.

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
            raise ParameterError(f"class_weight names {label!r}, which is no label of {name}: its classes are {known}")
        factors[at] = float(weight)
    return factors


def check_class_weight(given: Any) -> None:
    """Refuse what is neither None, "balanced", nor a positive number for each of some labels."""
    if given is None or given == "balanced":
        return
    if not isinstance(given, Mapping) or not given:
        raise ParameterError(
            f"class_weight={given!r}: give 'balanced', weights by label such as {{0: 1.0, 1: 5.0}}, or None"
        )
    for label, weight in given.items():
        number = isinstance(weight, int | float | np.number) and not isinstance(weight, bool)
        if not number or not 0 < float(weight) < math.inf:
            raise ParameterError(f"class_weight={{{label!r}: {weight!r}}}: give a positive number for each label")


def read_class_weight(text: str) -> ClassWeight:
    """The words balanced and none, or labels with weights.

    >>> read_class_weight("balanced"), read_class_weight("no:1,yes:5")
    ('balanced', {'no': 1.0, 'yes': 5.0})
    """
    if text.lower() in ("balanced", "none"):
        return None if text.lower() == "none" else "balanced"
    found: dict[str, float] = {}
    for part in text.split(","):
        label, _, weight = part.strip().rpartition(":")
        try:
            found[label] = float(weight)
        except ValueError:
            label = ""
        if not label:
            raise ParameterError(f"{text!r} is neither balanced nor labels with weights such as no:1,yes:5")
    return found


def class_weight_in_words(given: ClassWeight) -> str | None:
    """As `read_class_weight` takes it; of many classes, how many they are."""
    if given is None or isinstance(given, str):
        return given
    text = ",".join(f"{label}:{float(weight):g}" for label, weight in given.items())
    return text if len(text) <= _LONGEST else f"weights of {len(given)} classes"


def weights_in_numbers(weights: Array | None) -> dict[str, float]:
    """What a record says of the weights of the rows; nothing where there are none."""
    if weights is None:
        return {}
    return {
        "least_weight": float(weights.min()),
        "mean_weight": float(weights.mean()),
        "largest_weight": float(weights.max()),
    }
