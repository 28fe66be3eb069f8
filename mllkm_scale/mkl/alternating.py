"""First-order weights: SVMs at fixed weights, then the closed form  beta_m ~ beta_m sqrt(q_m)^omega  (F8).

It needs only the duals of the SVMs, so it works on dense Gram matrices, on tiles and on explicit features. It is used
if the working set is too large for the factors of the interior point method.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.mkl.oracle import Oracle
from mllkm_scale.mkl.restricted import Solution
from mllkm_scale.mkl.reweighing import Reweighing

__all__ = ["alternating_mkl"]


_SMALL = 1e-4  # of the largest weight


def alternating_mkl(
    oracle: Oracle,
    weights: Array,
    tol: float,
    *,
    max_steps: int = 300,
    poll: Callable[[], None] = lambda: None,
) -> Solution:
    """Alternate from the given weights, made positive, to the relative gap `tol`; returns the best pair seen."""
    weights = weights / weights.sum() if weights.sum() > 0 else np.zeros_like(weights)
    weights = 0.5 * weights + (0.5 if weights.any() else 1.0) / len(weights)
    best: Solution | None = None
    reweigh = Reweighing(len(weights))
    for step in range(max_steps + 1):
        poll()
        now = oracle.evaluate(weights, 0.3 * tol)
        if best is None or now.objective.gap < best.objective.gap:
            best = Solution(weights, np.concatenate(now.duals), now.objective, step)
        if best.objective.gap <= tol:
            break
        weights = reweigh(weights, now.forms)
    assert best is not None
    return _without_small_weights(oracle, best, tol)


def _without_small_weights(oracle: Oracle, solution: Solution, tol: float) -> Solution:
    """The solution without weights that the closed form would eventually bring to zero, if the gap allows."""
    weights = np.where(solution.weights < _SMALL * solution.weights.max(), 0.0, solution.weights)
    weights = weights / weights.sum()
    sizes = [len(part) for part in oracle.duals]
    start = np.split(solution.duals, np.cumsum(sizes)[:-1])
    now = oracle.evaluate(weights, np.inf, start=start)
    if now.objective.gap > max(tol, solution.objective.gap):
        return solution
    return Solution(weights, np.concatenate(now.duals), now.objective, solution.steps)
