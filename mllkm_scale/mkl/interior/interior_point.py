"""The second-order weight solver: a primal-dual interior point method for the restricted MKL problem (F8).

    min  -1'a + t    s.t.  1/2 q_m(a) + s_m = t  (multiplier beta_m),   s >= 0,   0 <= a_i <= C_i

Every step factors  blockdiag_k(Q_k(beta) + diag) + U diag(beta / s) U'  by one Cholesky per class and one Schur
complement of the size of the active set. The direction is Mehrotra's, whose corrector carries the second-order term 1/2
q_m(da) of the quadratic rows, followed by Gondzio's correctors: solving for more right-hand sides is cheap compared
with the factorisation, and makes the step longer. t is lifted after each step so that no row is violated.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import LinAlgError

from mllkm_scale.base.arrays import Array
from mllkm_scale.mkl.interior.iterate import (
    Iterate,
    Products,
    cold_start,
    inside,
    lifted,
    longest_step,
    purified,
    warm_start,
)
from mllkm_scale.mkl.interior.newton_system import NewtonSystem
from mllkm_scale.mkl.restricted import RestrictedProblem, Solution, Vectors

__all__ = ["interior_point"]

_TO_THE_BOUNDARY = 0.995  # share of the longest feasible step that is taken
_CORRECTORS = 5  # at most, after that of Mehrotra
_LONGER, _FURTHER = 1.3, 0.2  # a corrector aims at a step that is longer by this factor, or by this amount
_GAIN = 0.02  # a corrector must lengthen the step by this amount
_LEAST, _MOST = 0.1, 10.0  # products outside these multiples of the target are corrected
_DOUBTFUL = np.geomspace(1.0, 1e-4, 13)  # weights below these shares of their slacks are left out, if the gap allows
_NEGLIGIBLE = (1e-3, 1e-4, 1e-6, 1e-8)  # duals below these shares of the largest are left out, if the gap allows
_EXPONENT = 3  # of the share of the products that the affine direction leaves


def interior_point(
    problem: RestrictedProblem,
    tol: float,
    *,
    pure_tol: float = 0.0,
    max_steps: int = 80,
    near: tuple[Array, Array] | None = None,
    poll: Callable[[], None] = lambda: None,
) -> Solution:
    """Solve the restricted problem to the relative gap `tol` (sensible down to 1e-7).

    Parameters
    ----------
    pure_tol : float
        Kernels with vanishing weights and samples with small duals are removed as long as the gap is at most this, or
        `tol` if that is larger.
    near : (weights, duals), optional
        The solution of a problem with fewer kernels or samples, with zeros for new ones. A start from there takes fewer
        steps. If it fails, a cold start follows.
    poll : callable
        Called before each step; it may raise to stop.
    """
    pure_tol = max(tol, pure_tol)
    found: list[Solution] = []
    if near is not None and near[0].any() and near[1].any():
        found.append(_follow(problem, warm_start(problem, *near), tol, pure_tol, max_steps, poll))
    if not found or found[0].objective.gap > pure_tol:
        found.append(_follow(problem, cold_start(problem), tol, pure_tol, max_steps, poll))
    return min(found, key=lambda solution: solution.objective.gap)


def _follow(
    problem: RestrictedProblem,
    point: Iterate,
    tol: float,
    pure_tol: float,
    max_steps: int,
    poll: Callable[[], None],
) -> Solution:
    """Follow the path from a point to the solution, and return the best point."""
    V, q = problem.moments(point.duals)
    best: Solution | None = None
    for step_number in range(max_steps + 1):
        poll()
        solution = _evaluated(problem, point.weights, point.duals, (V, q), step_number)
        if best is None or solution.objective.gap < best.objective.gap:
            best = solution
        if solution.objective.gap <= tol:
            return _thinned(problem, _purified(problem, point, (V, q), pure_tol, solution), pure_tol)
        if step_number == max_steps:
            break
        try:
            direction, step = Newton(problem, point, V, q).centred_direction()
        except LinAlgError:  # rounding destroyed positive definiteness: return the best point
            break
        point = inside(point.moved(min(1.0, _TO_THE_BOUNDARY * step), direction), problem.upper)
        V, q = problem.moments(point.duals)
        point = lifted(point, q)
    assert best is not None
    return best


def _purified(
    problem: RestrictedProblem, point: Iterate, moments: tuple[Vectors, Array], tol: float, solution: Solution
) -> Solution:
    """The solution without kernels of vanishing weight, as far as the tolerance allows."""
    for share in _DOUBTFUL:
        weights = purified(point, moments[1], share)
        pure = _evaluated(problem, weights, point.duals, moments, solution.steps)
        if pure.objective.gap <= tol:
            return pure
    return solution


def _thinned(problem: RestrictedProblem, solution: Solution, tol: float) -> Solution:
    """The solution without its smallest duals, as far as the tolerance allows.

    Small duals are not always negligible. A narrow kernel of unit trace is large where it is nonzero, so small duals
    together may keep many samples at the margin, each of which costs C.
    """
    for share in _NEGLIGIBLE:
        duals = np.where(solution.duals < share * solution.duals.max(), 0.0, solution.duals)
        thin = _evaluated(problem, solution.weights, duals, problem.moments(duals), solution.steps)
        if thin.objective.gap <= tol:
            return thin
    return solution


def _evaluated(
    problem: RestrictedProblem, weights: Array, duals: Array, moments: tuple[Vectors, Array], steps: int
) -> Solution:
    weights = weights / weights.sum()
    return Solution(weights, duals, problem.objective(duals, weights, *moments), steps)


class Newton:
    """The linearised optimality conditions at a point, factored once and solved for several right-hand sides."""

    def __init__(self, problem: RestrictedProblem, point: Iterate, V: Vectors, q: Array) -> None:
        self.problem, self.point, self.q = problem, point, q
        self.room = problem.upper - point.duals
        self.ratio = point.weights / point.slacks
        self.residual_duals = problem.responses(V, point.weights) - 1.0 - point.lower + point.upper
        diagonal = point.lower / point.duals + point.upper / self.room
        self.system = NewtonSystem(problem, point.weights, diagonal, V, self.ratio)
        self.U_ratio = self.system.U_times(self.ratio)
        self.inverse_U_ratio = self.system.solve(self.U_ratio)
        self.curvature = self.ratio.sum() - self.U_ratio @ self.inverse_U_ratio
        self.residual_level = 1.0 - point.weights.sum()
        self.products = point.products(problem.upper)
        self.barrier = self.products.sum() / len(self.products)

    def direction(self, row: Array, targets: Products, *, residuals: bool = True) -> Iterate:
        """The direction that, to first order, brings the residuals `row` of the rows to zero and changes the products
        by `targets`."""
        p = self.point
        e = (targets.rows + p.weights * row) / p.slacks
        right = targets.lower / p.duals - targets.upper / self.room - self.system.U_times(e)
        x = self.system.solve(right - self.residual_duals if residuals else right, roughly=not residuals)
        level = (e.sum() - self.residual_level * residuals + self.U_ratio @ x) / self.curvature
        duals = x + self.inverse_U_ratio * level
        rows = self.system.times_U(duals)
        return Iterate(
            duals,
            (targets.lower - p.lower * duals) / p.duals,
            (targets.upper + p.upper * duals) / self.room,
            e + self.ratio * (rows - level),
            level - rows - row,
            float(level),
        )

    def centred_direction(self) -> tuple[Iterate, float]:
        """Mehrotra's direction with further centring while this makes the step longer; and the longest step along
        it."""
        direction, target = self.corrected_direction()
        step = longest_step(self.point, direction, self.problem.upper)
        nothing = np.zeros_like(self.q)
        for _ in range(_CORRECTORS):
            if step >= _TO_THE_BOUNDARY:
                break
            aim = self.point.moved(min(1.0, max(_LONGER * step, step + _FURTHER)), direction)
            outliers = _back_to(target, aim.products(self.problem.upper))
            longer = direction.moved(1.0, self.direction(nothing, outliers, residuals=False))
            reached = longest_step(self.point, longer, self.problem.upper)
            if reached < step + _GAIN:
                break
            direction, step = longer, reached
        return direction, step

    def corrected_direction(self) -> tuple[Iterate, float]:
        """Mehrotra's direction: the affine step determines the centring; and the target of the products."""
        p, now = self.point, self.products
        row = 0.5 * self.q + p.slacks - p.level
        predicted = self.direction(row, Products(-now.rows, -now.lower, -now.upper))
        step = longest_step(p, predicted, self.problem.upper)
        ahead = p.moved(step, predicted).products(self.problem.upper).sum() / len(now)
        target = max(1e-6, (ahead / self.barrier) ** _EXPONENT) * self.barrier
        bend = 0.5 * step**2 * self.problem.forms(predicted.duals)
        targets = Products(
            target - now.rows - step**2 * predicted.weights * predicted.slacks,
            target - now.lower - step**2 * predicted.lower * predicted.duals,
            target - now.upper + step**2 * predicted.upper * predicted.duals,
        )
        return self.direction(row + bend, targets), target


def _back_to(target: float, products: Products) -> Products:
    """The differences of outlying products to their range around the target, bounded from below."""

    def lack(values: Array) -> Array:
        return np.maximum(np.clip(values, _LEAST * target, _MOST * target) - values, -_MOST * target)

    return Products(lack(products.rows), lack(products.lower), lack(products.upper))
