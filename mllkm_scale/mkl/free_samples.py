"""MKL on many working samples of which most are at a bound: the interior point on the others, with these held (F8).

SVMs at the weights of before tell which samples are well within their bound: alpha = 0 beyond the margin, or alpha = C
within it. With these held, the interior point solves for the weights and the duals of the free samples. Then all
margins are looked at, and samples that were held on the wrong side are set free, until none is. Noisy data have several
times more samples at C than free ones, and the cost of the factors is the cube of their number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.mkl.oracle import Evaluation, Oracle
from mllkm_scale.mkl.restricted import Solution

__all__ = ["JointSolver", "free_samples_mkl"]

Array = NDArray[Any]

_HELD = 0.05  # a sample at a bound is held if its margin is so far on the right side
_SVM_TOL = 0.03  # gap of the SVMs that only tell what is to be held
_LEAST_EPOCHS = 5  # of them, after which duals are at their bounds, and not near
_MOST_STEPS = 30


class JointSolver(Protocol):
    """Solves for weights and duals of the free samples: masks of them, and duals of all, which are changed in place.

    Returns the weights, or None if so many free samples do not fit the memory.
    """

    def __call__(self, weights: Array, duals: list[Array], free: list[Array], tol: float) -> Array | None: ...


def free_samples_mkl(
    oracle: Oracle, joint: JointSolver, weights: Array, tol: float, *, poll: Callable[[], None] = lambda: None
) -> Solution:
    """From the given weights and the duals of the oracle to the relative gap `tol`, or while the free samples fit."""
    weights = weights / weights.sum() if weights.any() else np.full(len(weights), 1.0 / len(weights))
    now = oracle.evaluate(weights, max(_SVM_TOL, tol), _LEAST_EPOCHS)
    free = _not_held(now, oracle.C)
    best, steps = now, 0
    while best.objective.gap > tol and steps < _MOST_STEPS:
        poll()
        following = joint(weights, oracle.duals, free, 0.3 * tol)
        if following is None:
            break
        weights, steps = following, steps + 1
        now = oracle.evaluate(weights, np.inf)
        best = min(best, now, key=lambda evaluation: evaluation.objective.gap)
        wrong = _on_the_wrong_side(now, free)
        if not any(mask.any() for mask in wrong):
            break
        free = [mask | more for mask, more in zip(free, wrong, strict=True)]
    return Solution(best.weights, np.concatenate(best.duals), best.objective, steps)


def _not_held(now: Evaluation, C: float) -> list[Array]:
    """Masks of the samples that are free at first."""
    return [
        ~(((duals <= 0.0) & (margins > 1.0 + _HELD)) | ((duals >= C) & (margins < 1.0 - _HELD)))
        for duals, margins in zip(now.duals, now.margins, strict=True)
    ]


def _on_the_wrong_side(now: Evaluation, free: list[Array]) -> list[Array]:
    """Masks of the samples that are held at a bound, but would leave it."""
    return [
        ~mask & np.where(duals > 0.0, margins > 1.0, margins < 1.0)
        for mask, duals, margins in zip(free, now.duals, now.margins, strict=True)
    ]
