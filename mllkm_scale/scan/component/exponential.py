"""One-dimensional sums of the map `exponential`: two recursions over the sorted column, one from each side.

    h(t) = e^(-gamma |t|),   psi(t) = t h(t)

The column is divided into runs of 2^run_bits entries; x* is the first point of a run. Over all entries before the run

    left_0 = sum_i a_i e^(-gamma (x* - x_i)),   left_1 = sum_i a_i (x* - x_i) e^(-gamma (x* - x_i))

and right_0, right_1 likewise over the run and all entries after it. Seen from a position that is further away by s,

    sum_0 becomes e^(-gamma s) sum_0,   sum_1 becomes e^(-gamma s) (sum_1 + s sum_0)

which leads from one first point to the next, and from there to an anchor. Every factor is at most one, and each term
of a sum is as exact as e^(-gamma t) itself. The entries of the run that contains the anchor are added one by one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.scan.component.sizes import Entries

__all__ = ["ExponentialColumn"]

LEFT, RIGHT = 0, 2  # where sum_0 of a side is; sum_1 follows it


@dataclass(frozen=True)
class ExponentialColumn:
    """A sorted column, and the sums of both sides at the first points of its runs (gammas, runs, 4, K)."""

    entries: Entries
    sides: Array
    run_bits: int
    gammas: Array

    @classmethod
    def of(cls, entries: Entries, gammas: Array) -> ExponentialColumn:
        bits = entries.run_bits("exponential", len(gammas))
        sides = np.zeros((len(gammas), -(-len(entries) >> bits), 4, entries.n_classes))
        _fill_sides(entries.points, entries.classes, entries.duals, bits, gammas, sides)
        return cls(entries, sides, bits, gammas)

    def add(self, anchors: Array, order: Array, q: Array, r: Array) -> None:
        """Add |v_l|^2 of the anchors to q (gammas, anchors), and their sums of bumps to r (gammas, anchors, K)."""
        of = self.entries
        _add_exponential(of.points, of.classes, of.duals, self.sides, self.run_bits, self.gammas, anchors, order, q, r)


@numba.njit(cache=True, nogil=True)
def _add_run(
    points: Array,
    classes: Array,
    duals: Array,
    run_bits: int,
    gamma: float,
    run: int,
    x: float,
    side: int,
    sums: Array,
) -> None:
    """Add a run that lies on one side of x to the sums (4, K) of that side."""
    for i in range(run << run_bits, min((run + 1) << run_bits, len(points))):
        distance, k = abs(points[i] - x), classes[i]
        mass = duals[i] * math.exp(-gamma * distance)
        sums[side, k] += mass
        sums[side + 1, k] += distance * mass


@numba.njit(cache=True, nogil=True)
def _add_seen_from(sums: Array, side: int, gamma: float, distance: float, seen: Array) -> None:
    """Add to `seen` (4, K) the sums of a side as they are seen from further away by `distance`."""
    decay = math.exp(-gamma * distance)
    for k in range(sums.shape[1]):
        seen[side, k] += decay * sums[side, k]
        seen[side + 1, k] += decay * (sums[side + 1, k] + distance * sums[side, k])


@numba.njit(cache=True, nogil=True)
def _fill_sides(points: Array, classes: Array, duals: Array, run_bits: int, gammas: Array, sides: Array) -> None:
    """Fill the sums (gammas, runs, 4, K) at the first point of every run; they must be zero before."""
    n_runs = sides.shape[1]
    for g in range(len(gammas)):
        gamma = gammas[g]
        for run in range(1, n_runs):
            x = points[run << run_bits]
            _add_seen_from(sides[g, run - 1], LEFT, gamma, x - points[(run - 1) << run_bits], sides[g, run])
            _add_run(points, classes, duals, run_bits, gamma, run - 1, x, LEFT, sides[g, run])
        for run in range(n_runs - 1, -1, -1):
            x = points[run << run_bits]
            if run + 1 < n_runs:
                _add_seen_from(sides[g, run + 1], RIGHT, gamma, points[(run + 1) << run_bits] - x, sides[g, run])
            _add_run(points, classes, duals, run_bits, gamma, run, x, RIGHT, sides[g, run])


@numba.njit(cache=True, nogil=True)
def _run_of(points: Array, run_bits: int, n_runs: int, c: float) -> int:
    """The last run whose first point is at most c; -1 if there is none."""
    start, stop = 0, n_runs
    while start < stop:
        middle = (start + stop) >> 1
        if points[middle << run_bits] <= c:
            start = middle + 1
        else:
            stop = middle
    return start - 1


@numba.njit(cache=True, nogil=True)
def _add_exponential(
    points: Array,
    classes: Array,
    duals: Array,
    sides: Array,
    run_bits: int,
    gammas: Array,
    anchors: Array,
    order: Array,
    q: Array,
    r: Array,
) -> None:
    """Add the sums of a column at `anchors`, whose ascending order is `order`, to q and r."""
    n_runs, n_classes = sides.shape[1], r.shape[2]
    v, h = np.empty(n_classes), np.empty(n_classes)
    for i in order:
        c = anchors[i]
        run = _run_of(points, run_bits, n_runs, c)
        start, stop = max(run, 0) << run_bits, min((run + 1) << run_bits, len(points))
        for g in range(len(gammas)):
            gamma = gammas[g]
            for k in range(n_classes):
                v[k] = 0.0
                h[k] = 0.0
            if run >= 0:
                distance, left = c - points[start], sides[g, run]
                decay = math.exp(-gamma * distance)
                for k in range(n_classes):
                    h[k] += decay * left[LEFT, k]
                    v[k] -= decay * (left[LEFT + 1, k] + distance * left[LEFT, k])
            if run + 1 < n_runs:
                distance, right = points[stop] - c, sides[g, run + 1]
                decay = math.exp(-gamma * distance)
                for k in range(n_classes):
                    h[k] += decay * right[RIGHT, k]
                    v[k] += decay * (right[RIGHT + 1, k] + distance * right[RIGHT, k])
            t, bump = 0.0, 1.0
            for j in range(start, stop):
                if points[j] - c != t:  # a point that is there for several classes needs one bump
                    t = points[j] - c
                    bump = math.exp(-gamma * abs(t))
                mass = bump * duals[j]
                h[classes[j]] += mass
                v[classes[j]] += t * mass
            total = 0.0
            for k in range(n_classes):
                total += v[k] * v[k]
                r[g, i, k] += h[k]
            q[g, i] += total
