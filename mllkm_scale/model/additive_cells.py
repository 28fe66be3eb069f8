"""The cells of one feature's table: edges between which a polynomial stands for f_kl, and how far it is off at most.

`linear` and `squared` are polynomials between the edges c_m and c_m +- reach, and nothing is off but rounding.
`exponential` (between its kinks c_m) and `gaussian` are smooth: cells are halved until interpolation at n = 6 Chebyshev
nodes is proved good enough. On a cell of half-width r its error is at most

    |f - p| <= r^n / (2^(n - 1) n!) max |f^(n)|,      |f^(n)| <= sum_m |slope_m| |(u h)^(n)| + |level_m| |h^(n)|

with the derivatives of each bump at most (u is the distance of the anchor from the cell, v = gamma u)

    exponential   |(u h)^(n)| <= gamma^(n-1) (n + v) e^-v         |h^(n)| = gamma^n e^-v
    gaussian      |h^(n)| <= B_n gamma^(n/2) e^(-gamma u^2 / 2)   |(u h)^(n)| = |h^(n+1)| / (2 gamma)

where B_n = 1.0865 sqrt(2^n n!) (Cramer's bound on Hermite polynomials). Beyond the first and the last edge f is zero,
or so small that zero stands for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.maps import MapName, bumps, uses_plain_distance
from mllkm_scale.model.additive_shapes import BLOCK_BYTES, Shapes
from mllkm_scale.model.additive_sweeps import decay_states, piece_polynomials

__all__ = ["DEGREES", "Cells", "NotTabulated", "make_cells"]

Array = NDArray[Any]
Function = Callable[[Array], Array]

DEGREES: dict[MapName, int] = {"linear": 2, "squared": 3, "exponential": 5, "gaussian": 5}
_NODES = np.cos(np.pi * (2.0 * np.arange(6) + 1.0) / 12.0)
_TO_POWERS = np.linalg.inv(np.vander(_NODES, increasing=True))
TOO_MANY = "needs more cells than are left"
TOO_FINE = "has bumps too wide or too narrow for double precision"
_NARROWEST = 1e-140  # half-width of a cell whose sixth power is a normal number yet with some to spare


class NotTabulated(ParameterError):
    """No tables can be made, or none within the bound; the message says why."""


@dataclass(frozen=True)
class Cells:
    """`edges` (cells + 1,); polynomials (cells, degree + 1, K) in x = -1 .. 1; `error` is their largest, the tails' too."""

    edges: Array
    coefficients: Array
    error: float


def make_cells(shapes: Shapes, tolerance: float, max_cells: int) -> Cells:
    """The cells of a feature, none of which is off by more than the tolerance, rounding aside.

    Raises
    ------
    NotTabulated
        If more than `max_cells` are needed, or bumps are too wide or too narrow for double precision.
    """
    if not len(shapes):
        return Cells(np.zeros(1), np.zeros((0, DEGREES[shapes.map] + 1, shapes.slopes.shape[1])), 0.0)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        if shapes.map in ("linear", "squared"):
            return _pieces(shapes, max_cells)
        return _smooth(shapes, tolerance, max_cells)


def _require(edges: Array, max_cells: int) -> Array:
    if len(edges) - 1 > max_cells:
        raise NotTabulated(TOO_MANY)
    if not np.isfinite(edges).all() or (np.diff(edges) < 2.0 * _NARROWEST).any():
        raise NotTabulated(TOO_FINE)
    return edges


def _pieces(shapes: Shapes, max_cells: int) -> Cells:
    plain = uses_plain_distance(shapes.map)
    anchors, gammas = shapes.anchors, shapes.gammas
    reach = 1.0 / (gammas if plain else np.sqrt(gammas))
    low, high, all_kernels = anchors - reach, anchors + reach, np.arange(len(shapes))
    # Where, with which bend, and whether each side joins or leaves.
    events = [(low, gammas, 1.0), (anchors, gammas, -1.0), (anchors, -gammas, 1.0), (high, -gammas, -1.0)]
    if not plain:
        events = [(low, -gammas, 1.0), (high, -gammas, -1.0)]
    edges = _require(np.unique(np.concatenate([at for at, _, _ in events])), max_cells)
    places = np.searchsorted(edges, np.concatenate([at for at, _, _ in events]))
    order = np.argsort(places, kind="stable")
    degree, n_machines = DEGREES[shapes.map], shapes.slopes.shape[1]
    coefficients = np.empty((len(edges) - 1, degree + 1, n_machines))
    piece_polynomials(
        edges,
        places[order],
        np.tile(all_kernels, len(events))[order],
        np.concatenate([bend for _, bend, _ in events])[order],
        np.repeat([sign for _, _, sign in events], len(shapes))[order],
        anchors,
        np.ascontiguousarray(shapes.slopes),
        np.ascontiguousarray(shapes.levels),
        np.zeros((2, degree + 1, 2)),
        np.zeros((n_machines, degree + 1, 2)),
        coefficients,
    )
    return Cells(edges, coefficients, 0.0)


