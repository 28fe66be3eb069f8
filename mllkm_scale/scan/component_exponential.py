"""One-dimensional sums of the map `exponential`: two recursions over the sorted column, one from each side.

    h(t) = e^(-gamma |t|),   psi(t) = t h(t)

The column is cut into runs of `RUN` points; x* is the first point of a run. Over all points left of x*

    left_0 = sum_i a_i e^(-gamma (x* - x_i)),   left_1 = sum_i a_i (x* - x_i) e^(-gamma (x* - x_i))

and right_0, right_1 likewise over x* and all points right of it. From one first point to the next, and from there to an
anchor at the distance s, sums go by

    sum_0 -> e^(-gamma s) sum_0,   sum_1 -> e^(-gamma s) (sum_1 + s sum_0)

so every factor is at most one, and each term of a sum is as exact as e^(-gamma t) itself. The points of the run that
the anchor falls into are added one by one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["RUN", "ExponentialColumn", "add_exponential", "fill_sides"]

Array = NDArray[Any]

RUN = 8
LEFT, RIGHT = 0, 2  # where sum_0 of a side is; sum_1 follows it


@dataclass(frozen=True)
class ExponentialColumn:
    """A sorted column, the rows of its points, and the sums of both sides (gammas, runs, 4, K)."""

    points: Array
    rows: Array
    duals: Array
    sides: Array
    gammas: Array

    @classmethod
    def of(cls, column: Array, duals: Array, gammas: Array) -> ExponentialColumn:
        rows = np.argsort(column, kind="stable").astype(np.int32)
        points = column[rows]
        sides = np.zeros((len(gammas), -(-len(points) // RUN), 4, duals.shape[1]))
        fill_sides(points, rows, duals, gammas, sides)
        return cls(points, rows, duals, sides, gammas)

    def add(self, anchors: Array, q: Array, r: Array) -> None:
        add_exponential(self.points, self.rows, self.duals, self.sides, self.gammas, anchors, q, r)


@numba.njit(cache=True, nogil=True)
def _add_run(
    points: Array, rows: Array, duals: Array, gamma: float, run: int, x: float, side: int, sums: Array
) -> None:
    """Add a run, all of it on one side of x, to the sums (4, K) of that side."""
    for i in range(run * RUN, min((run + 1) * RUN, len(points))):
        distance = abs(points[i] - x)
        bump = math.exp(-gamma * distance)
        for k in range(sums.shape[1]):
            mass = bump * duals[rows[i], k]
            sums[side, k] += mass
            sums[side + 1, k] += distance * mass


@numba.njit(cache=True, nogil=True)
def _carry(source: Array, target: Array, side: int, gamma: float, distance: float) -> None:
    """Add the sums of a side as they are seen from the next first point."""
    decay = math.exp(-gamma * distance)
    for k in range(source.shape[1]):
        target[side, k] += decay * source[side, k]
        target[side + 1, k] += decay * (source[side + 1, k] + distance * source[side, k])


@numba.njit(cache=True, nogil=True)
def fill_sides(points: Array, rows: Array, duals: Array, gammas: Array, sides: Array) -> None:
    """The sums (gammas, runs, 4, K) at the first point of every run; they are zero before."""
    n_runs = sides.shape[1]
    for g in range(len(gammas)):
        gamma = gammas[g]
        for run in range(1, n_runs):
            x = points[run * RUN]
            _carry(sides[g, run - 1], sides[g, run], LEFT, gamma, x - points[(run - 1) * RUN])
            _add_run(points, rows, duals, gamma, run - 1, x, LEFT, sides[g, run])
        for run in range(n_runs - 1, -1, -1):
            x = points[run * RUN]
            if run + 1 < n_runs:
                _carry(sides[g, run + 1], sides[g, run], RIGHT, gamma, points[(run + 1) * RUN] - x)
            _add_run(points, rows, duals, gamma, run, x, RIGHT, sides[g, run])


@numba.njit(cache=True, nogil=True)
def _run_of(points: Array, n_runs: int, c: float) -> int:
    """The last run whose first point is not right of c; -1 if there is none."""
    start, stop = 0, n_runs
    while start < stop:
        middle = (start + stop) >> 1
        if points[middle * RUN] <= c:
            start = middle + 1
        else:
            stop = middle
    return start - 1


@numba.njit(cache=True, nogil=True)
def add_exponential(
    points: Array, rows: Array, duals: Array, sides: Array, gammas: Array, anchors: Array, q: Array, r: Array
) -> None:
    """Add the sums of a column to q (anchors, gammas) and r (anchors, gammas, K)."""
    n_runs, n_classes = sides.shape[1], duals.shape[1]
    v, h = np.empty(n_classes), np.empty(n_classes)
    for i in range(len(anchors)):
        c = anchors[i]
        run = _run_of(points, n_runs, c)
        for g in range(len(gammas)):
            gamma = gammas[g]
            v[:] = 0.0
            h[:] = 0.0
            if run >= 0:
                distance = c - points[run * RUN]
                decay = math.exp(-gamma * distance)
                for k in range(n_classes):
                    h[k] += decay * sides[g, run, LEFT, k]
                    v[k] -= decay * (sides[g, run, LEFT + 1, k] + distance * sides[g, run, LEFT, k])
                for j in range(run * RUN, min((run + 1) * RUN, len(points))):
                    t = points[j] - c
                    bump = math.exp(-gamma * abs(t))
                    for k in range(n_classes):
                        mass = bump * duals[rows[j], k]
                        h[k] += mass
                        v[k] += t * mass
            if run + 1 < n_runs:
                distance = points[(run + 1) * RUN] - c
                decay = math.exp(-gamma * distance)
                for k in range(n_classes):
                    h[k] += decay * sides[g, run + 1, RIGHT, k]
                    v[k] += decay * (sides[g, run + 1, RIGHT + 1, k] + distance * sides[g, run + 1, RIGHT, k])
            for k in range(n_classes):
                q[i, g] += v[k] * v[k]
                r[i, g, k] += h[k]
