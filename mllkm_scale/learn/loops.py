"""Element-wise work of a step of the descent, in compiled loops: bumps, the hinge, and their derivatives.

Every function writes to arrays that it is given. Single precision uses the exponential of the scan. Double precision,
which the tests of the gradients use, has the exponential of the standard library.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import overload

from mllkm_scale.base.arrays import Array
from mllkm_scale.scan.fast_bumps import exp2_single

__all__ = [
    "adam_step",
    "adam_steps",
    "bump_gradients",
    "component_features",
    "component_gradients",
    "gather",
    "hinge",
    "point_gradients",
    "scaling_gradients",
    "set_bumps",
]


_MINUS_LOG2_E = np.float32(-math.log2(math.e))
_SUMS = {"contract", "reassoc"}


def negative_exp(e: float) -> float:
    """e^-e in the precision of its argument."""
    return math.exp(-e)


@overload(negative_exp)
def _negative_exp(e: Any) -> Any:
    def single(e: Any) -> Any:
        return exp2_single(e * _MINUS_LOG2_E)

    def double(e: Any) -> Any:
        return math.exp(-e)

    return single if e == types.float32 else double


@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def set_bumps(
    products: Array, zz: Array, cc: Array, gammas: Array, root: bool, falls: bool, E: Array, H: Array
) -> None:
    """E = gamma t^2, or gamma t if `root`, and H = h(E), from <z, c>, |z|^2 and |c|^2.

    `falls` says whether h is e^-E or max(0, 1 - E).
    """
    zero, one = products.dtype.type(0.0), products.dtype.type(1.0)
    two = one + one
    for i in range(products.shape[0]):
        left = zz[i]
        for j in range(products.shape[1]):
            squared = left + cc[j] - two * products[i, j]
            E[i, j] = squared if squared > zero else zero
        if root:
            for j in range(products.shape[1]):
                E[i, j] = np.sqrt(E[i, j])
        if falls:
            for j in range(products.shape[1]):
                e = gammas[j] * E[i, j]
                E[i, j] = e
                H[i, j] = negative_exp(e)
        else:
            for j in range(products.shape[1]):
                e = gammas[j] * E[i, j]
                E[i, j] = e
                H[i, j] = one - e if e < one else zero


@numba.njit(cache=True, nogil=True, fastmath=_SUMS)
def hinge(F: Array, signs: Array, share: float, G: Array, active: Array) -> tuple[int, float]:
    """G = dL/dF for L = share * sum of w max(0, 1 - y f); the rows where G is not zero are listed in `active`.

    `signs` are y w, or y without weights. Returns the number of active rows, and the sum.
    """
    count, total = 0, 0.0
    part = F.dtype.type(share)
    for i in range(F.shape[0]):
        within = False
        for k in range(F.shape[1]):
            short = abs(signs[i, k]) - signs[i, k] * F[i, k]
            if short > 0:
                G[i, k] = -signs[i, k] * part
                total += short
                within = True
            else:
                G[i, k] = 0
        if within:
            active[count] = i
            count += 1
    return count, total


@numba.njit(cache=True, nogil=True)
def gather(
    rows: Array, G: Array, Z: Array, H: Array, E: Array, T: Array, dT: Array, H_rows: Array, E_rows: Array, dZ: Array
) -> None:
    """For the active rows: bumps, dL/dT = g z', and the part of dL/dZ through the linear predictors, sum_k g_k T_k."""
    K, width = G.shape[1], Z.shape[1]
    for r in range(len(rows)):
        i = rows[r]
        dZ[r, :] = 0
        for k in range(K):
            g = G[i, k]
            at = k * width
            if g != 0:
                for l in range(width):
                    dT[r, at + l] = g * Z[i, l]
                    dZ[r, l] += g * T[i, at + l]
            else:
                dT[r, at : at + width] = 0
        H_rows[r] = H[i]
        E_rows[r] = E[i]


@numba.njit(cache=True, nogil=True, fastmath=_SUMS)
def bump_gradients(
    dH: Array, H: Array, E: Array, gammas: Array, root: bool, falls: bool, rows: Array, columns: Array, dlog: Array
) -> None:
    """Turn dL/dH into D = dL/d|z - c|^2 in place; sums of D over rows and columns, and dL/dlog gamma."""
    zero, one = dH.dtype.type(0.0), dH.dtype.type(1.0)
    half = one / (one + one)
    columns[:] = 0
    dlog[:] = 0
    for i in range(dH.shape[0]):
        total = zero
        for j in range(dH.shape[1]):
            e = E[i, j]
            slope = -H[i, j] if falls else (-one if e < one else zero)
            q = dH[i, j] * slope
            dlog[j] += q * e
            if root:
                d = q * gammas[j] * gammas[j] * half / e if e > zero else zero
            else:
                d = q * gammas[j]
            dH[i, j] = d
            total += d
            columns[j] += d
        rows[i] = total


