"""Single rows, from their raw values to decision values: the numba loops of `Server`.

    z = preprocessor(x) - centre,    f_k = <[z, 1], sum_m h_m(z) [w_km, l_km - <c_m, w_km>]>

All sums are over rows of a table in C order. Four of its rows are added at a time, so that loops use vector units and
no sum is reordered. The order, and with it the bits, depends only on the input row.

`compiled` makes a function for the types that it is called with, or reads it from numba's cache: no call compiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import types

from mllkm_scale.base.arrays import Array
from mllkm_scale.model.serving.server import TOO_LARGE, WELL

# The cache of compiled functions depends on this file only: touch it after a change of `add_tables`.
from mllkm_scale.model.tables.lookup import add_tables

__all__ = ["compiled", "decide_component", "decide_global", "decide_tables"]


_LARGEST = np.finfo(np.float64).max
_LEAST = -600.0  # a bump below e^-600 is set to zero: it is negligible, and products with it would be denormal

# Rows may be in memory that is read-only or not aligned.
_rows = types.Array(types.float64, 2, "C", readonly=True, aligned=False)
_vector, _matrix, _cube = types.float64[::1], types.float64[:, ::1], types.float64[:, :, ::1]
_whole = types.int64[::1]
_columns = (_whole, _whole, _vector, _vector)
_preparation = (types.boolean, *_columns, _vector, _vector, _matrix, _vector)
_map = (types.boolean, types.boolean)


@numba.njit(nogil=True)
def _add_rows(factors: Array, table: Array, chosen: Array, total: Array) -> None:
    """total += sum_m factors[m] table[m] over the m whose factor is not zero; `chosen` is a buffer for their
    indices."""
    count = 0
    for m in range(factors.size):
        chosen[count] = m
        count += factors[m] != 0.0
    fours = count // 4 * 4
    for i in range(0, fours, 4):
        m, n, o, p = chosen[i], chosen[i + 1], chosen[i + 2], chosen[i + 3]
        a, b, c, d = factors[m], factors[n], factors[o], factors[p]
        for j in range(total.size):
            total[j] = (((total[j] + a * table[m, j]) + b * table[n, j]) + c * table[o, j]) + d * table[p, j]
    for i in range(fours, count):
        m = chosen[i]
        a = factors[m]
        for j in range(total.size):
            total[j] += a * table[m, j]


@numba.njit(nogil=True)
def _copy_finite(x: Array, row: Array) -> int:
    """Copy a row, and return the column of its first value that is not finite, or WELL."""
    finite = 0
    for j in range(row.size):
        row[j] = x[j]
        finite += abs(x[j]) <= _LARGEST
    if finite < row.size:
        for j in range(row.size):
            if not abs(x[j]) <= _LARGEST:
                return j
    return WELL


@numba.njit(nogil=True)
def _prepare(
    row: Array,
    unit_norm: bool,
    columns: Array,
    starts: Array,
    values: Array,
    levels: Array,
    origin: Array,
    factor: Array,
    projection: Array,
    offset: Array,
    chosen: Array,
    own: Array,
    z: Array,
) -> None:
    """z = (v - origin) * factor - offset, or (v - origin) @ projection - offset if there is a projection.

    v is the row, or its columns, which are written to `own`.
    """
    if unit_norm:
        _to_unit_norm(row)
    v = row
    if columns.size:
        v = own
        for j in range(columns.size):
            v[j] = row[columns[j]]
        if starts.size:
            for j in range(columns.size):
                if starts[j] < starts[j + 1]:
                    v[j] = _level(v[j], values[starts[j] : starts[j + 1]], levels[starts[j] : starts[j + 1]])
    if projection.size:
        for j in range(v.size):
            v[j] -= origin[j]
        for p in range(z.size):
            z[p] = -offset[p]
        _add_rows(v, projection, chosen, z)
    else:
        for j in range(v.size):
            z[j] = (v[j] - origin[j]) * factor[j] - offset[j]


@numba.njit(nogil=True)
def _level(x: float, values: Array, levels: Array) -> float:
    """The piecewise linear map through these knots, constant beyond them."""
    last = values.size - 1
    if not x > values[0]:
        return levels[0]
    if x >= values[last]:
        return levels[last]
    low, high = 0, last
    while high - low > 1:
        middle = (low + high) // 2
        if values[middle] <= x:
            low = middle
        else:
            high = middle
    return (levels[high] - levels[low]) / (values[high] - values[low]) * (x - values[low]) + levels[low]


@numba.njit(nogil=True)
def _to_unit_norm(row: Array) -> None:
    largest = 0.0
    for j in range(row.size):
        largest = max(largest, abs(row[j]))
    if largest == 0.0:
        return
    square = 0.0
    for j in range(row.size):
        row[j] /= largest
        square += row[j] * row[j]
    norm = math.sqrt(square)
    for j in range(row.size):
        row[j] /= norm


@numba.njit(nogil=True)
def _bump(squared: float, gamma: float, plain_distance: bool, exponential: bool) -> float:
    t = gamma * (math.sqrt(squared) if plain_distance else squared)
    if exponential:
        return math.exp(-t) if -t > _LEAST else 0.0
    return 1.0 - t if t < 1.0 else 0.0


@numba.njit(nogil=True)
def _fill_distances(z: Array, anchors: Array, squared: Array) -> None:
    """|z - c_m|^2 of anchors (d, s)."""
    squared[:] = 0.0
    d = anchors.shape[0]
    fours = d // 4 * 4
    for l in range(0, fours, 4):
        e, f, g, h = z[l], z[l + 1], z[l + 2], z[l + 3]
        for m in range(squared.size):
            p, q = e - anchors[l, m], f - anchors[l + 1, m]
            r, s = g - anchors[l + 2, m], h - anchors[l + 3, m]
            squared[m] = (((squared[m] + p * p) + q * q) + r * r) + s * s
    for l in range(fours, d):
        e = z[l]
        for m in range(squared.size):
            p = e - anchors[l, m]
            squared[m] += p * p


def decide_global(
    unit_norm: bool,
    columns: Array,
    starts: Array,
    values: Array,
    levels: Array,
    origin: Array,
    factor: Array,
    projection: Array,
    offset: Array,
    plain_distance: bool,
    exponential: bool,
    anchors: Array,
    gammas: Array,
    flat: Array,
    X: Array,
    F: Array,
) -> int:
    """F (n, K) of rows X (n, features) by global kernels: anchors (d, s) less the centre, flat (s, K (d + 1), more).

    Returns WELL, or the position in X of the first value that is not finite, or TOO_LARGE minus the row that overflows.
    """
    n, n_features_in = X.shape
    d, s = anchors.shape
    n_machines = F.shape[1]
    row, own, z = np.empty(n_features_in), np.empty(columns.size), np.empty(offset.size)
    bumps, sums = np.empty(s), np.empty(flat.shape[1])
    chosen = np.empty(max(n_features_in, columns.size, s) + 1, np.int64)
    for i in range(n):
        column = _copy_finite(X[i], row)
        if column >= 0:
            return i * n_features_in + column
        _prepare(row, unit_norm, columns, starts, values, levels, origin, factor, projection, offset, chosen, own, z)
        _fill_distances(z, anchors, bumps)
        for m in range(s):
            if not bumps[m] <= _LARGEST:
                return TOO_LARGE - i
            bumps[m] = _bump(bumps[m], gammas[m], plain_distance, exponential)
        sums[:] = 0.0
        _add_rows(bumps, flat, chosen, sums)
        for k in range(n_machines):
            part = sums[k * (d + 1) : (k + 1) * (d + 1)]
            value = part[d]
            for l in range(d):
                value += part[l] * z[l]
            if not abs(value) <= _LARGEST:
                return TOO_LARGE - i
            F[i, k] = value
    return WELL


def decide_component(
    unit_norm: bool,
    columns: Array,
    starts: Array,
    values: Array,
    levels: Array,
    origin: Array,
    factor: Array,
    projection: Array,
    offset: Array,
    plain_distance: bool,
    exponential: bool,
    anchors: Array,
    gammas: Array,
    folded: Array,
    X: Array,
    F: Array,
) -> int:
    """F (n, K) by component-wise kernels: anchors (s, d), folded (s, d + 1, K); returns the same as `decide_global`."""
    n, n_features_in = X.shape
    s, d = anchors.shape
    row, own, z = np.empty(n_features_in), np.empty(columns.size), np.empty(offset.size)
    chosen = np.empty(max(n_features_in, columns.size) + 1, np.int64)
    for i in range(n):
        column = _copy_finite(X[i], row)
        if column >= 0:
            return i * n_features_in + column
        _prepare(row, unit_norm, columns, starts, values, levels, origin, factor, projection, offset, chosen, own, z)
        F[i] = 0.0
        for m in range(s):
            height = 0.0
            for l in range(d):
                t = z[l] - anchors[m, l]
                h = _bump(t * t, gammas[m], plain_distance, exponential)
                if h != 0.0:
                    height += h
                    for k in range(F.shape[1]):
                        F[i, k] += h * t * folded[m, l, k]
            for k in range(F.shape[1]):
                F[i, k] += height / d * folded[m, d, k]
        for k in range(F.shape[1]):
            if not abs(F[i, k]) <= _LARGEST:
                return TOO_LARGE - i
    return WELL


def decide_tables(
    unit_norm: bool,
    columns: Array,
    starts: Array,
    values: Array,
    levels: Array,
    origin: Array,
    factor: Array,
    projection: Array,
    offset: Array,
    guide_starts: Array,
    spans: Array,
    guide: Array,
    edges: Array,
    variables: Array,
    coefficients: Array,
    X: Array,
    F: Array,
) -> int:
    """F (n, K) by the tables of an `AdditiveModel`; returns the same as `decide_global`."""
    n, n_features_in = X.shape
    row, own, Z = np.empty(n_features_in), np.empty(columns.size), np.empty((1, offset.size))
    chosen = np.empty(max(n_features_in, columns.size) + 1, np.int64)
    for i in range(n):
        column = _copy_finite(X[i], row)
        if column >= 0:
            return i * n_features_in + column
        _prepare(row, unit_norm, columns, starts, values, levels, origin, factor, projection, offset, chosen, own, Z[0])
        F[i] = 0.0
        add_tables(Z, guide_starts, spans, guide, edges, variables, coefficients, F[i : i + 1])
        for k in range(F.shape[1]):
            if not abs(F[i, k]) <= _LARGEST:
                return TOO_LARGE - i
    return WELL


_SIGNATURES: dict[Callable[..., int], Any] = {
    decide_global: types.int64(*_preparation, *_map, _matrix, _vector, _matrix, _rows, _matrix),
    decide_component: types.int64(*_preparation, *_map, _matrix, _vector, _cube, _rows, _matrix),
    decide_tables: types.int64(*_preparation, _whole, _matrix, _whole, _vector, _matrix, _cube, _rows, _matrix),
}


@cache
def compiled(decide: Callable[..., int]) -> Callable[..., int]:
    """One of the three functions, compiled."""
    made: Callable[..., int] = numba.njit(_SIGNATURES[decide], cache=True, nogil=True)(decide)
    return made
