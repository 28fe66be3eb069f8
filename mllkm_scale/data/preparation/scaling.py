"""Scaling, fitted in one or two passes over the chunks: columns made of single features, or rows to unit norm.

    z_j = (t_j(x_c(j)) - offset_j) * factor_j

c(j) is the feature of column j: j itself for the plain scalings "none", "standard", "minmax" and "unit-norm". t_j is
the identity, or the share of samples below (see `quantiles`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.executor import Executor
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.preparation.moments import gather_moments
from mllkm_scale.data.preparation.quantile_sketch import QuantileSketch, gather_quantiles
from mllkm_scale.data.preparation.quantiles import Quantiles, choose_knots, mid_levels
from mllkm_scale.errors import ParameterError

__all__ = ["QUANTILE_SCALINGS", "SCALINGS", "Scaling", "fit_scaling", "most_columns"]

SCALINGS = ("none", "standard", "minmax", "unit-norm", "quantile", "standard+quantile", "auto")
QUANTILE_SCALINGS = ("quantile", "standard+quantile", "auto")
SIDE_BY_SIDE = ("standard+quantile", "auto")
"""Scalings that may make two columns from one feature."""

INDICATOR_RANGE = 2.0

ALIKE = 0.98
"""A quantile column with a higher correlation with the standard column of its feature is left out."""


@dataclass(frozen=True, eq=False)
class Scaling:
    """A fitted scaling.

    Attributes
    ----------
    kind : str
        ``"none"``; ``"standard"``: mean 0 and variance 1; ``"minmax"``: range [0, 1]; ``"unit-norm"``: every row
        divided by its l2 norm, rows of zeros left alone; ``"quantile"``: the share of samples below, with mean 0 and
        variance 1; ``"standard+quantile"``: both, side by side; ``"auto"``: both, without those quantile columns that
        are nearly the standard columns again.
    offset, factor : float64 arrays of shape (p,)
        0 and 1 for the kinds that do not use them. The factor of a column that never changes is 1.
    columns : int64 array of shape (p,), optional
        The feature that each column is made of; None for plain scalings, which keep every feature in its place.
    quantiles : Quantiles, optional
        The maps of quantile columns; None if there are none.
    centres : float64 array of shape (d,), optional
        A typical value of each feature, used for features without a column; given together with `columns`.
    """

    kind: str
    offset: NDArray[np.float64]
    factor: NDArray[np.float64]
    columns: NDArray[np.int64] | None = None
    quantiles: Quantiles | None = None
    centres: NDArray[np.float64] | None = None

    @property
    def n_features_in(self) -> int:
        """Number of input features."""
        return len(self.offset if self.centres is None else self.centres)

    @property
    def n_columns(self) -> int:
        """Number of output columns."""
        return len(self.offset)

    @property
    def mapped(self) -> NDArray[np.bool_]:
        """Which columns are quantile columns, shape (p,)."""
        return np.zeros(self.n_columns, dtype=bool) if self.quantiles is None else self.quantiles.mapped

    @property
    def one_to_one(self) -> bool:
        """Whether every row of columns comes from some row of features."""
        single = self.columns is None or len(np.unique(self.columns)) == len(self.columns)
        return self.kind != "unit-norm" and self.quantiles is None and single

    def feature(self, column: int) -> int:
        """The feature of a column."""
        return column if self.columns is None else int(self.columns[column])

    def apply(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Scaled rows in float64; the result for a row depends only on that row."""
        if self.columns is not None:
            return self._apply_columns(X, self.columns)
        values = X.astype(np.float64, copy=False)
        if self.kind == "none":
            return values
        if self.kind == "unit-norm":
            return _unit_rows(values)
        scaled: NDArray[np.float64] = values - self.offset
        scaled *= self.factor
        return scaled

    def _apply_columns(self, X: NDArray[Any], columns: NDArray[np.int64]) -> NDArray[np.float64]:
        rows = _unit_rows(X.astype(np.float64, copy=False)) if self.kind == "unit-norm" else X
        scaled: NDArray[np.float64] = rows[:, columns].astype(np.float64, copy=False)
        if self.quantiles is not None:
            self.quantiles.apply(scaled)
        scaled -= self.offset
        scaled *= self.factor
        return scaled

    def invert(self, Z: NDArray[Any]) -> NDArray[np.float64]:
        """Rows in the units of the data; norms that unit-norm scaling has removed are not restored.

        A feature is taken from its first column that is not a quantile column, else from its first quantile column;
        a feature that is in no column has its usual value.

        >>> Scaling("minmax", np.array([10.0]), np.array([0.5])).invert(np.array([[1.0]])).tolist()
        [[12.0]]
        """
        if self.columns is None or self.centres is None:
            values: NDArray[np.float64] = Z / self.factor
            values += self.offset
            return values
        rows: NDArray[np.float64] = np.tile(self.centres, (len(Z), 1))
        # Written from last to first, so that preferred columns overwrite others.
        for j in np.lexsort((-np.arange(self.n_columns), ~self.mapped)):
            rows[:, self.columns[j]] = self.invert_column(int(j), Z[:, j])
        return rows

    def invert_column(self, column: int, points: NDArray[Any]) -> NDArray[np.float64]:
        """Values of a column in the units of its feature; beyond the knots of a quantile column, the last knot."""
        values: NDArray[np.float64] = points / self.factor[column] + self.offset[column]
        if self.quantiles is not None and self.quantiles.mapped[column]:
            return self.quantiles.invert_column(column, values)
        return values

    def scaled(self, factors: NDArray[np.float64], keep: NDArray[np.bool_]) -> Scaling:
        """The scaling with the kept columns, multiplied by their factors."""
        kept = np.flatnonzero(keep)
        offset, factor = self.offset[kept], self.factor[kept] * factors[kept]
        if self.columns is None and len(kept) == self.n_columns and self.kind in ("standard", "minmax"):
            return replace(self, factor=factor)
        columns = np.arange(self.n_columns) if self.columns is None else self.columns
        quantiles = None if self.quantiles is None else self.quantiles.take(kept)
        if quantiles is not None and not quantiles.mapped.any():
            quantiles = None
        return Scaling(self.kind, offset, factor, columns[kept].astype(np.int64), quantiles, self._usual())

    def _usual(self) -> NDArray[np.float64]:
        if self.centres is not None:
            return self.centres
        if self.kind == "minmax":
            usual: NDArray[np.float64] = self.offset + 0.5 / self.factor
            return usual
        return self.offset


