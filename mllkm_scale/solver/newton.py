"""The second-order finish of one SVM: a primal-dual interior point method on its dual, a box-constrained QP.

    min over 0 <= a_i <= C_i:   1/2 a'Q a - 1'a

SDCA approaches the optimum fast, but becomes slow if Q is ill-conditioned. One Cholesky factor per step avoids this.
The relative duality gap says how far an SVM without bias term is from its optimum.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from mllkm_scale.base.arrays import Array
from mllkm_scale.solver.box import Box

__all__ = ["newton_finish", "relative_gap"]

_TO_THE_BOUNDARY = 0.995
_EDGE = 1e-14  # of C_i: the least distance of a dual from 0 and from C_i
_SNAP = 1e-7  # of C_i
_RIDGE = 1e-12  # of the mean diagonal


def relative_gap(duals: Array, margins: Array, box: Box) -> float:
    """(P - D) / P with P = 1/2 alpha'Q alpha + sum C_i hinge_i and alpha'Q alpha = sum alpha_i y_i f(x_i)."""
    norm = float(duals @ margins)
    primal = 0.5 * norm + box.loss(margins)
    return 0.0 if primal == 0 else (primal - float(duals.sum()) + 0.5 * norm) / primal


def newton_finish(Q: Array, C: float | Box, tol: float, max_steps: int = 60) -> Array:
    """Duals whose relative gap is at most `tol`, or the best that rounding allows.

    Examples
    --------
    >>> newton_finish(np.array([[2.0, 0.0], [0.0, 0.1]]), C=1.0, tol=1e-9).round(6).tolist()
    [0.5, 1.0]
    """
    n = len(Q)
    box = Box.of(C, n)
    bound = box.upper
    a, lower, upper = 0.5 * bound, np.ones(n), np.ones(n)
    best, best_gap = a, np.inf
    ridge = _RIDGE * max(float(np.trace(Q)) / n, np.finfo(float).tiny)
    for _ in range(max_steps):
        margins = Q @ a
        gap = relative_gap(a, margins, box)
        if gap < best_gap:
            best, best_gap = a, gap
        if gap <= tol:
            break
        room = bound - a
        A = Q.copy()
        A[np.diag_indices(n)] += lower / a + upper / room + ridge
        try:
            factor = cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            break
        residual = margins - 1.0 - lower + upper
        barrier = (lower @ a + upper @ room) / (2 * n)
        lower_target, upper_target = -lower * a, -upper * room
        step_a = cho_solve(factor, lower_target / a - upper_target / room - residual, check_finite=False)
        step_lower, step_upper = (lower_target - lower * step_a) / a, (upper_target + upper * step_a) / room
        step = _longest((a, step_a), (room, -step_a), (lower, step_lower), (upper, step_upper))
        ahead = (lower + step * step_lower) @ (a + step * step_a) + (upper + step * step_upper) @ (room - step * step_a)
        target = barrier * (ahead / (2 * n) / barrier) ** 3
        lower_target = target - lower * a - step_lower * step_a
        upper_target = target - upper * room + step_upper * step_a
        step_a = cho_solve(factor, lower_target / a - upper_target / room - residual, check_finite=False)
        step_lower, step_upper = (lower_target - lower * step_a) / a, (upper_target + upper * step_a) / room
        step = min(
            1.0,
            _TO_THE_BOUNDARY * _longest((a, step_a), (room, -step_a), (lower, step_lower), (upper, step_upper)),
        )
        a = np.clip(a + step * step_a, _EDGE * bound, (1.0 - _EDGE) * bound)
        lower, upper = lower + step * step_lower, upper + step * step_upper
    snapped = _snapped(best, Q @ best, bound)
    return snapped if relative_gap(snapped, Q @ snapped, box) <= max(tol, best_gap) else best


def _snapped(duals: Array, margins: Array, bound: Array) -> Array:
    """Set duals that are within rounding of a bound to this bound, if their margins agree."""
    duals = np.where((duals < _SNAP * bound) & (margins > 1.0), 0.0, duals)
    return np.where((duals > (1.0 - _SNAP) * bound) & (margins < 1.0), bound, duals)


def _longest(*pairs: tuple[Array, Array]) -> float:
    """The longest step, at most about 1, that keeps all values positive."""
    longest = 1.0 / _TO_THE_BOUNDARY
    for value, change in pairs:
        down = change < 0
        if down.any():
            longest = min(longest, float((-value[down] / change[down]).min()))
    return longest