def _smooth(shapes: Shapes, tolerance: float, max_cells: int) -> Cells:
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
    """Bound on f beyond an edge at which every term falls already."""
    slopes, levels = shapes.heights
    u = np.abs(edge - shapes.anchors)
    return float(bumps(shapes.map, u * u, shapes.gammas) @ (slopes * u + levels))


def _tail_begins(shapes: Shapes, tolerance: float) -> Array:
    """Distances from each anchor beyond which its terms stay below tolerance / s in every class.

    The least v >= 1 with (slope u(v) + level) e^-v <= tolerance / s, from above: v <- log of the left side's factor.
    """
    slopes, levels = shapes.heights
    share = len(shapes) / tolerance

    def distance(v: Array) -> Array:
        return v / shapes.gammas if shapes.map == "exponential" else np.sqrt(v / shapes.gammas)

    v = 2.0 * np.log(np.maximum(np.e, share * (slopes * distance(np.ones(len(shapes))) + levels)))
    for _ in range(4):
        v = np.log(np.maximum(np.e, share * (slopes * distance(v) + levels)))
    return distance(v)


def _halve(edges: Array, steepness: Callable[[Array, Array], Array], tolerance: float, max_cells: int) -> tuple[Array, Array]:
    """Edges with as many halvings as the bound asks for, and the bound of every cell."""
    n = len(_NODES)
    left, right = _require(edges, max_cells)[:-1], edges[1:]
    done: list[tuple[Array, Array]] = []
    n_done = 0
    while len(left):
        if n_done + len(left) > max_cells:
            raise NotTabulated(TOO_MANY)
        half = 0.5 * (right - left)
        errors = steepness(left, right) * half**n / (2.0 ** (n - 1) * math.factorial(n))
        good = errors <= tolerance
        done.append((left[good], errors[good]))
        n_done += np.count_nonzero(good)
        left, right = left[~good], right[~good]
        middle = left + 0.5 * (right - left)
        if not ((left < middle) & (middle < right) & (right - left > 4.0 * _NARROWEST)).all():
            raise NotTabulated(TOO_FINE)
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
    starts, errors = (np.concatenate(parts) for parts in zip(*done, strict=True))
    order = np.argsort(starts)
    return np.append(starts[order], edges[-1]), errors[order]


def _gaussian_steepness(shapes: Shapes) -> Callable[[Array, Array], Array]:
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


def _exponential(shapes: Shapes) -> tuple[Function, Callable[[Array, Array], Array]]:
    """f_kl at points, and the bound on the sixth derivatives between edges, both from sums over either side."""
    n = len(_NODES)
    slopes, levels, gammas = shapes.slopes, shapes.levels, shapes.gammas
    from_left, from_right = _Side(shapes, slopes, levels), _Side(shapes, -slopes, levels, mirrored=True)
    steep, high = (heights[:, None] for heights in shapes.heights)
    a = steep * gammas[:, None] ** n
    b = n * steep * gammas[:, None] ** (n - 1) + high * gammas[:, None] ** n
    bound_left, bound_right = _Side(shapes, a, b), _Side(shapes, a, b, mirrored=True)

    def values(points: Array) -> Array:
        return from_left(points, "right") + from_right(points, "left")  # an anchor at a point counts once

    def steepness(left: Array, right: Array) -> Array:
        return bound_left(left, "right")[:, 0] + bound_right(right, "right")[:, 0]

    return values, steepness


class _Side:
    """sum over the anchors to the left of t of e^(-gamma u) (u a + b), u = |t - c|; mirrored: to the right of t."""

    def __init__(self, shapes: Shapes, a: Array, b: Array, *, mirrored: bool = False) -> None:
        self.sign, self.n_sums = -1.0 if mirrored else 1.0, a.shape[1]
        self.states: list[tuple[float, Array, Array, Array]] = []
        for gamma in np.unique(shapes.gammas):
            members = np.flatnonzero(shapes.gammas == gamma)
            members = members[np.argsort(self.sign * shapes.anchors[members])]
            anchors = self.sign * shapes.anchors[members]
            P, Q = np.empty((2, len(members), self.n_sums))
            decay_states(anchors, gamma, a[members], b[members], P, Q)
            self.states.append((float(gamma), anchors, P, Q))

    def __call__(self, points: Array, side: Literal["left", "right"]) -> Array:
        """The sums at these points; with side "right" an anchor at a point counts, with "left" it does not."""
        points = self.sign * points
        total = np.zeros((len(points), self.n_sums))
        for gamma, anchors, P, Q in self.states:
            last = np.searchsorted(anchors, points, side=side) - 1
            within = np.flatnonzero(last >= 0)
            last = last[within]
            u = (points[within] - anchors[last])[:, None]
            total[within] += np.exp(-gamma * u) * (Q[last] + u * P[last])
        return total