def most_columns(kind: str, n_features: int) -> int:
    """Largest number of columns that a scaling makes from this number of features."""
    return n_features * (2 if kind in SIDE_BY_SIDE else 1)


def fit_scaling(
    dataset: Dataset, kind: str, executor: Executor | None = None, indicators: NDArray[np.bool_] | None = None
) -> Scaling:
    """Fit a scaling in one pass by the executor; kinds that need no pass read nothing.

    In standard columns the `indicators`, which are 0 or 1, have mean 0 and a range of 2, whatever their variance: a
    rare level of a category is not further from the others than a frequent one. An even split has variance 1.

    Examples
    --------
    >>> scaling = fit_scaling(Dataset.from_arrays([[1.0, 5.0], [3.0, 5.0]]), "standard")
    >>> scaling.apply(np.array([[1.0, 5.0], [3.0, 6.0]])).tolist()
    [[-1.0, 0.0], [1.0, 1.0]]
    """
    if kind not in SCALINGS:
        raise ParameterError(f"scaling must be one of {', '.join(SCALINGS)}, not {kind!r}")
    offset, factor = np.zeros(dataset.n_features), np.ones(dataset.n_features)
    if kind in ("none", "unit-norm"):
        return Scaling(kind, offset, factor)
    if kind == "quantile":
        return _with_quantiles(kind, None, gather_quantiles(dataset, executor))
    moments = gather_moments(dataset, executor=executor)
    if kind != "minmax":
        offset = np.where(moments.constant, moments.low, moments.mean)
        spread = np.sqrt(moments.deviations / moments.count)
    else:
        offset = moments.low
        spread = moments.high - moments.low
    with np.errstate(divide="ignore", over="ignore"):
        inverse = 1.0 / spread
    # If the inverse of the spread overflows, the column counts as constant.
    factor = np.where(moments.constant | ~np.isfinite(inverse), 1.0, inverse)
    if indicators is not None and kind != "minmax":
        factor = np.where(indicators & ~moments.constant, INDICATOR_RANGE, factor)
    fitted = Scaling(kind, offset, factor)
    return fitted if kind not in SIDE_BY_SIDE else _with_quantiles(kind, fitted, gather_quantiles(dataset, executor))


