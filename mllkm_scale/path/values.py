"""Along what a path goes: values of C, from the smallest on, or numbers of kernels, from the largest on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.automatic import weight_of_loss

__all__ = ["AROUND_AUTO", "PathValues", "path_values"]

AROUND_AUTO = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0)
"""The Cs of a path that names none, times what C="auto" is."""


@dataclass(frozen=True)
class PathValues:
    """The parameter that differs along a path, and its values in the order in which they are trained."""

    parameter: str  # "C" or "max_kernels"
    values: tuple[float, ...]  # of C: empty for those around the automatic one

    def resolved(self, n_features: int) -> tuple[float, ...]:
        """The values, of data with so many features after projection."""
        auto = weight_of_loss("auto", n_features)
        return self.values or tuple(factor * auto for factor in AROUND_AUTO)


def path_values(Cs: Sequence[float] | None, kernel_counts: Sequence[float] | None) -> PathValues:
    """What was asked for, checked and in order; the Cs around the automatic one if nothing was.

    >>> path_values([1.0, 0.1], None).values, path_values(None, [10, 200]).values
    ((0.1, 1.0), (200, 10))
    """
    if Cs is not None and kernel_counts is not None:
        raise ParameterError("Cs and kernel_counts are two paths: give one of them")
    if kernel_counts is not None:
        counts = _distinct("kernel_counts", kernel_counts)
        if any(int(count) != count or count < 1 for count in counts):
            raise ParameterError(f"kernel_counts={list(kernel_counts)!r}: give whole numbers from 1")
        return PathValues("max_kernels", tuple(sorted((int(count) for count in counts), reverse=True)))
    if Cs is None:
        return PathValues("C", ())
    values = _distinct("Cs", Cs)
    if any(not value > 0 for value in values):
        raise ParameterError(f"Cs={list(Cs)!r}: give positive numbers")
    return PathValues("C", tuple(sorted(values)))


def _distinct(name: str, given: Sequence[float]) -> list[float]:
    try:
        values = [float(value) for value in np.ravel(given)]
    except (TypeError, ValueError):
        raise ParameterError(f"{name}={given!r}: give numbers") from None
    if not values or not all(math.isfinite(value) for value in values):
        raise ParameterError(f"{name}={given!r}: give at least one number, and finite ones")
    if len({f"{value:g}" for value in values}) < len(values):
        raise ParameterError(f"{name}={list(given)!r}: give numbers that differ in their first six digits")
    return values
