"""What the first-order weight solvers ask of the SVMs: J(beta) and its gradient -q / 2, for all classes together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.mkl.restricted import Objective
from mllkm_scale.solver.svm import SVM, EpochLimits, SVMSolution
from mllkm_scale.team import Team

__all__ = ["Evaluation", "Oracle"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Evaluation:
    """The SVMs solved at given weights: J = sum_k (1'alpha_k - 1/2 sum_m beta_m q_m), duals and forms q."""

    weights: Array
    duals: list[Array]
    forms: Array
    value: float
    objective: Objective
    margins: list[Array]
    epochs: int


class Oracle:
    """SVMs of all classes, sharing the weights; each evaluation starts from the duals of the one before.

    `forms(k, duals)` are the quadratic forms of all active kernels for class k.
    """

    def __init__(
        self,
        svms: Sequence[SVM],
        forms: Callable[[int, Array], Array],
        C: float,
        max_epochs: int = 1000,
        team: Team | None = None,
    ) -> None:
        self._svms, self._forms, self.C, self._max_epochs = list(svms), forms, float(C), max_epochs
        self._team = team or Team()
        self.duals = [np.zeros(len(svm.signs)) for svm in svms]
        self.evaluations = 0

    def evaluate(
        self, weights: Array, tol: float, least_epochs: int = 0, start: Sequence[Array] | None = None
    ) -> Evaluation:
        """Solve the SVMs to the relative gap `tol`, in so many epochs at least, and price every active kernel.

        They start from the duals of the evaluation before, or from those given; with an infinite `tol` these stay.
        """
        start = self.duals if start is None else start
        limits = EpochLimits(tol, self._max_epochs, least_epochs)

        def solve(k: int) -> tuple[SVMSolution, Array]:
            solution = self._svms[k].solve(weights, start[k], limits)
            return solution, self._forms(k, solution.duals)

        solved = self._team.run(solve, range(len(self._svms)))
        solutions = [solution for solution, _ in solved]
        self.duals = [solution.duals.copy() for solution in solutions]
        self.evaluations += 1
        q = np.sum([forms for _, forms in solved], axis=0)
        total = float(sum(duals.sum() for duals in self.duals))
        hinge = sum(float(np.maximum(0.0, 1.0 - s.margins).sum()) for s in solutions)
        primal = 0.5 * float(weights @ np.sqrt(q)) ** 2 + self.C * hinge
        return Evaluation(
            weights,
            [solution.duals for solution in solutions],
            q,
            total - 0.5 * float(weights @ q),
            Objective(primal, total - 0.5 * float(q.max())),
            [s.margins for s in solutions],
            sum(s.epochs for s in solutions),
        )
