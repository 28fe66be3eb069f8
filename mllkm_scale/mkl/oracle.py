"""J(beta) and its gradient -q / 2 from the SVMs of all classes, for the first-order weight solvers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.threads import Threads
from mllkm_scale.mkl.certificate import Objective, dual_value, primal_value
from mllkm_scale.solver.box import Box
from mllkm_scale.solver.svm import SVM, EpochLimits

__all__ = ["Evaluation", "Oracle"]


@dataclass(frozen=True)
class Evaluation:
    """The SVMs solved at given weights: J = sum_k (1'alpha_k - 1/2 alpha_k' Q(beta) alpha_k), duals and margins.

    The forms q of all active kernels, and P and D, are computed when they are first used: a line search needs only J.
    """

    weights: Array
    duals: list[Array]
    margins: list[Array]
    epochs: int
    boxes: list[Box]
    price: Callable[[], Array] = field(repr=False)

    @property
    def total(self) -> float:
        """Sum of all duals."""
        return float(sum(duals.sum() for duals in self.duals))

    @cached_property
    def value(self) -> float:
        """J(beta)."""
        return self.total - 0.5 * sum(float(a @ margins) for a, margins in zip(self.duals, self.margins, strict=True))

    @cached_property
    def forms(self) -> Array:
        """q_m summed over the classes, shape (s,)."""
        return self.price()

    @cached_property
    def objective(self) -> Objective:
        """P and D of the restricted problem."""
        hinge = sum(box.hinge(margins) for box, margins in zip(self.boxes, self.margins, strict=True))
        primal = primal_value(self.weights, self.forms, self.boxes[0].C * hinge)
        return Objective(primal, dual_value(self.total, float(self.forms.max())))


class Oracle:
    """SVMs of all classes with shared weights; each evaluation starts from the duals of the one before.

    `forms(k, duals)` are the quadratic forms of all active kernels for class k.
    """

    def __init__(
        self,
        svms: Sequence[SVM],
        forms: Callable[[int, Array], Array],
        max_epochs: int = 1000,
        threads: Threads | None = None,
    ) -> None:
        self._svms, self._forms, self._max_epochs = list(svms), forms, max_epochs
        self._threads = threads or Threads()
        self.boxes = [svm.box for svm in svms]
        self.duals = [np.zeros(len(svm.signs)) for svm in svms]
        self.evaluations = 0

    def evaluate(
        self, weights: Array, tol: float, least_epochs: int = 0, start: Sequence[Array] | None = None
    ) -> Evaluation:
        """Solve the SVMs to the relative gap `tol`, with at least this number of epochs.

        They start from the duals of the previous evaluation, or from the given ones; an infinite `tol` leaves these
        unchanged.
        """
        start = self.duals if start is None else start
        limits = EpochLimits(tol, self._max_epochs, least_epochs)
        classes = range(len(self._svms))
        solutions = self._threads.run(lambda k: self._svms[k].solve(weights, start[k], limits), classes)
        duals = [solution.duals for solution in solutions]
        self.duals = [a.copy() for a in duals]
        self.evaluations += 1

        def price() -> Array:
            return np.sum(self._threads.run(lambda k: self._forms(k, duals[k]), classes), axis=0)

        margins, epochs = [s.margins for s in solutions], sum(s.epochs for s in solutions)
        return Evaluation(weights, duals, margins, epochs, self.boxes, price)
