"""Sums over bumps in one pass over their sorted anchors or edges: the numba loops that make tables.

`decay_states`, `add_decayed` (exponential): with the anchors c_1 <= ... <= c_j of one gamma to the left of t,

    sum_j e^(-gamma (t - c_j)) ((t - c_j) a_j + b_j) = e^(-gamma D) (Q_j + D P_j)        D = t - c_j, j the last one

`piece_polynomials` (linear, squared): between two edges the sum is a polynomial. A bump is added at the left end of its
support and removed at the right end. Removing it must cancel exactly, also for narrow bumps far from zero. So the
running polynomial is in pairs of doubles (a value and its rounding error).
"""

from __future__ import annotations

import math

import numba

from mllkm_scale.base.arrays import Array

__all__ = ["add_decayed", "decay_states", "piece_polynomials"]


@numba.njit(cache=True, nogil=True)
def decay_states(anchors: Array, gamma: float, a: Array, b: Array, P: Array, Q: Array) -> None:
    """P and Q (s, K) at every anchor, including that anchor; each step forward shrinks the earlier terms."""
    for k in range(P.shape[1]):
        P[0, k], Q[0, k] = a[0, k], b[0, k]
    for j in range(1, len(anchors)):
        D = anchors[j] - anchors[j - 1]
        decay = math.exp(-gamma * D)
        for k in range(P.shape[1]):
            P[j, k] = decay * P[j - 1, k] + a[j, k]
            Q[j, k] = decay * (Q[j - 1, k] + D * P[j - 1, k]) + b[j, k]


@numba.njit(cache=True, nogil=True)
def add_decayed(points: Array, last: Array, anchors: Array, gamma: float, P: Array, Q: Array, sums: Array) -> None:
    """sums (n, K) += the sum over the anchors up to the `last` one at each point; -1 means none."""
    for i in range(len(points)):
        j = last[i]
        if j >= 0:
            D = points[i] - anchors[j]
            decay = math.exp(-gamma * D)
            for k in range(sums.shape[1]):
                sums[i, k] += decay * (Q[j, k] + D * P[j, k])


@numba.njit(cache=True, nogil=True)
def _exact_product(a: float, b: float) -> tuple[float, float]:
    """a b as a rounded value and its error (Dekker)."""
    p = a * b
    t = 134217729.0 * a
    a_high = t - (t - a)
    t = 134217729.0 * b
    b_high = t - (t - b)
    a_low, b_low = a - a_high, b - b_high
    return p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low


@numba.njit(cache=True, nogil=True)
def _add_product(pair: Array, other: Array, x: float) -> None:
    """pair += other x, for numbers (value, error)."""
    p, e = _exact_product(other[0], x)
    e += other[1] * x
    s = pair[0] + p
    t = s - pair[0]
    e += (pair[0] - (s - t)) + (p - t) + pair[1]
    pair[0] = s + e
    pair[1] = e - (pair[0] - s)


@numba.njit(cache=True, nogil=True)
def _move_origin(polynomial: Array, shift: float) -> None:
    """p(u) becomes p(u + shift); `polynomial` (degree + 1, 2)."""
    degree = len(polynomial) - 1
    for i in range(degree):
        for q in range(degree - 1, i - 1, -1):
            _add_product(polynomial[q], polynomial[q + 1], shift)


@numba.njit(cache=True, nogil=True)
def piece_polynomials(
    edges: Array,
    places: Array,
    kernels: Array,
    bends: Array,
    signs: Array,
    anchors: Array,
    slopes: Array,
    levels: Array,
    work: Array,
    running: Array,
    coefficients: Array,
) -> None:
    """The polynomials (cells, degree + 1, K) between edges, each in x = -1 .. 1 over its cell.

    An event is one side of a kernel that is added (sign 1) or removed (-1) at an edge; the ascending places are the
    edges. There h = 1 + bend u^(degree - 1), u = t - c: degree 2 for `linear`, whose sides have bends of opposite
    signs, and 3 for `squared`. `work` is (2, degree + 1, 2), `running` (K, degree + 1, 2) and zero.
    """
    degree, n_machines = coefficients.shape[1] - 1, coefficients.shape[2]
    event = 0
    for j in range(len(edges) - 1):
        while event < len(places) and places[event] == j:
            m, bend = kernels[event], bends[event]
            for q in range(degree + 1):
                for part in range(2):
                    work[0, q, part] = work[1, q, part] = 0.0
            work[0, 1, 0], work[0, degree, 0] = 1.0, bend  # u h
            work[1, 0, 0], work[1, degree - 1, 0] = 1.0, bend  # h
            _move_origin(work[0], -anchors[m])
            _move_origin(work[1], -anchors[m])
            for k in range(n_machines):
                for q in range(degree + 1):
                    _add_product(running[k, q], work[0, q], signs[event] * slopes[m, k])
                    _add_product(running[k, q], work[1, q], signs[event] * levels[m, k])
            event += 1
        centre, half = 0.5 * (edges[j] + edges[j + 1]), 0.5 * (edges[j + 1] - edges[j])
        for k in range(n_machines):
            for q in range(degree + 1):
                work[0, q, 0], work[0, q, 1] = running[k, q, 0], running[k, q, 1]
            _move_origin(work[0], centre)
            power = 1.0
            for q in range(degree + 1):
                coefficients[j, q, k] = work[0, q, 0] * power
                power *= half