@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def point_gradients(products: Array, sums: Array, points: Array, out: Array, add: bool) -> None:
    """dL/dz or dL/dc through the distances, 2 (sum_m D z - D C), from D C and the sums of D; added to `out` or set."""
    two = points.dtype.type(2.0)
    for i in range(points.shape[0]):
        for l in range(points.shape[1]):
            value = two * (sums[i] * points[i, l] - products[i, l])
            out[i, l] = out[i, l] + value if add else value


@numba.njit(cache=True, nogil=True, fastmath=_SUMS)
def scaling_gradients(dZ: Array, Z: Array, dC: Array, C: Array, factors: Array, d_anchors: Array, d_log: Array) -> None:
    """From dL/dZ and dL/dC to the derivatives by the anchors and by the logarithms of the factors of a scaling."""
    d_log[:] = 0
    for i in range(Z.shape[0]):
        for l in range(Z.shape[1]):
            d_log[l] += dZ[i, l] * Z[i, l]
    for m in range(C.shape[0]):
        for l in range(C.shape[1]):
            d_log[l] += dC[m, l] * C[m, l]
            d_anchors[m, l] = dC[m, l] * factors[l]


@numba.njit(cache=True, nogil=True)
def component_features(Z: Array, C: Array, gammas: Array, root: bool, falls: bool, features: Array) -> None:
    """Component-wise features (rows, s, d + 1): h(|z_l - c_l|) (z_l - c_l), and last the mean of h over l."""
    s, d = C.shape
    zero, one = Z.dtype.type(0.0), Z.dtype.type(1.0)
    for i in range(Z.shape[0]):
        for m in range(s):
            gamma, mean = gammas[m], zero
            for l in range(d):
                u = Z[i, l] - C[m, l]
                e = gamma * (abs(u) if root else u * u)
                h = negative_exp(e) if falls else (one - e if e < one else zero)
                features[i, m, l] = h * u
                mean += h
            features[i, m, d] = mean / d


@numba.njit(cache=True, nogil=True)
def component_gradients(
    dF: Array, Z: Array, C: Array, gammas: Array, root: bool, falls: bool, dZ: Array, dC: Array, dlog: Array
) -> None:
    """From dL/dfeatures (rows, s, d + 1) to dL/dZ, dL/dC and dL/dlog gamma."""
    s, d = C.shape
    zero, one = Z.dtype.type(0.0), Z.dtype.type(1.0)
    two = one + one
    dZ[:] = 0
    dC[:] = 0
    dlog[:] = 0
    for i in range(Z.shape[0]):
        for m in range(s):
            gamma, from_mean = gammas[m], dF[i, m, d] / d
            for l in range(d):
                u = Z[i, l] - C[m, l]
                e = gamma * (abs(u) if root else u * u)
                if falls:
                    h = negative_exp(e)
                    slope = -h
                else:
                    h = one - e if e < one else zero
                    slope = -one if e < one else zero
                q = (dF[i, m, l] * u + from_mean) * slope
                dlog[m] += q * e
                along = gamma * (np.sign(u) if root else two * u)
                du = dF[i, m, l] * h + q * along
                dZ[i, l] += du
                dC[m, l] -= du


@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def adam_step(
    values: Array, gradients: Array, mean: Array, square: Array, rate: float, ridge: float, rule: Array, t: int
) -> None:
    """Adam on consecutive parameters.

    `rule` holds the decays of the two moments, and the number that is added to the root of the second.
    """
    real = values.dtype.type
    first, second = real(rule[0]), real(rule[1])
    one = real(1.0)
    step, unbias = real(rate / (1.0 - rule[0] ** t)), real(1.0 / (1.0 - rule[1] ** t))
    shrink, tiny = real(2.0 * ridge), real(rule[2])
    for i in range(values.size):
        g = gradients[i] + shrink * values[i]
        mean[i] += (one - first) * (g - mean[i])
        square[i] += (one - second) * (g * g - square[i])
        values[i] -= step * mean[i] / (np.sqrt(square[i] * unbias) + tiny)


@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def adam_steps(
    values: Array,
    gradients: Array,
    mean: Array,
    square: Array,
    ends: Array,
    rates: Array,
    ridges: Array,
    rule: Array,
    t: int,
) -> None:
    """Adam on consecutive groups of parameters, each with its own rate and ridge."""
    start = 0
    for group in range(len(ends)):
        run = slice(start, ends[group])
        adam_step(values[run], gradients[run], mean[run], square[run], rates[group], ridges[group], rule, t)
        start = ends[group]
