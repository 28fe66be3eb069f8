"""Tables of `exponential` and `gaussian`: cells are halved until the interpolation is proved to be accurate enough.

Between its kinks (the anchors for `exponential`, none for `gaussian`) f_kl is smooth. The error of interpolation at n =
6 Chebyshev nodes of a cell of half-width r is at most

    |f - p| <= r^n / (2^(n - 1) n!) max |f^(n)|,      |f^(n)| <= sum_m |slope_m| |(u h)^(n)| + |level_m| |h^(n)|

with, for a bump whose anchor is u away from the cell,

    exponential   |(u h)^(n)| <= gamma^(n - 1) (n + gamma u) e^(-gamma u)        |h^(n)| = gamma^n e^(-gamma u)
    gaussian      |h^(n)| <= B_n gamma^(n/2) e^(-gamma u^2 / 2)                  |(u h)^(n)| = |h^(n+1)| / (2 gamma)

where B_n = 1.0865 sqrt(2^n n!) (Cramer's bound on Hermite polynomials). Beyond the first and the last edge f_kl is
replaced by zero; it is smaller than the tolerance there.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.kernels.maps import bumps
from mllkm_scale.model.tables.cells import TOO_FINE, TOO_MANY, Cells, NotTabulated, require_edges
from mllkm_scale.model.tables.shapes import BLOCK_BYTES, Shapes
from mllkm_scale.model.tables.sweeps import add_decayed, decay_states

__all__ = ["smooth_cells"]

Steepness = Callable[[Array, Array], Array]  # bound on |f^(n)| between left and right edges

_NODES = np.cos(np.pi * (2.0 * np.arange(6) + 1.0) / 12.0)
_TO_POWERS = np.linalg.inv(np.vander(_NODES, increasing=True))


def smooth_cells(shapes: Shapes, tolerance: float, max_cells: int) -> Cells:
    """The cells of a feature, with errors within the tolerance, without rounding."""
    reach = _tail_begins(shapes, tolerance)
    edges = np.array([np.min(shapes.anchors - reach), np.max(shapes.anchors + reach)])
    if shapes.map == "exponential":
        values, steepness = _exponential(shapes)
        edges = np.union1d(edges, shapes.anchors)
    else:
        values, steepness = shapes.values, _gaussian_steepness(shapes)
    edges, errors = _halve(edges, steepness, tolerance, max_cells)
    centres, halves = 0.5 * (edges[1:] + edges[:-1]), 0.5 * np.diff(edges)
    nodes = centres[:, None] + halves[:, None] * _NODES
    found = values(nodes.ravel()).reshape(*nodes.shape, -1)
    coefficients = np.einsum("qi,jik->jqk", _TO_POWERS, found)
    return Cells(edges, coefficients, max(_tail(shapes, edges[0]), _tail(shapes, edges[-1]), float(errors.max())))


def _tail(shapes: Shapes, edge: float) -> float:
    """Bound on f beyond an edge from which every term decreases."""
    slopes, levels = shapes.heights
    u = np.abs(edge - shapes.anchors)
    return float(bumps(shapes.map, u * u, shapes.gammas) @ (slopes * u + levels))


def _tail_begins(shapes: Shapes, tolerance: float) -> Array:
    """Distances from each anchor beyond which its terms stay below tolerance / s in every class.

    The smallest v >= 1 with (slope u(v) + level) e^-v <= tolerance / s, found from above: v <- log of the factor of the
    left side.
    """
    slopes, levels = shapes.heights
    share = len(shapes) / tolerance

    def distance(v: Array) -> Array:
        return v / shapes.gammas if shapes.map == "exponential" else np.sqrt(v / shapes.gammas)

    v = 2.0 * np.log(np.maximum(math.e, share * (slopes * distance(np.ones(len(shapes))) + levels)))
    for _ in range(4):
        v = np.log(np.maximum(math.e, share * (slopes * distance(v) + levels)))
    return distance(v)


def _halve(edges: Array, steepness: Steepness, tolerance: float, max_cells: int) -> tuple[Array, Array]:
    """Edges after as many halvings as the bound requires, and the bound of every cell."""
    n = len(_NODES)
    left, right = require_edges(edges, max_cells)[:-1], edges[1:]
    starts, bounds = np.empty(0), np.empty(0)
    while len(left):
        if len(starts) + len(left) > max_cells:
            raise NotTabulated(TOO_MANY)
        half = 0.5 * (right - left)
        errors = steepness(left, right) * half**n / (2.0 ** (n - 1) * math.factorial(n))
        good = errors <= tolerance
        starts, bounds = np.append(starts, left[good]), np.append(bounds, errors[good])
        left, right = left[~good], right[~good]
        middle = left + 0.5 * (right - left)
        if not (np.isfinite(errors).all() and ((left < middle) & (middle < right)).all()):
            raise NotTabulated(TOO_FINE)
        left, right = np.append(left, middle), np.append(middle, right)
    order = np.argsort(starts)
    return require_edges(np.append(starts[order], edges[-1]), max_cells), bounds[order]


def _gaussian_steepness(shapes: Shapes) -> Steepness:
    """The bound on the sixth derivatives between a left and a right edge, as a function of them."""
    n = len(_NODES)
    slopes, levels = shapes.heights
    bound = [1.0865 * math.sqrt(2.0**i * math.factorial(i)) for i in (n, n + 1)]
    heights = slopes * 0.5 * bound[1] * shapes.gammas ** ((n - 1) / 2) + levels * bound[0] * shapes.gammas ** (n / 2)
    step = max(1, BLOCK_BYTES // (8 * len(shapes)))

    def steepness(left: Array, right: Array) -> Array:
        found = np.empty(len(left))
        for start in range(0, len(left), step):
            here = slice(start, start + step)
            u = np.maximum(left[here, None] - shapes.anchors, shapes.anchors - right[here, None])
            np.maximum(u, 0.0, out=u)
            found[here] = np.exp(-0.5 * shapes.gammas * u * u) @ heights
        return found

    return steepness


def _exponential(shapes: Shapes) -> tuple[Callable[[Array], Array], Steepness]:
    """f_kl at points, and the bound on the sixth derivatives between edges, both from sums over either side."""
    n = len(_NODES)
    slopes, levels, gammas = shapes.slopes, shapes.levels, shapes.gammas
    from_left, from_right = _Side(shapes, slopes, levels), _Side(shapes, -slopes, levels, mirrored=True)
    steep, high = (heights[:, None] for heights in shapes.heights)
    a = steep * gammas[:, None] ** n
    b = n * steep * gammas[:, None] ** (n - 1) + high * gammas[:, None] ** n
    bound_left, bound_right = _Side(shapes, a, b), _Side(shapes, a, b, mirrored=True)

    def values(points: Array) -> Array:
        return from_left(points, own=True) + from_right(points, own=False)

    def steepness(left: Array, right: Array) -> Array:
        return bound_left(left, own=True)[:, 0] + bound_right(right, own=True)[:, 0]

    return values, steepness


class _Side:
    """sum over the anchors to the left of t of e^(-gamma u) (u a + b), u = |t - c|; mirrored: to the right of t."""

    def __init__(self, shapes: Shapes, a: Array, b: Array, *, mirrored: bool = False) -> None:
        self.sign, self.n_sums = -1.0 if mirrored else 1.0, a.shape[1]
        self.states: list[tuple[Array, float, Array, Array]] = []
        for gamma in np.unique(shapes.gammas):
            members = np.flatnonzero(shapes.gammas == gamma)
            members = members[np.argsort(self.sign * shapes.anchors[members])]
            anchors = self.sign * shapes.anchors[members]
            P, Q = np.empty((2, len(members), self.n_sums))
            decay_states(anchors, gamma, a[members], b[members], P, Q)
            self.states.append((anchors, float(gamma), P, Q))

    def __call__(self, points: Array, *, own: bool) -> Array:
        """The sums at these points (n,); an anchor at a point counts if `own`."""
        points, sums = self.sign * points, np.zeros((len(points), self.n_sums))
        for anchors, gamma, P, Q in self.states:
            last = np.searchsorted(anchors, points, side="right" if own else "left") - 1
            add_decayed(points, last, anchors, gamma, P, Q, sums)
        return sums
