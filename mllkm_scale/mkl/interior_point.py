"""The fast weight solver: a primal-dual interior point on the restricted MKL problem (F8).

    min  -1'a + t    s.t.  1/2 q_m(a) + s_m = t  (multiplier beta_m),   s >= 0,   0 <= a <= C

Every step factors  blockdiag_k(Q_k(beta) + diag) + U diag(beta / s) U'  by one Cholesky per class and one Schur
complement of the size of the active set. Mehrotra's predictor and corrector; the corrector carries the second-order
term 1/2 q_m(da) of the quadratic rows, and t is lifted after each step so that no row is violated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky, solve_triangular

from mllkm_scale.mkl.restricted import RestrictedProblem, Solution

__all__ = ["Iterate", "interior_point"]

Array = NDArray[Any]
_TO_THE_BOUNDARY = 0.995  # share of the longest feasible step that is taken
_EDGE = 1e-14  # of C: the least distance of a dual from 0 and from C
_NEGLIGIBLE = 1e-8  # of the largest weight: a kernel below it is left out of the Gram, not of the rows
_PANEL = 384  # columns of a Gram that one task makes
_RIDGE = 1e-10  # of the mean diagonal, added to each Gram: features may be linearly dependent


@dataclass(frozen=True)
class Iterate:
    """A strictly interior point; also a search direction."""

    duals: Array  # a
    lower: Array  # multipliers of a >= 0
    upper: Array  # multipliers of a <= C
    weights: Array  # beta, multipliers of the rows
    slacks: Array  # s
    level: float  # t

    def moved(self, step: float, by: Iterate) -> Iterate:
        return Iterate(
            self.duals + step * by.duals,
            self.lower + step * by.lower,
            self.upper + step * by.upper,
            self.weights + step * by.weights,
            self.slacks + step * by.slacks,
            self.level + step * by.level,
        )


def interior_point(
    problem: RestrictedProblem,
    tol: float,
    *,
    max_steps: int = 80,
    start: Iterate | None = None,
    poll: Callable[[], None] = lambda: None,
) -> Solution:
    """Solve the restricted problem to the relative gap `tol` (sensible down to 1e-7)."""
    point = start or cold_start(problem)
    U, q = problem.moments(point.duals)
    best: Solution | None = None
    for step_number in range(max_steps + 1):
        poll()
        weights = point.weights / point.weights.sum()
        objective = problem.objective(point.duals, weights, U, q)
        if best is None or objective.gap < best.objective.gap:
            best = Solution(weights, point.duals, objective, step_number)
        if objective.gap <= tol or step_number == max_steps:
            break
        try:
            newton = Newton(problem, point, U, q)
        except LinAlgError:  # rounding has eaten the positive definiteness: the best point seen stands
            break
        direction = newton.corrected_direction()
        step = min(1.0, _TO_THE_BOUNDARY * longest_step(point, direction, problem.C))
        point = inside(point.moved(step, direction), problem.C)
        U, q = problem.moments(point.duals)
        point = lifted(point, q)
    assert best is not None
    return best


def cold_start(problem: RestrictedProblem) -> Iterate:
    """All duals equal, all weights equal, and a level well above every row."""
    n, C = problem.n_duals, problem.C
    _, q = problem.moments(np.ones(n))
    largest = float(q.max())
    duals = np.full(n, n / largest if 0.5 * C * largest > n else 0.5 * C)
    _, q = problem.moments(duals)
    level = 0.5 * float(q.max()) + 0.5 * C * len(q)
    ones = np.ones(n)
    return Iterate(duals, ones, ones, np.full(len(q), 1.0 / len(q)), level - 0.5 * q, level)


def inside(point: Iterate, C: float) -> Iterate:
    """Off the walls of the box, which rounding may have put a dual onto."""
    return replace(point, duals=np.clip(point.duals, _EDGE * C, (1.0 - _EDGE) * C))


def lifted(point: Iterate, q: Array) -> Iterate:
    """Raise t until no row is violated; no slack shrinks by it."""
    level = point.level + max(0.0, float((0.5 * q + point.slacks - point.level).max()))
    slacks = np.maximum(point.slacks, level - 0.5 * q)
    return replace(point, slacks=slacks, level=level)


def longest_step(point: Iterate, direction: Iterate, C: float) -> float:
    """The longest step, at most 1, that keeps every positive quantity positive."""
    positive = (
        (point.duals, direction.duals),
        (C - point.duals, -direction.duals),
        (point.slacks, direction.slacks),
        (point.lower, direction.lower),
        (point.upper, direction.upper),
        (point.weights, direction.weights),
    )
    return min(_ratio(value, change) for value, change in positive)


def _ratio(value: Array, change: Array) -> float:
    down = change < 0
    return min(1.0, float((-value[down] / change[down]).min())) if down.any() else 1.0


def _panels(n: int) -> list[slice]:
    """All columns at once, or panels of them where there are so many that threads should share the work."""
    if n <= 2 * _PANEL:
        return [slice(None)]
    return [slice(start, min(start + _PANEL, n)) for start in range(0, n, _PANEL)]


class Newton:
    """The linearised optimality conditions at a point, factored once and solved for several right-hand sides."""

    def __init__(self, problem: RestrictedProblem, point: Iterate, U: Array, q: Array) -> None:
        self.problem, self.point, self.U, self.q = problem, point, U, q
        self.room = problem.C - point.duals
        self.ratio = point.weights / point.slacks
        diagonal = point.lower / point.duals + point.upper / self.room
        self.factors = self._factor(diagonal)
        self.Y = self._forward(U)
        schur = self._self_product(self.Y)
        schur[np.diag_indices_from(schur)] += 1.0 / self.ratio
        self.schur = cho_factor(schur, lower=True, overwrite_a=True, check_finite=False)
        self.U_ratio = U @ self.ratio
        self.inverse_U_ratio = self.inverse(self.U_ratio)
        self.curvature = self.ratio.sum() - self.U_ratio @ self.inverse_U_ratio
        self.residual_duals = U @ point.weights - 1.0 - point.lower + point.upper
        self.residual_level = 1.0 - point.weights.sum()
        self.barrier = self._complementarity(point) / (len(q) + 2 * len(U))

    def _factor(self, diagonal: Array) -> list[Array]:
        """Cholesky factors of A_k = Q_k(beta) + diag: the Grams in panels of columns, then one factor a class.

        Only what is on and below the diagonal is made, up to the height of a panel.
        """
        problem, weights = self.problem, self.point.weights
        weights = np.where(weights < _NEGLIGIBLE * weights.max(), 0.0, weights)
        grams = [np.empty((len(block.signs),) * 2, order="F") for block in problem.blocks]
        panels = [(k, columns) for k, Q in enumerate(grams) for columns in _panels(len(Q))]

        def fill(task: tuple[int, slice]) -> None:
            k, columns = task
            rows = slice(columns.start, None)
            grams[k][rows, columns] = problem.blocks[k].gram(weights, columns, rows)

        def factor(k: int) -> Array:
            Q = grams[k]
            Q[np.diag_indices_from(Q)] += diagonal[problem.slices[k]] + _RIDGE * np.trace(Q) / len(Q)
            return np.asarray(cholesky(Q, lower=True, overwrite_a=True, check_finite=False))

        problem.team.run(fill, panels)
        return problem.team.run(factor, range(len(grams)))

    def _forward(self, U: Array) -> Array:
        """Y_k = L_k^-1 U_k."""
        slices, Y = self.problem.slices, np.empty_like(U)

        def solve(task: tuple[int, slice]) -> None:
            k, columns = task
            right = U[slices[k], columns]
            Y[slices[k], columns] = solve_triangular(self.factors[k], right, lower=True, check_finite=False)

        panels = _panels(U.shape[1])
        self.problem.team.run(solve, [(k, columns) for k in range(len(slices)) for columns in panels])
        return Y

    def _self_product(self, Y: Array) -> Array:
        """Y' Y, summed over the classes in their order."""
        total = np.zeros((Y.shape[1], Y.shape[1]))
        for part in self.problem.team.map(lambda rows: Y[rows].T @ Y[rows], self.problem.slices):
            total += part
        return total

    def inverse(self, right: Array) -> Array:
        """(blockdiag A_k + U diag(beta / s) U')^-1 applied to a vector, by Woodbury."""
        z = np.empty_like(right)
        for L, part in zip(self.factors, self.problem.slices, strict=True):
            z[part] = solve_triangular(L, right[part], lower=True, check_finite=False)
        z -= self.Y @ cho_solve(self.schur, self.Y.T @ z, check_finite=False)
        for L, part in zip(self.factors, self.problem.slices, strict=True):
            z[part] = solve_triangular(L, z[part], lower=True, trans=1, check_finite=False)
        return z

    def direction(self, target: float, predicted: Iterate | None = None, step: float = 0.0) -> Iterate:
        """Newton direction towards complementarity `target`; second order if a predicted direction is given."""
        p = self.point
        row = 0.5 * self.q + p.slacks - p.level
        row_target = target - p.weights * p.slacks
        lower_target = target - p.lower * p.duals
        upper_target = target - p.upper * self.room
        if predicted is not None:
            bend = self.problem.forms(predicted.duals)
            row = row + 0.5 * step**2 * bend
            row_target = row_target - step**2 * predicted.weights * predicted.slacks
            lower_target = lower_target - step**2 * predicted.lower * predicted.duals
            upper_target = upper_target + step**2 * predicted.upper * predicted.duals
        e = (row_target + p.weights * row) / p.slacks
        x = self.inverse(lower_target / p.duals - upper_target / self.room - self.residual_duals - self.U @ e)
        level = (e.sum() - self.residual_level + self.U_ratio @ x) / self.curvature
        duals = x + self.inverse_U_ratio * level
        rows = self.U.T @ duals
        return Iterate(
            duals,
            (lower_target - p.lower * duals) / p.duals,
            (upper_target + p.upper * duals) / self.room,
            e + self.ratio * (rows - level),
            level - rows - row,
            float(level),
        )

    def corrected_direction(self) -> Iterate:
        """Mehrotra: look ahead along the affine direction, then centre by how far it got."""
        predicted = self.direction(0.0)
        step = longest_step(self.point, predicted, self.problem.C)
        ahead = self._complementarity(self.point.moved(step, predicted)) / (len(self.q) + 2 * len(self.U))
        centring = max(1e-6, (ahead / self.barrier) ** 3)
        return self.direction(centring * self.barrier, predicted, step)

    def _complementarity(self, point: Iterate) -> float:
        box = point.lower @ point.duals + point.upper @ (self.problem.C - point.duals)
        return float(point.weights @ point.slacks + box)
