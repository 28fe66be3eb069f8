"""One-dimensional sums of the maps `linear` and `squared`, which are polynomials within a radius R of the anchor.

    h(t) = 1 - s |t| - e t^2,   psi(t) = t h(t)      linear: s = gamma, e = 0, R = 1 / gamma
                                                     squared: s = 0, e = gamma, R = gamma^(-1/2)

With the moments m_p = sum_i a_i (x_i - x*)^p of the entries of a window, D = x* - c, and b = s left of the anchor and
-s right of it,

    sum_i a_i h(x_i - c)   = m_0 (1 + b D - e D^2) + m_1 (b - 2 e D) - m_2 e
    sum_i a_i psi(x_i - c) = m_0 (D + b D^2 - e D^3) + m_1 (1 + 2 b D - 3 e D^2) + m_2 (b - 3 e D) - m_3 e

The sorted column is divided into runs of 2^run_bits entries. Level j of the table joins the runs in groups of 2^(j+1).
For each run of a group, it holds the moments of all entries from that run, inclusive, to the middle x* of the group.
Any two runs lie on both sides of the middle of exactly one group, so two rows of the table add up to the moments of all
runs from one to the other. Nothing is subtracted, and every added entry lies in the window, and so does x*. So the
error is a few units in the last place of sum |a_i| R over the window, however far the rest of the column reaches. The
table serves every gamma. If the window cuts a run, or the anchor does and the map has a kink there, the entries of the
run are added one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.kernels.maps import MapName
from mllkm_scale.scan.component.sizes import Entries, n_levels, n_powers

__all__ = ["PolynomialColumn", "fill_moments"]


@dataclass(frozen=True)
class PolynomialColumn:
    """A sorted column and its table of moments (levels, runs, K, powers)."""

    entries: Entries
    moments: Array
    run_bits: int
    gammas: Array
    linear: bool

    @classmethod
    def of(cls, entries: Entries, gammas: Array, map: MapName) -> PolynomialColumn:
        bits = entries.run_bits(map, len(gammas))
        n_runs = -(-len(entries) >> bits)
        moments = np.zeros((n_levels(n_runs), n_runs, entries.n_classes, n_powers(map)))
        fill_moments(entries.points, entries.classes, entries.duals, bits, moments)
        return cls(entries, moments, bits, gammas, map == "linear")

    def add(self, anchors: Array, order: Array, q: Array, r: Array) -> None:
        """Add |v_l|^2 of the anchors to q (gammas, anchors), and their sums of bumps to r (gammas, anchors, K)."""
        of = self.entries
        _add_polynomial(
            of.points, of.classes, of.duals, self.moments, self.run_bits, self.gammas, self.linear, anchors, order, q, r
        )


@numba.njit(cache=True, nogil=True)
def _add_run(
    points: Array, classes: Array, duals: Array, run_bits: int, run: int, centre: float, moments: Array
) -> None:
    """Moments (K, powers) of the entries of a run about `centre`."""
    for i in range(run << run_bits, min((run + 1) << run_bits, len(points))):
        u, term = points[i] - centre, duals[i]
        for p in range(moments.shape[1]):
            moments[classes[i], p] += term
            term *= u


@numba.njit(cache=True, nogil=True)
def fill_moments(points: Array, classes: Array, duals: Array, run_bits: int, moments: Array) -> None:
    """Fill the table (levels, runs, K, powers) of a sorted column; it must be zero before."""
    n_runs = moments.shape[1]
    for level in range(moments.shape[0]):
        half = 1 << level
        for middle in range(half, n_runs, 2 * half):
            centre = points[middle << run_bits]
            for run in range(middle - 1, middle - half - 1, -1):
                if run < middle - 1:
                    moments[level, run] = moments[level, run + 1]
                _add_run(points, classes, duals, run_bits, run, centre, moments[level, run])
            for run in range(middle, min(middle + half, n_runs)):
                if run > middle:
                    moments[level, run] = moments[level, run - 1]
                _add_run(points, classes, duals, run_bits, run, centre, moments[level, run])


@numba.njit(cache=True, nogil=True)
def _advance(points: Array, start: int, c: float, t: float) -> int:
    """The first entry from `start` on with x - c >= t; the difference is exact to its last place."""
    n = len(points)
    near = min(n, start + 8)
    while start < near:
        if points[start] - c >= t:
            return start
        start += 1
    step, stop = 8, start + 8
    while stop < n and points[stop] - c < t:
        step *= 2
        start, stop = stop + 1, stop + 1 + step
    stop = min(n, stop)
    while start < stop:
        middle = (start + stop) >> 1
        if points[middle] - c < t:
            start = middle + 1
        else:
            stop = middle
    return start


@numba.njit(cache=True, nogil=True)
def _add_entries(
    points: Array,
    classes: Array,
    duals: Array,
    start: int,
    stop: int,
    c: float,
    s: float,
    e: float,
    v: Array,
    h: Array,
) -> None:
    """Add the entries start .. stop - 1, all of them in the window, to v and h (K,)."""
    for i in range(start, stop):
        t, k = points[i] - c, classes[i]
        mass = duals[i] * (1.0 - s * abs(t) - e * t * t)
        h[k] += mass
        v[k] += t * mass


@numba.njit(cache=True, nogil=True, inline="always")  # its many arrays take longer to pass than to use
def _add_window(
    points: Array,
    classes: Array,
    duals: Array,
    moments: Array,
    run_bits: int,
    start: int,
    stop: int,
    c: float,
    b: float,
    e: float,
    v: Array,
    h: Array,
) -> None:
    """The same by moments of whole runs; the entries lie on one side of the anchor, unless b = 0."""
    first = (start + (1 << run_bits) - 1) >> run_bits
    last = moments.shape[1] - 1 if stop == len(points) else (stop >> run_bits) - 1
    if last <= first:  # less than two whole runs
        _add_entries(points, classes, duals, start, stop, c, abs(b), e, v, h)
        return
    _add_entries(points, classes, duals, start, first << run_bits, c, abs(b), e, v, h)
    _add_entries(points, classes, duals, min(stop, (last + 1) << run_bits), stop, c, abs(b), e, v, h)
    level = 0
    while (first ^ last) >> level > 1:
        level += 1
    D = points[(last >> level << level) << run_bits] - c
    h0, h1 = 1.0 + D * (b - D * e), b - 2.0 * e * D
    v0, v1, v2 = D * h0, 1.0 + D * (2.0 * b - 3.0 * e * D), b - 3.0 * e * D
    cubes = moments.shape[3] == 4
    for k in range(len(v)):
        m0 = moments[level, first, k, 0] + moments[level, last, k, 0]
        m1 = moments[level, first, k, 1] + moments[level, last, k, 1]
        m2 = moments[level, first, k, 2] + moments[level, last, k, 2]
        h[k] += m0 * h0 + m1 * h1 - m2 * e
        v[k] += m0 * v0 + m1 * v1 + m2 * v2
        if cubes:
            v[k] -= (moments[level, first, k, 3] + moments[level, last, k, 3]) * e


@numba.njit(cache=True, nogil=True)
def _add_polynomial(
    points: Array,
    classes: Array,
    duals: Array,
    moments: Array,
    run_bits: int,
    gammas: Array,
    linear: bool,
    anchors: Array,
    order: Array,
    q: Array,
    r: Array,
) -> None:
    """Add the sums of a column at `anchors`, whose ascending order is `order`, to q and r."""
    n_classes = r.shape[2]
    v, h = np.empty(n_classes), np.empty(n_classes)
    kinks = np.zeros(len(order), np.int64)
    if linear:
        at = 0
        for j in range(len(order)):
            at = _advance(points, at, anchors[order[j]], 0.0)
            kinks[j] = at >> run_bits
    for g in range(len(gammas)):
        gamma = gammas[g]
        radius = 1.0 / gamma if linear else 1.0 / np.sqrt(gamma)
        start = stop = 0
        for j in range(len(order)):
            i, kink = order[j], kinks[j]
            c = anchors[i]
            start = _advance(points, start, c, -radius)
            stop = _advance(points, stop, c, radius)
            for k in range(n_classes):
                v[k] = 0.0
                h[k] = 0.0
            if linear:
                before, after = max(start, kink << run_bits), min(stop, (kink + 1) << run_bits)
                _add_entries(points, classes, duals, before, after, c, gamma, 0.0, v, h)
                _add_window(points, classes, duals, moments, run_bits, start, before, c, gamma, 0.0, v, h)
                _add_window(points, classes, duals, moments, run_bits, after, stop, c, -gamma, 0.0, v, h)
            else:
                _add_window(points, classes, duals, moments, run_bits, start, stop, c, 0.0, gamma, v, h)
            total = 0.0
            for k in range(n_classes):
                total += v[k] * v[k]
                r[g, i, k] += h[k]
            q[g, i] += total
