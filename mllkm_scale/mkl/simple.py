"""SimpleMKL (Rakotomamonjy et al. 2008): reduced gradient on the simplex of weights, the reference weight solver.

    J(beta) = max over alpha of  1'alpha - 1/2 sum_m beta_m q_m(alpha),     dJ/dbeta_m = -q_m / 2

It stops at the relative duality gap of the restricted problem.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.mkl.oracle import Evaluation, Oracle
from mllkm_scale.mkl.restricted import Solution

__all__ = ["simple_mkl"]

_GOLDEN = 0.5 * (np.sqrt(5.0) - 1.0)


def simple_mkl(
    oracle: Oracle,
    weights: Array,
    tol: float,
    *,
    max_steps: int = 500,
    poll: Callable[[], None] = lambda: None,
) -> Solution:
    """Minimise J over the simplex, from the given weights, to the relative gap `tol`."""
    svm_tol = 0.1 * tol
    now = oracle.evaluate(weights, svm_tol)
    for step in range(max_steps + 1):
        poll()
        if now.objective.gap <= tol or step == max_steps:
            break
        direction, pivot = descent_direction(now)
        now, moved = walk(oracle, now, direction, pivot, svm_tol)
        if not moved:
            if svm_tol <= 1e-3 * tol:
                break  # the line search sees only the tolerance of the SVMs
            svm_tol *= 0.1
            now = oracle.evaluate(now.weights, svm_tol)  # so that J is compared at one precision
    return Solution(now.weights, np.concatenate(now.duals), now.objective, step)


def descent_direction(now: Evaluation) -> tuple[Array, int]:
    """The reduced gradient: the largest weight (the pivot) takes up what the others give."""
    gradient = -0.5 * now.forms
    pivot = int(now.weights.argmax())
    reduced = gradient - gradient[pivot]
    direction = np.where((now.weights <= 0) & (reduced > 0), 0.0, -reduced)
    direction[pivot] = 0.0
    direction[pivot] = -direction.sum()
    return direction, pivot


def walk(oracle: Oracle, now: Evaluation, direction: Array, pivot: int, tol: float) -> tuple[Evaluation, bool]:
    """Follow the direction through the faces of the simplex as long as J decreases, then search the last segment."""
    moved = False
    while True:
        down = direction < 0
        if not down.any():
            return now, moved
        steps = np.full(len(direction), np.inf)
        steps[down] = -now.weights[down] / direction[down]
        first = int(steps.argmin())
        ahead = np.maximum(now.weights + steps[first] * direction, 0.0)
        ahead[first] = 0.0
        ahead /= ahead.sum()
        at_face = oracle.evaluate(ahead, tol)
        if not falls(now, at_face, direction, tol):
            found = line_search(oracle, now, direction, float(steps[first]), tol)
            return (found, True) if found.value < now.value else (now, moved)
        now, moved = at_face, True
        direction = direction.copy()
        direction[pivot] += direction[first]
        direction[first] = 0.0


def falls(now: Evaluation, ahead: Evaluation, direction: Array, tol: float) -> bool:
    """Whether J decreases up to `ahead`: by its values, or by its slope there if the values are too close.

    A face can be so near that J hardly changes. J is convex, so it decreases up to the face if its slope there is
    negative.
    """
    if abs(ahead.value - now.value) > tol * abs(now.value):
        return ahead.value < now.value
    return float(direction @ ahead.forms) > 0.0


def line_search(oracle: Oracle, now: Evaluation, direction: Array, longest: float, tol: float) -> Evaluation:
    """Golden section on J, which is convex, over the segment (0, longest)."""

    def at(step: float) -> Evaluation:
        weights = np.maximum(now.weights + step * direction, 0.0)
        return oracle.evaluate(weights / weights.sum(), tol)

    low, high = 0.0, longest
    left, right = at(high - _GOLDEN * (high - low)), at(low + _GOLDEN * (high - low))
    best = min(left, right, key=lambda evaluation: evaluation.value)
    while high - low > 1e-2 * high and high > 1e-9 * longest:
        if left.value < right.value:
            high, right = low + _GOLDEN * (high - low), left
            left = at(high - _GOLDEN * (high - low))
        else:
            low, left = high - _GOLDEN * (high - low), right
            right = at(low + _GOLDEN * (high - low))
        best = min(best, left, right, key=lambda evaluation: evaluation.value)
    return best
