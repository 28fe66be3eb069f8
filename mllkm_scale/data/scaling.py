"""Scaling, fitted in one pass over the chunks: x -> (x - offset) * factor, or rows to unit norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.crew import Crew
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.moments_pass import gather_moments
from mllkm_scale.errors import ParameterError

__all__ = ["SCALINGS", "Scaling", "fit_scaling"]

SCALINGS = ("none", "standard", "minmax", "unit-norm")


@dataclass(frozen=True, eq=False)
class Scaling:
    """A fitted scaling.

    Attributes
    ----------
    kind : str
        ``"none"``; ``"standard"``: mean 0 and variance 1; ``"minmax"``: range [0, 1]; ``"unit-norm"``: every
        row divided by its l2 norm, rows of zeros left alone.
    offset, factor : float64 arrays of shape (d,)
        0 and 1 for the kinds that do not use them. The factor of a column that never changes is 1.
    """

    kind: str
    offset: NDArray[np.float64]
    factor: NDArray[np.float64]

    def apply(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Scaled rows in float64; each row depends on itself alone."""
        values = X.astype(np.float64, copy=False)
        if self.kind == "none":
            return values
        if self.kind == "unit-norm":
            return _unit_rows(values)
        scaled: NDArray[np.float64] = values - self.offset
        scaled *= self.factor
        return scaled

    def invert(self, Z: NDArray[Any]) -> NDArray[np.float64]:
        """Rows in the units of the data; the norms that unit-norm scaling has taken away stay away.

        >>> Scaling("minmax", np.array([10.0]), np.array([0.5])).invert(np.array([[1.0]])).tolist()
        [[12.0]]
        """
        values: NDArray[np.float64] = Z / self.factor
        values += self.offset
        return values


def fit_scaling(dataset: Dataset, kind: str, crew: Crew | None = None) -> Scaling:
    """Fit a scaling in one pass by the crew; kinds that need no pass read nothing.

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
    moments = gather_moments(dataset, crew=crew)
    if kind == "standard":
        offset = np.where(moments.constant, moments.low, moments.mean)
        spread = np.sqrt(moments.deviations / moments.count)
    else:
        offset = moments.low
        spread = moments.high - moments.low
    with np.errstate(divide="ignore", over="ignore"):
        inverse = 1.0 / spread
    # A spread so small that its inverse overflows is a column that does not change.
    factor = np.where(moments.constant | ~np.isfinite(inverse), 1.0, inverse)
    return Scaling(kind, offset, factor)


def _unit_rows(values: NDArray[np.float64]) -> NDArray[np.float64]:
    # Divided by the largest entry first, so that no square overflows or vanishes.
    largest = np.abs(values).max(axis=1, keepdims=True)
    largest[largest == 0] = 1.0
    units: NDArray[np.float64] = values / largest
    norms = np.sqrt(np.einsum("ij,ij->i", units, units))[:, None]
    norms[norms == 0] = 1.0
    units /= norms
    return units
