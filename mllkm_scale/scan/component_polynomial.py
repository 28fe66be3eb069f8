"""One-dimensional sums of the maps `linear` and `squared`, which are polynomials within a radius R of the anchor.

    h(t) = 1 + b t + e t^2,   psi(t) = t h(t)      squared: b = 0, e = -gamma, R = gamma^(-1/2)
                                                   linear:  b = gamma left of the anchor, -gamma right of it, e = 0,
                                                            R = 1 / gamma

    sum_i a_i h(x_i - c)   = m_0 (1 + b D + e D^2) + m_1 (b + 2 e D) + m_2 e
    sum_i a_i psi(x_i - c) = m_0 (D + b D^2 + e D^3) + m_1 (1 + 2 b D + 3 e D^2) + m_2 (b + 3 e D) + m_3 e

with the moments m_p = sum_i a_i (x_i - x*)^p of the points of the window, and D = x* - c.

The sorted column is cut into runs of `RUN` points. Level j of the table joins the runs in groups of 2^(j+1) and holds,
for each run of a group, the moments of all points between that run, with it, and the middle x* of the group. Any two
runs lie on both sides of the middle of just one group, so two rows of the table add up to the moments of all runs
from the one to the other. Nothing is subtracted, every point that is added lies in the window, and so does x*: the
sums are as exact as those of n_window products a_i R however far the rest of the column reaches, and they serve every
gamma. Points of runs that the window cuts are added one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["RUN", "PolynomialColumn", "add_polynomial", "fill_moments", "n_levels"]

Array = NDArray[Any]

RUN = 32


def n_levels(n_points: int) -> int:
    """Levels of the table of moments."""
    return max(0, -(-n_points // RUN) - 1).bit_length()


@dataclass(frozen=True)
class PolynomialColumn:
    """A sorted column, the rows of its points, and the table of moments (levels, runs, powers, K)."""

    points: Array
    rows: Array
    duals: Array
    moments: Array
    gammas: Array
    linear: bool

    @classmethod
    def of(cls, column: Array, duals: Array, gammas: Array, linear: bool) -> PolynomialColumn:
        rows = np.argsort(column, kind="stable").astype(np.int32)
        points = column[rows]
        shape = (n_levels(len(points)), -(-len(points) // RUN), 3 if linear else 4, duals.shape[1])
        moments = np.zeros(shape)
        fill_moments(points, rows, duals, moments)
        return cls(points, rows, duals, moments, gammas, linear)

    def add(self, anchors: Array, q: Array, r: Array) -> None:
        add_polynomial(self.points, self.rows, self.duals, self.moments, self.gammas, self.linear, anchors, q, r)


@numba.njit(cache=True, nogil=True)
def _add_run(points: Array, rows: Array, duals: Array, run: int, centre: float, moments: Array) -> None:
    """Moments (powers, K) of the points of a run about `centre`."""
    for i in range(run * RUN, min((run + 1) * RUN, len(points))):
        u = points[i] - centre
        power = 1.0
        for p in range(moments.shape[0]):
            for k in range(moments.shape[1]):
                moments[p, k] += power * duals[rows[i], k]
            power *= u


@numba.njit(cache=True, nogil=True)
def fill_moments(points: Array, rows: Array, duals: Array, moments: Array) -> None:
    """The table (levels, runs, powers, K) of a sorted column; it is zero before."""
    n_runs = moments.shape[1]
    for level in range(moments.shape[0]):
        half = 1 << level
        for middle in range(half, n_runs, 2 * half):
            centre = points[middle * RUN]
            for run in range(middle - 1, middle - half - 1, -1):
                if run < middle - 1:
                    moments[level, run] = moments[level, run + 1]
                _add_run(points, rows, duals, run, centre, moments[level, run])
            for run in range(middle, min(middle + half, n_runs)):
                if run > middle:
                    moments[level, run] = moments[level, run - 1]
                _add_run(points, rows, duals, run, centre, moments[level, run])


@numba.njit(cache=True, nogil=True)
def _first_from(points: Array, start: int, stop: int, c: float, t: float) -> int:
    """The first of the points start .. stop - 1 with x - c >= t; the difference is exact to its own last bit."""
    while start < stop:
        middle = (start + stop) >> 1
        if points[middle] - c < t:
            start = middle + 1
        else:
            stop = middle
    return start


@numba.njit(cache=True, nogil=True)
def _add_points(
    points: Array, rows: Array, duals: Array, start: int, stop: int, c: float, b: float, e: float, v: Array, h: Array
) -> None:
    for i in range(start, stop):
        t = points[i] - c
        bump = max(0.0, 1.0 + t * (b + t * e))
        for k in range(len(v)):
            mass = bump * duals[rows[i], k]
            h[k] += mass
            v[k] += t * mass


@numba.njit(cache=True, nogil=True)
def _add_window(
    points: Array,
    rows: Array,
    duals: Array,
    moments: Array,
    start: int,
    stop: int,
    c: float,
    b: float,
    e: float,
    v: Array,
    h: Array,
) -> None:
    """Sums of the points start .. stop - 1, which all lie in the window."""
    first = (start + RUN - 1) // RUN
    last = moments.shape[1] - 1 if stop == len(points) else stop // RUN - 1
    if last <= first:  # fewer than two whole runs
        _add_points(points, rows, duals, start, stop, c, b, e, v, h)
        return
    _add_points(points, rows, duals, start, first * RUN, c, b, e, v, h)
    _add_points(points, rows, duals, min(stop, (last + 1) * RUN), stop, c, b, e, v, h)
    level = 0
    while (first ^ last) >> level > 1:
        level += 1
    D = points[((last >> level) << level) * RUN] - c
    h0, h1 = 1.0 + D * (b + D * e), b + 2.0 * e * D
    v0, v1, v2 = D * h0, 1.0 + D * (2.0 * b + 3.0 * e * D), b + 3.0 * e * D
    cubes = moments.shape[2] == 4
    for k in range(len(v)):
        m0 = moments[level, first, 0, k] + moments[level, last, 0, k]
        m1 = moments[level, first, 1, k] + moments[level, last, 1, k]
        m2 = moments[level, first, 2, k] + moments[level, last, 2, k]
        h[k] += m0 * h0 + m1 * h1 + m2 * e
        v[k] += m0 * v0 + m1 * v1 + m2 * v2
        if cubes:
            v[k] += e * (moments[level, first, 3, k] + moments[level, last, 3, k])


@numba.njit(cache=True, nogil=True)
def add_polynomial(
    points: Array,
    rows: Array,
    duals: Array,
    moments: Array,
    gammas: Array,
    linear: bool,
    anchors: Array,
    q: Array,
    r: Array,
) -> None:
    """Add the sums of a column to q (anchors, gammas) and r (anchors, gammas, K)."""
    n_classes = duals.shape[1]
    v, h = np.empty(n_classes), np.empty(n_classes)
    for i in range(len(anchors)):
        c = anchors[i]
        at = _first_from(points, 0, len(points), c, 0.0)
        for g in range(len(gammas)):
            gamma = gammas[g]
            radius = 1.0 / gamma if linear else gamma**-0.5
            start = _first_from(points, 0, at, c, -radius)
            stop = _first_from(points, at, len(points), c, radius)
            v[:] = 0.0
            h[:] = 0.0
            if linear:
                _add_window(points, rows, duals, moments, start, at, c, gamma, 0.0, v, h)
                _add_window(points, rows, duals, moments, at, stop, c, -gamma, 0.0, v, h)
            else:
                _add_window(points, rows, duals, moments, start, stop, c, 0.0, -gamma, v, h)
            for k in range(n_classes):
                q[i, g] += v[k] * v[k]
                r[i, g, k] += h[k]
