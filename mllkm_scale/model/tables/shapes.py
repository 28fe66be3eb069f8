"""The shape functions of a component-wise machine, which is an additive model (F4), evaluated by their formula.

    f_k(z) = sum_l f_kl(z_l)        f_kl(t) = sum_m h(|t - c_ml|; gamma_m) ((t - c_ml) slope_kml + level_km)

slope is `coef`, and level is `local_coef` / d: the constant component of a kernel is the mean of its d bumps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from mllkm_scale.base.arrays import Array
from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.maps import MapName, bump_slopes, bumps

if TYPE_CHECKING:
    from mllkm_scale.model.model import Model

__all__ = ["Shapes", "require_componentwise", "rounding", "shape_values", "tallest_term"]


BLOCK_BYTES = 4 << 20  # of the bumps that are in memory at once
ROUNDINGS = 64.0  # rounding of the sum of all terms, in half units in the last place: nodes, interpolation, evaluation
MOVES = 8.0  # rounding of an edge or a node, in half units in the last place


@dataclass(frozen=True)
class Shapes:
    """All f_kl of one feature l: K sums over the same s bumps."""

    map: MapName
    anchors: Array  # (s,)
    gammas: Array  # (s,)
    slopes: Array  # (s, K)
    levels: Array  # (s, K)

    @classmethod
    def of(cls, model: Model, feature: int) -> Shapes:
        """The shape functions of a feature of a model; equal bumps are added up, and bumps without height are left
        out."""
        slopes = model.coef[:, :, feature].T
        levels = model.local_coef.T / model.anchors.shape[1]
        used = np.flatnonzero((slopes != 0).any(axis=1) | (levels != 0).any(axis=1))
        places, inverse = np.unique(
            np.stack([model.anchors[used, feature], model.gammas[used]]), axis=1, return_inverse=True
        )
        folded = np.zeros((2, places.shape[1], slopes.shape[1]))
        np.add.at(folded[0], inverse.ravel(), slopes[used])
        np.add.at(folded[1], inverse.ravel(), levels[used])
        return cls(model.family.map, places[0], places[1], folded[0], folded[1])

    def __len__(self) -> int:
        return len(self.anchors)

    @property
    def heights(self) -> tuple[Array, Array]:
        """Slope and level of each bump by absolute value, the largest over the classes: (s,) each."""
        return np.abs(self.slopes).max(axis=1), np.abs(self.levels).max(axis=1)

    def values(self, points: Array) -> Array:
        """f_kl at these points (n,), shape (n, K)."""
        found = np.zeros((len(points), self.slopes.shape[1]))
        step = max(1, BLOCK_BYTES // (8 * max(1, len(self))))
        for start in range(0, len(points), step):
            offsets = points[start : start + step, None] - self.anchors
            H = bumps(self.map, offsets * offsets, self.gammas)
            found[start : start + step] = H @ self.levels
            H *= offsets
            found[start : start + step] += H @ self.slopes
        return found

    def derivatives(self, points: Array) -> Array:
        """f_kl' at these points (n,), shape (n, K)."""
        found = np.zeros((len(points), self.slopes.shape[1]))
        step = max(1, BLOCK_BYTES // (8 * max(1, len(self))))
        for start in range(0, len(points), step):
            offsets = points[start : start + step, None] - self.anchors
            squares = offsets * offsets
            falls = bump_slopes(self.map, squares, self.gammas) * offsets
            H = bumps(self.map, squares, self.gammas, out=squares)
            found[start : start + step] = falls @ self.levels + (H + falls * offsets) @ self.slopes
        return found


def shape_values(model: Model, feature: int, grid: ArrayLike) -> Array:
    """f_kl of a feature on a grid of its values, (n, K), by the formula."""
    require_componentwise(model)
    d = model.anchors.shape[1]
    if not 0 <= feature < d:
        raise ParameterError(f"feature={feature}: the kernels see {d} features, give one of 0 to {d - 1}")
    points = np.asarray(grid, dtype=np.float64)
    if points.ndim != 1 or not np.isfinite(points).all():
        raise ParameterError(f"grid has shape {points.shape}: give a list of finite numbers")
    # A bump is zero if its distance overflows.
    with np.errstate(over="ignore"):
        return Shapes.of(model, feature).values(points)


def require_componentwise(model: Model) -> None:
    """Refuse a machine that is not a sum of functions of single features."""
    if not model.family.componentwise:
        raise ParameterError("a model of global kernels is no additive model: train with componentwise=True")


def tallest_term(name: MapName, gammas: Array) -> Array:
    """The largest value of t h(t) over all t, for each gamma."""
    factor, power = {
        "exponential": (np.exp(-1.0), 1.0),
        "gaussian": (np.exp(-0.5) / np.sqrt(2.0), 0.5),
        "linear": (0.25, 1.0),
        "squared": (2.0 / np.sqrt(27.0), 0.5),
    }[name]
    return factor / gammas**power


def _steepest_bump(name: MapName, gammas: Array) -> Array:
    """The largest value of |h'(t)| over all t, for each gamma."""
    factor, power = {
        "exponential": (1.0, 1.0),
        "gaussian": (np.sqrt(2.0) * np.exp(-0.5), 0.5),
        "linear": (1.0, 1.0),
        "squared": (2.0, 0.5),
    }[name]
    return factor * gammas**power


def rounding(model: Model) -> Array:
    """Bound on the rounding errors of the functions of each feature, (d,): of the terms and of their positions.

    All terms have their largest value at once and the same sign. |(t h)'| is at most 2 for every map.
    """
    name, d = model.family.map, model.anchors.shape[1]
    slopes = np.abs(model.coef).max(axis=0)
    levels = np.abs(model.local_coef).max(axis=0)[:, None] / d
    terms = slopes * tallest_term(name, model.gammas)[:, None] + levels
    moved = np.abs(model.anchors) * (2.0 * slopes + levels * _steepest_bump(name, model.gammas)[:, None])
    unit = np.finfo(np.float64).eps / 2.0
    return unit * (ROUNDINGS * terms + MOVES * moved).sum(axis=0)
