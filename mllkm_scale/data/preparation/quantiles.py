"""Quantile columns: a feature replaced by the share of samples below it, as a piecewise linear map to [0, 1].

    t(x) = levels_i + (x - values_i) slope_i   for values_i <= x < values_(i+1),   slope_i = dlevel_i / dvalue_i

Below the first knot and above the last one, t is constant. A frequent value is one knot, and its level is the middle of
the ranks of its samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST_KNOTS", "Quantiles", "choose_knots", "mid_levels"]

MOST_KNOTS = 64
"""Largest number of knots of a column; the distribution between them is assumed to be uniform."""

_LEAST_GAP = 1e-290  # least distance of knots, so that no slope overflows

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Quantiles:
    """The piecewise linear maps of columns, one after another; a column without knots is unchanged.

    Attributes
    ----------
    starts : int64 array of shape (p + 1,)
        The knots of column j are `starts[j]` to `starts[j + 1]`.
    values : float64 array
        Knots, strictly rising within a column.
    levels : float64 array
        Values of the map at the knots: from 0 to 1, non-decreasing within a column.

    Examples
    --------
    >>> quantiles = Quantiles.of([(np.empty(0), np.empty(0)), (np.array([0.0, 10.0]), np.array([0.25, 0.75]))])
    >>> quantiles.apply(np.array([[7.0, 5.0], [7.0, 99.0]])).tolist()
    [[7.0, 0.5], [7.0, 0.75]]
    """

    starts: NDArray[np.int64]
    values: Vector
    levels: Vector

    @classmethod
    def of(cls, columns: Sequence[tuple[Vector, Vector]]) -> Quantiles:
        """The maps with these values and levels, one pair for each column."""
        starts = np.cumsum([0, *(len(values) for values, _ in columns)]).astype(np.int64)
        values, levels = (np.concatenate([np.empty(0), *(pair[i] for pair in columns)]) for i in (0, 1))
        return cls(starts, values, levels)

    @property
    def mapped(self) -> NDArray[np.bool_]:
        """Which columns have a map, shape (p,)."""
        has: NDArray[np.bool_] = np.diff(self.starts) > 0
        return has

    def knots(self, column: int) -> tuple[Vector, Vector]:
        """Values and levels of a column."""
        own = slice(self.starts[column], self.starts[column + 1])
        return self.values[own], self.levels[own]

    def apply(self, X: Vector) -> Vector:
        """Map the columns of X (n, p) in place, row by row."""
        for j in np.flatnonzero(self.mapped):
            X[:, j] = np.interp(X[:, j], *self.knots(int(j)))
        return X

    def invert_column(self, column: int, levels: Vector) -> Vector:
        """The values that a column maps to these levels; the first or last knot for levels beyond its own."""
        values, known = self.knots(column)
        found: Vector = np.interp(levels, known, values)
        return found

    def take(self, kept: NDArray[np.intp]) -> Quantiles:
        """The maps of some columns, in this order."""
        return Quantiles.of([self.knots(int(j)) for j in kept])

    @property
    def slopes(self) -> Vector:
        """Slope after each knot; 0 after the last one of a column."""
        slopes = np.zeros(len(self.values))
        inner = np.ones(len(self.values), dtype=bool)
        inner[self.starts[1:][self.mapped] - 1] = False
        at = np.flatnonzero(inner)
        slopes[at] = (self.levels[at + 1] - self.levels[at]) / (self.values[at + 1] - self.values[at])
        return slopes


def mid_levels(values: Vector, weights: Vector) -> tuple[Vector, Vector]:
    """Distinct values of a weighted sample, and the middle of the ranks of each, relative to the total.

    Examples
    --------
    >>> mid_levels(np.array([5.0, 3.0, 5.0, 9.0]), np.ones(4))
    (array([3., 5., 9.]), array([0.125, 0.5  , 0.875]))
    """
    distinct, place = np.unique(values, return_inverse=True)
    mass = np.bincount(place, weights, minlength=len(distinct))
    above = np.cumsum(mass)
    return distinct, (above - 0.5 * mass) / above[-1]


def choose_knots(distinct: Vector, levels: Vector, most: int = MOST_KNOTS) -> tuple[Vector, Vector]:
    """At most `most` of these knots: all of them, or those with levels nearest to evenly spaced ones.

    Examples
    --------
    >>> choose_knots(np.arange(100.0), (np.arange(100) + 0.5) / 100, most=3)
    (array([ 0., 50., 99.]), array([0.005, 0.505, 0.995]))
    """
    apart = np.append(True, np.diff(distinct) > _LEAST_GAP)
    distinct, levels = distinct[apart], levels[apart]
    if len(distinct) <= most:
        return distinct, levels
    wanted = np.linspace(levels[0], levels[-1], most)
    after = np.clip(np.searchsorted(levels, wanted), 1, len(levels) - 1)
    nearer = wanted - levels[after - 1] < levels[after] - wanted
    kept = np.unique(np.where(nearer, after - 1, after))
    return distinct[kept], levels[kept]
