"""The SVM of one class for given kernel weights: three forms of the same problem, one interface (F11).

    DenseSVM     the combined Gram matrix in memory
    TiledSVM     tiles of the combined Gram matrix from the bounded store
    FeatureSVM   explicit features, no Gram matrix

Each solves  max over 0 <= alpha_i <= C_i: sum alpha - 1/2 alpha' Q(beta) alpha  to a relative gap, with a warm start,
and returns y f(x) of its samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.solver.box import Box
from mllkm_scale.solver.newton import newton_finish, relative_gap
from mllkm_scale.solver.sdca import epoch_orders, sdca_epoch

__all__ = ["SVM", "DenseSVM", "EpochLimits", "SVMSolution", "resting", "run_epochs"]

_CHECK_EVERY = 5  # epochs between two evaluations of the gap
_FAR = 0.2  # beyond the margin: samples at a bound that are not visited until the next evaluation
EPOCHS_BEFORE_NEWTON = 50


@dataclass(frozen=True)
class SVMSolution:
    """Duals (n,), margins y f(x) (n,), and the relative gap reached."""

    duals: Array
    margins: Array
    gap: float
    epochs: int


@dataclass(frozen=True)
class EpochLimits:
    """The stopping rule of an SVM: a relative gap, a largest and a smallest number of epochs."""

    tol: float
    most: int = 1000
    least: int = 0


class SVM(Protocol):
    """One class of the restricted problem, for any weights."""

    signs: Array
    box: Box

    def solve(self, weights: Array, duals: Array, limits: EpochLimits) -> SVMSolution: ...


def run_epochs(
    epoch: Callable[[Array], object],
    state: Callable[[], tuple[Array, Array]],
    C: float | Box,
    n: int,
    limits: EpochLimits,
    key: tuple[int, ...],
) -> SVMSolution:
    """Run epochs until the gap is small enough; the gap is evaluated every few epochs, over all samples.

    Between two evaluations, samples at a bound whose margin is far on the right side of it are skipped (shrinking).
    """
    box, done = Box.of(C, n), 0
    upper = box.upper
    while True:
        duals, margins = state()
        gap = relative_gap(duals, margins, box)
        if (gap <= limits.tol and done >= limits.least) or done >= limits.most:
            return SVMSolution(duals.copy(), margins, gap, done)
        count = min(_CHECK_EVERY, limits.most - done)
        rest = resting(duals, margins, upper)
        for order in epoch_orders(n, count, *key, done):
            epoch(order[~rest[order]])
        done += count


def resting(duals: Array, margins: Array, upper: Array) -> Array:
    """Mask of the samples at a bound, on the right side of it by far, which epochs need not visit."""
    return np.asarray(((duals <= 0.0) & (margins > 1.0 + _FAR)) | ((duals >= upper) & (margins < 1.0 - _FAR)))


class DenseSVM:
    """SDCA on the combined Gram matrix of all samples, in memory; Newton's method finishes what SDCA does not."""

    def __init__(
        self,
        gram: Callable[[Array], Array],
        signs: Array,
        C: float | Box,
        key: tuple[int, ...] = (0,),
        *,
        newton: bool = True,
    ) -> None:
        self.signs, self.box = signs, Box.of(C, len(signs))
        self._gram, self._key, self._newton = gram, key, newton

    def solve(self, weights: Array, duals: Array, limits: EpochLimits) -> SVMSolution:
        K = self._gram(weights)
        duals = duals.astype(np.float64, copy=True)
        outputs, upper = K @ (duals * self.signs), self.box.upper

        def epoch(order: Array) -> float:
            return float(sdca_epoch(K, self.signs, upper, order, duals, outputs))

        def state() -> tuple[Array, Array]:
            return duals, self.signs * outputs

        before_newton = replace(limits, most=min(limits.most, EPOCHS_BEFORE_NEWTON)) if self._newton else limits
        solution = run_epochs(epoch, state, self.box, len(duals), before_newton, self._key)
        if solution.gap <= limits.tol or not self._newton:
            return solution
        exact = newton_finish(K * np.outer(self.signs, self.signs), self.box, limits.tol)
        margins = self.signs * (K @ (exact * self.signs))
        gap = relative_gap(exact, margins, self.box)
        return SVMSolution(exact, margins, gap, solution.epochs) if gap < solution.gap else solution
