"""Distances and bumps of a block, in compiled loops that use vector units.

e^x in single precision is 2^k 2^f with k the nearest integer to x / log 2 and |f| <= 1/2; 2^f by a polynomial of
degree 6 that is off by 2e-9. The argument is rounded to 24 bits, as in any evaluation in single precision: results are
off by 1e-7 (1 + |x|). Values below 2^-100 are set to zero: they do not matter, and products with them would be
denormal, which is slow. This takes a fifth of the time of NumPy's function.

If a gamma is twice or four times another one, its bumps are squares or fourth powers of the other's, which takes a
quarter of that time. This holds for three of the five automatic gammas. The error grows by the same factor.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numba
import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.kernels.distances import ROUNDING
from mllkm_scale.kernels.maps import MapName, falls_exponentially, uses_plain_distance

__all__ = ["add_forms", "bumps_of_gammas", "distances", "exp2_single"]


_ONE, _HALF = np.float32(1.0), np.float32(0.5)
_LOG2_E = math.log2(math.e)
_LOWEST, _NOTHING = np.float32(-100.0), np.float32(-127.0)  # 2^-127 has the bits of zero
_LEAST_ROOT, _LEAST_FOURTH_ROOT = np.float32(2.0**-50), np.float32(2.0**-25)  # of 2^-100
_SAME = 1e-12  # relative difference of gammas that count as equal
_BIAS, _MANTISSA_BITS = np.int32(127), np.int32(23)
# 2^f = 1 + f (P1 + f (P2 + ...)) on [-1/2, 1/2], with the least largest relative error
_P1, _P2, _P3 = np.float32(6.93147203e-01), np.float32(2.40226479e-01), np.float32(5.55033247e-02)
_P4, _P5, _P6 = np.float32(9.61843737e-03), np.float32(1.33988750e-03), np.float32(1.53533602e-04)


def distances(map: MapName, X: Array, anchors: Array, squares: Array | None = None, out: Array | None = None) -> Array:
    """The argument of the map, (rows of X, anchors): t for `exponential` and `linear`, t^2 for the others.

    As in `squared_distances`, values within the rounding of |x|^2 + |c|^2 are zero. `squares` are |x|^2, if known.
    """
    D: Array = np.matmul(X, anchors.T, out=out)
    left = np.einsum("ij,ij->i", X, X) if squares is None else squares
    right = np.einsum("ij,ij->i", anchors, anchors)
    real = D.dtype.type
    _finish_distances(D, left, right, real(ROUNDING * np.finfo(real).eps), real(2.0), uses_plain_distance(map))
    return D


def bumps_of_gammas(
    map: MapName, t: Array, gammas: Array, rows: Array | None = None, out: Array | None = None
) -> Array:
    """h for all gammas, (rows, gammas, anchors), from the result of `distances`, for all its rows or some."""
    rows = np.arange(len(t)) if rows is None else rows
    H = np.empty((len(rows), len(gammas), t.shape[1]), t.dtype) if out is None else out
    if not falls_exponentially(map):
        _fill_bounded(t, rows, gammas.astype(t.dtype), H)
    elif t.dtype == np.float32:
        _fill_exp(t, rows, *_ways(np.asarray(gammas, np.float64).tobytes()), H)
    else:
        np.multiply(t[rows, None, :], -gammas.astype(t.dtype)[:, None], out=H)
        np.exp(H, out=H)
    return H


@lru_cache(maxsize=64)
def _ways(gammas: bytes) -> tuple[Array, Array, Array, Array]:
    """How to compute the bumps of each gamma: factors of t, order, source gamma (or -1), number of squarings."""
    values = np.frombuffer(gammas)
    order = np.argsort(values, kind="stable")
    sources, squarings = np.full(len(values), -1), np.zeros(len(values), int)
    for place, g in enumerate(order):
        for smaller in order[:place]:
            for times in (1, 2):
                if abs(values[g] / (2**times * values[smaller]) - 1.0) < _SAME:
                    sources[g], squarings[g] = smaller, times
    return (-_LOG2_E * values).astype(np.float32), order, sources, squarings


@numba.njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def add_forms(V: Array, anchors: Array, local_bias: float, q: Array) -> None:
    """Add |v - r c|^2 + b r^2 to q (anchors, gammas), over the classes of the sums V (K, gammas, anchors, [v, r])."""
    d = anchors.shape[1]
    for k in range(V.shape[0]):
        for g in range(V.shape[1]):
            for i in range(V.shape[2]):
                v, c = V[k, g, i], anchors[i]
                r = v[d]
                length = r * 0
                for l in range(d):
                    difference = v[l] - r * c[l]
                    length += difference * difference
                q[i, g] += float(length) + local_bias * float(r) ** 2


@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def _finish_distances(D: Array, left: Array, right: Array, rounding: Any, two: Any, root: bool) -> None:
    for i in range(len(left)):
        for j in range(len(right)):
            lengths = left[i] + right[j]
            squared = lengths - two * D[i, j]
            D[i, j] = squared if squared >= rounding * lengths else rounding * 0
        if root:
            for j in range(len(right)):
                D[i, j] = np.sqrt(D[i, j])


@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def exp2_single(x: Any) -> Any:
    """2^x in single precision, for x <= 0; zero below 2^-100."""
    x = x if x > _LOWEST else _NOTHING
    k = np.floor(x + _HALF)
    f = x - k
    fraction = _ONE + f * (_P1 + f * (_P2 + f * (_P3 + f * (_P4 + f * (_P5 + f * _P6)))))
    return fraction * np.int32((np.int32(k) + _BIAS) << _MANTISSA_BITS).view(np.float32)


@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def _fill_exp(
    t: Array, rows: Array, factors: Array, order: Array, sources: Array, squarings: Array, out: Array
) -> None:
    zero = np.float32(0.0)
    for i in range(len(rows)):
        row = t[rows[i]]
        for g in order:
            factor, target = factors[g], out[i, g]
            if squarings[g] == 1:
                source = out[i, sources[g]]
                for j in range(row.size):
                    h = source[j] if source[j] > _LEAST_ROOT else zero
                    target[j] = h * h
            elif squarings[g] == 2:
                source = out[i, sources[g]]
                for j in range(row.size):
                    h = source[j] if source[j] > _LEAST_FOURTH_ROOT else zero
                    target[j] = (h * h) * (h * h)
            else:
                for j in range(row.size):
                    target[j] = exp2_single(row[j] * factor)


@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def _fill_bounded(t: Array, rows: Array, gammas: Array, out: Array) -> None:
    zero, one = t.dtype.type(0.0), t.dtype.type(1.0)
    for i in range(len(rows)):
        row = t[rows[i]]
        for g in range(len(gammas)):
            gamma, target = gammas[g], out[i, g]
            for j in range(row.size):
                h = one - gamma * row[j]
                target[j] = h if h > zero else zero
