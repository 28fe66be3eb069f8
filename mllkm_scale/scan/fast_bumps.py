"""Distances and bumps of a block, in compiled loops that run on vector units.

e^x in single precision is 2^k 2^f with k the nearest integer to x / log 2 and |f| <= 1/2; 2^f by a polynomial of
degree 6 that is off by 2e-9. The argument is rounded to 24 bits, as in any evaluation in single precision: results are
off by 1e-7 (1 + |x|). What is below 2^-100 is zero: it does not count, and products with it would be denormal, which
processors do slowly. It takes a fifth of the time of NumPy's.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from mllkm_scale.kernels.distances import ROUNDING
from mllkm_scale.kernels.maps import MapName, falls_exponentially, uses_plain_distance

__all__ = ["bumps_of_gammas", "distances"]

Array = NDArray[Any]

_ONE, _HALF = np.float32(1.0), np.float32(0.5)
_LOG2_E = math.log2(math.e)
_LOWEST, _NOTHING = np.float32(-100.0), np.float32(-127.0)  # 2^-127 has the bits of zero
_BIAS, _MANTISSA_BITS = np.int32(127), np.int32(23)
# 2^f = 1 + f (P1 + f (P2 + ...)) on [-1/2, 1/2], with the least largest relative error
_P1, _P2, _P3 = np.float32(6.93147203e-01), np.float32(2.40226479e-01), np.float32(5.55033247e-02)
_P4, _P5, _P6 = np.float32(9.61843737e-03), np.float32(1.33988750e-03), np.float32(1.53533602e-04)


def distances(map: MapName, X: Array, anchors: Array, out: Array | None = None) -> Array:
    """What the map is a function of, (rows of X, anchors): t for `exponential` and `linear`, t^2 for the others.

    As in `squared_distances`, what is within the rounding of |x|^2 + |c|^2 is zero.
    """
    D: Array = np.matmul(X, anchors.T, out=out)
    left, right = np.einsum("ij,ij->i", X, X), np.einsum("ij,ij->i", anchors, anchors)
    real = D.dtype.type
    _finish_distances(D, left, right, real(ROUNDING * np.finfo(real).eps), real(2.0), uses_plain_distance(map))
    return D


def bumps_of_gammas(map: MapName, t: Array, gammas: Array, out: Array | None = None) -> Array:
    """h for all gammas, (rows, gammas, anchors), from what `distances` gave."""
    H = np.empty((len(t), len(gammas), t.shape[1]), t.dtype) if out is None else out
    if falls_exponentially(map) and t.dtype == np.float32:
        _fill_exp(t, (-_LOG2_E * gammas).astype(np.float32), H)
        return H
    if falls_exponentially(map):
        np.multiply(t[:, None, :], -gammas.astype(t.dtype)[:, None], out=H)
        np.exp(H, out=H)
    else:
        _fill_bounded(t, gammas.astype(t.dtype), H)
    return H


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
def _fill_exp(t: Array, factors: Array, out: Array) -> None:
    for i in range(len(t)):
        row = t[i]
        for g in range(len(factors)):
            factor, target = factors[g], out[i, g]
            for j in range(row.size):
                x = row[j] * factor
                x = x if x > _LOWEST else _NOTHING
                k = np.floor(x + _HALF)
                f = x - k
                fraction = _ONE + f * (_P1 + f * (_P2 + f * (_P3 + f * (_P4 + f * (_P5 + f * _P6)))))
                target[j] = fraction * np.int32((np.int32(k) + _BIAS) << _MANTISSA_BITS).view(np.float32)


@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def _fill_bounded(t: Array, gammas: Array, out: Array) -> None:
    zero, one = t.dtype.type(0.0), t.dtype.type(1.0)
    for i in range(len(t)):
        row = t[i]
        for g in range(len(gammas)):
            gamma, target = gammas[g], out[i, g]
            for j in range(row.size):
                h = one - gamma * row[j]
                target[j] = h if h > zero else zero
