"""The loops of the map `gaussian`: expansions in boxes are filled from the entries, and evaluated at the anchors.

The module `gaussian` explains what is computed.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from mllkm_scale.base.arrays import Array

__all__ = ["add_gaussian", "fill_coefficients", "fill_moments", "set_chebyshev"]


@numba.njit(cache=True, nogil=True)
def set_chebyshev(u: float, T: Array) -> None:
    """T_p(u), p < len(T), by T_2m = 2 T_m^2 - 1 and T_2m+1 = 2 T_m T_m+1 - u."""
    T[0] = 1.0
    T[1] = u
    for p in range(2, len(T)):
        m = p >> 1
        T[p] = 2.0 * T[m] * T[m] - 1.0 if p & 1 == 0 else 2.0 * T[m] * T[m + 1] - u


@numba.njit(cache=True, nogil=True)
def fill_moments(
    points: Array,
    classes: Array,
    duals: Array,
    sources: Array,
    starts: Array,
    stops: Array,
    middles: Array,
    width: float,
    moments: Array,
) -> None:
    """Moments (sources, K, 2, p) of the boxes with entries: of a_i (x_i - x*) and of a_i; they must be zero before."""
    n_terms = moments.shape[3]
    T = np.empty(n_terms)
    for s in range(len(sources)):
        for i in range(starts[s], stops[s]):
            if i == starts[s] or points[i] != points[i - 1]:
                set_chebyshev(2.0 * (points[i] - sources[s] * width) / width - 1.0, T)
            u, k = points[i] - middles[s], classes[i]
            for p in range(n_terms):
                mass = duals[i] * T[p]
                moments[s, k, 0, p] += u * mass
                moments[s, k, 1, p] += mass


@numba.njit(cache=True, nogil=True)
def fill_coefficients(
    sources: Array,
    middles: Array,
    moments: Array,
    products: Array,
    ids: Array,
    centres: Array,
    coefficients: Array,
) -> None:
    """Coefficients (boxes, q, 2 K) of the boxes `ids` from the moments of the boxes with entries."""
    n_classes, n_terms, reach = moments.shape[1], moments.shape[3], products.shape[0] // 2
    sums = np.empty((2, n_terms))
    first = 0
    for j in range(len(ids)):
        while first < len(sources) and sources[first] < ids[j] - reach:
            first += 1
        for k in range(n_classes):
            sums[:] = 0.0
            s = first
            while s < len(sources) and sources[s] <= ids[j] + reach:
                M, shift = products[int(sources[s] - ids[j]) + reach], middles[s] - centres[j]
                for p in range(n_terms):
                    mass = moments[s, k, 1, p]
                    if mass != 0.0 or moments[s, k, 0, p] != 0.0:  # most classes have no entry in a sparse box
                        turned = moments[s, k, 0, p] + shift * mass
                        for q in range(n_terms):
                            sums[0, q] += turned * M[p, q]
                            sums[1, q] += mass * M[p, q]
                s += 1
            for q in range(n_terms):
                coefficients[j, q, k] = sums[0, q]
                coefficients[j, q, n_classes + k] = sums[1, q]


@numba.njit(cache=True, nogil=True)
def _add_entries(
    points: Array, classes: Array, duals: Array, gamma: float, reach: float, c: float, sums: Array
) -> None:
    """Add the entries within `reach` of c to the sums (2 K)."""
    n_classes = len(sums) // 2
    t, bump = 0.0, 1.0
    for j in range(np.searchsorted(points, c - reach), len(points)):
        if points[j] - c != t:  # a point that is there for several classes needs one bump
            t = points[j] - c
            if t > reach:
                break
            bump = math.exp(-gamma * t * t)
        mass = bump * duals[j]
        sums[classes[j]] += t * mass
        sums[n_classes + classes[j]] += mass


@numba.njit(cache=True, nogil=True)
def add_gaussian(
    points: Array,
    classes: Array,
    duals: Array,
    ids: Array,
    centres: Array,
    coefficients: Array,
    gamma: float,
    width: float,
    reach: float,
    anchors: Array,
    order: Array,
    g: int,
    q: Array,
    r: Array,
) -> None:
    """Add the sums of a column at `anchors`, whose ascending order is `order`, to q and r of gamma number g."""
    n_classes, n_terms = r.shape[2], coefficients.shape[1]
    sums, T = np.empty(2 * n_classes), np.empty(n_terms)  # sums of psi for each class, then of h
    box = 0
    for i in order:
        c = anchors[i]
        place = np.floor(c / width)
        while box < len(ids) and ids[box] < place:
            box += 1
        for j in range(len(sums)):
            sums[j] = 0.0
        if box < len(ids) and ids[box] == place:
            set_chebyshev(2.0 * (c - place * width) / width - 1.0, T)
            for p in range(n_terms):
                for j in range(len(sums)):
                    sums[j] += T[p] * coefficients[box, p, j]
            for k in range(n_classes):
                sums[k] -= (c - centres[box]) * sums[n_classes + k]
        else:
            _add_entries(points, classes, duals, gamma, reach, c, sums)
        total = 0.0
        for k in range(n_classes):
            total += sums[k] * sums[k]
            r[g, i, k] += sums[n_classes + k]
        q[g, i] += total
