"""Points of the interior point method: starts, step lengths, and identification of vanishing weights.

min  -1'a + t    s.t.  1/2 q_m(a) + s_m = t  (multiplier beta_m),   s >= 0,   0 <= a_i <= C_i
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.mkl.restricted import RestrictedProblem

__all__ = ["Iterate", "Products", "cold_start", "inside", "lifted", "longest_step", "purified", "warm_start"]


_EDGE = 1e-14  # of C_i: the least distance of a dual from 0 and from C_i
_SPREAD = 0.1  # of the weights, and of the duals, that a warm start distributes equally


@dataclass(frozen=True)
class Products:
    """A number for each pair of complementary quantities: their product, or its target."""

    rows: Array  # beta s
    lower: Array
    upper: Array

    def sum(self) -> float:
        return float(self.rows.sum() + self.lower.sum() + self.upper.sum())

    def __len__(self) -> int:
        return len(self.rows) + len(self.lower) + len(self.upper)


@dataclass(frozen=True)
class Iterate:
    """A strictly interior point; also a search direction."""

    duals: Array  # a
    lower: Array  # multipliers of a >= 0
    upper: Array  # multipliers of a_i <= C_i
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

    def products(self, bound: Array) -> Products:
        return Products(self.weights * self.slacks, self.lower * self.duals, self.upper * (bound - self.duals))


def cold_start(problem: RestrictedProblem) -> Iterate:
    """Equal duals, as far as their box allows, equal weights, and a level well above every row."""
    n, C = problem.n_duals, float(problem.upper.max())
    q = problem.moments(np.ones(n))[1]
    largest = float(q.max())
    duals = 0.5 * problem.upper
    if 0.5 * C * largest > n:
        duals = np.minimum(duals, n / largest)
    q = problem.moments(duals)[1]
    level = 0.5 * float(q.max()) + 0.5 * C * len(q)
    even = C / problem.upper  # equal products of multipliers and slacks for all samples
    return Iterate(duals, even, even, np.full(len(q), 1.0 / len(q)), level - 0.5 * q, level)


def warm_start(problem: RestrictedProblem, weights: Array, duals: Array) -> Iterate:
    """A point near the solution of a smaller problem, but off the bounds, with balanced multipliers.

    The floors of the duals have the same sum for both signs of a class, so that they cancel. New kernels may have a far
    larger q than the others, so the duals are scaled by the best factor.
    """
    bound = problem.upper
    weights = (1.0 - _SPREAD) * weights / weights.sum() + _SPREAD / len(weights)
    floors = _balanced(problem)
    floors *= _SPREAD * duals.sum() / floors.sum()
    duals = np.minimum(np.maximum(duals, floors), (1.0 - _SPREAD) * bound)
    if problem.held is None:
        total, largest = float(duals.sum()), float(problem.forms(duals).max())
        if largest > total:  # it is zero if the samples cannot be distinguished
            duals *= total / largest
    V, q = problem.moments(duals)
    excess, product = problem.responses(V, weights) - 1.0, float(duals.mean())
    lower, upper = np.maximum(product / duals, excess), np.maximum(product / (bound - duals), -excess)
    level = 0.5 * float(q.max()) + product * len(q)
    return Iterate(duals, lower, upper, weights, level - 0.5 * q, level)


def _balanced(problem: RestrictedProblem) -> Array:
    """Duals whose sum is the same for both signs of a class."""
    duals = np.empty(problem.n_duals)
    for block, part in zip(problem.blocks, problem.slices, strict=True):
        positive = block.signs > 0
        n, n_positive = len(positive), int(positive.sum())
        duals[part] = np.where(positive, n / max(1, n_positive), n / max(1, n - n_positive))
    return duals


def inside(point: Iterate, bound: Array) -> Iterate:
    """The point with duals strictly inside the box, in case rounding has put one on its bound."""
    return replace(point, duals=np.clip(point.duals, _EDGE * bound, (1.0 - _EDGE) * bound))


def lifted(point: Iterate, q: Array) -> Iterate:
    """Raise t until no row is violated; no slack decreases."""
    level = point.level + max(0.0, float((0.5 * q + point.slacks - point.level).max()))
    slacks = np.maximum(point.slacks, level - 0.5 * q)
    return replace(point, slacks=slacks, level=level)


def longest_step(point: Iterate, direction: Iterate, bound: Array) -> float:
    """The longest step, at most 1, that keeps every positive quantity positive."""
    positive = (
        (point.duals, direction.duals),
        (bound - point.duals, -direction.duals),
        (point.slacks, direction.slacks),
        (point.lower, direction.lower),
        (point.upper, direction.upper),
        (point.weights, direction.weights),
    )
    return min(_ratio(value, change) for value, change in positive)


def _ratio(value: Array, change: Array) -> float:
    down = change < 0
    return min(1.0, float((-value[down] / change[down]).min())) if down.any() else 1.0


def purified(point: Iterate, q: Array, share: float) -> Array:
    """Weights without the vanishing ones.

    Either beta_m or s_m vanishes at the solution. Long before it is small, it is the smaller one of beta / max beta and
    s / (max q / 2). With a `share` below 1, beta must be smaller by this factor to count as vanishing. The largest
    weight always stays.
    """
    largest = point.weights.max()
    vanishing = point.weights * (0.5 * q.max()) < share * point.slacks * largest
    return np.where(vanishing & (point.weights < largest), 0.0, point.weights)
