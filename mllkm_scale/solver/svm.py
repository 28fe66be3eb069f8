"""The SVM of one class for given kernel weights: three forms of the same problem, one interface (F11).

    DenseSVM     the combined Gram in memory
    TiledSVM     tiles of the combined Gram from the bounded store
    FeatureSVM   explicit features, no Gram at all

Each solves  max over 0 <= alpha <= C: sum alpha - 1/2 alpha' Q(beta) alpha  to a relative gap, warm-started, and says y f(x)
of its samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.solver.sdca import epoch_orders, sdca_epoch

__all__ = ["SVM", "DenseSVM", "SVMSolution", "relative_gap", "run_epochs"]

Array = NDArray[Any]
_CHECK_EVERY = 5  # epochs between two evaluations of the gap


@dataclass(frozen=True)
class SVMSolution:
    """Duals (n,), margins y f(x) (n,), and the relative gap reached."""

    duals: Array
    margins: Array
    gap: float
    epochs: int


class SVM(Protocol):
    """One class of the restricted problem, for any weights."""

    signs: Array

    def solve(self, weights: Array, duals: Array, tol: float, max_epochs: int) -> SVMSolution: ...


def relative_gap(duals: Array, margins: Array, C: float) -> float:
    """(P - D) / P with P = 1/2 alpha'Q alpha + C sum hinge and alpha'Q alpha = sum alpha_i y_i f(x_i)."""
    norm = float(duals @ margins)
    primal = 0.5 * norm + C * float(np.maximum(0.0, 1.0 - margins).sum())
    return (primal - float(duals.sum()) + 0.5 * norm) / primal if primal > 0 else 0.0


def run_epochs(
    epoch: Callable[[Array], float], state: Callable[[], tuple[Array, Array]], C: float, n: int, tol: float,
    max_epochs: int, key: tuple[int, ...],
) -> SVMSolution:
    """Epochs until the gap is at most `tol`; the gap is evaluated every few of them."""
    done = 0
    while True:
        duals, margins = state()
        gap = relative_gap(duals, margins, C)
        if gap <= tol or done >= max_epochs:
            return SVMSolution(duals.copy(), margins, gap, done)
        count = min(_CHECK_EVERY, max_epochs - done)
        for order in epoch_orders(n, count, *key, done):
            epoch(order)
        done += count


class DenseSVM:
    """SDCA on the combined Gram of all samples, in memory."""

    def __init__(self, gram: Callable[[Array], Array], signs: Array, C: float, key: tuple[int, ...] = (0,)) -> None:
        self.signs, self._gram, self._C, self._key = signs, gram, float(C), key

    def solve(self, weights: Array, duals: Array, tol: float, max_epochs: int) -> SVMSolution:
        K = self._gram(weights)
        duals = duals.astype(np.float64, copy=True)
        outputs = K @ (duals * self.signs)

        def epoch(order: Array) -> float:
            return float(sdca_epoch(K, self.signs, self._C, order, duals, outputs))

        def state() -> tuple[Array, Array]:
            return duals, self.signs * outputs

        return run_epochs(epoch, state, self._C, len(duals), tol, max_epochs, self._key)