@dataclass(frozen=True)
class _Column:
    """The quantile column of a feature: its knots, mean and spread of its levels, and its correlation with the
    feature."""

    knots: tuple[NDArray[np.float64], NDArray[np.float64]]
    mean: float
    spread: float
    median: float
    n_distinct: int
    correlation: float

    @classmethod
    def of(cls, sketch: QuantileSketch, feature: int) -> _Column:
        values, weights = sketch.sample(feature)
        low, high = sketch.low[feature], sketch.high[feature]
        distinct, levels = mid_levels(values, weights)
        # Halving may have removed the extremes.
        if low < distinct[0]:
            distinct, levels = np.append(low, distinct), np.append(0.0, levels)
        if high > distinct[-1]:
            distinct, levels = np.append(distinct, high), np.append(levels, 1.0)
        knots = choose_knots(distinct, levels)
        shares = weights / weights.sum()
        mapped = np.interp(values, *knots)
        constant = len(knots[0]) == 1
        mean = float(knots[1][0] if constant else shares @ mapped)
        spread = 0.0 if constant else float(np.sqrt(shares @ (mapped - mean) ** 2))
        unit = float(np.abs(values).max()) or 1.0  # so that no square overflows
        centred = values / unit - shares @ (values / unit)
        size = float(np.sqrt(shares @ centred**2)) * spread
        correlation = float(shares @ (centred * (mapped - mean))) / size if size > 0 else 1.0
        median = float(np.interp(0.5, knots[1], knots[0]))
        return cls(knots, mean, spread, median, len(distinct), correlation)


def _with_quantiles(kind: str, beside: Scaling | None, sketch: QuantileSketch) -> Scaling:
    """Quantile columns of all features; or, after the columns of another scaling, only those that add information."""
    made = [_Column.of(sketch, feature) for feature in range(len(sketch.low))]
    plain = (np.empty(0), np.empty(0))
    before = 0 if beside is None else len(made)
    if beside is None:
        chosen = np.arange(len(made))
    else:
        # For a feature of two values, the quantile column is an affine map of it.
        new = [own.n_distinct > 2 and (kind != "auto" or own.correlation <= ALIKE) for own in made]
        chosen = np.flatnonzero(new)
    offset, factor = np.array([[made[j].mean, 1.0 / (made[j].spread or 1.0)] for j in chosen]).reshape(-1, 2).T
    if beside is not None:
        offset, factor = np.concatenate([beside.offset, offset]), np.concatenate([beside.factor, factor])
    quantiles = Quantiles.of([plain] * before + [made[j].knots for j in chosen]) if len(chosen) else None
    columns = np.concatenate([np.arange(before), chosen]).astype(np.int64)
    centres = np.array([own.median for own in made])
    return Scaling(kind, offset.copy(), factor.copy(), columns, quantiles, centres)


def _unit_rows(values: NDArray[np.float64]) -> NDArray[np.float64]:
    # Divided by the largest entry first, so that no square overflows or vanishes.
    largest = np.abs(values).max(axis=1, keepdims=True)
    largest[largest == 0] = 1.0
    units: NDArray[np.float64] = values / largest
    norms = np.sqrt(np.einsum("ij,ij->i", units, units))[:, None]
    norms[norms == 0] = 1.0
    units /= norms
    return units
