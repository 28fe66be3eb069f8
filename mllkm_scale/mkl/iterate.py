"""Points of the interior point method: where it starts, how far it may go, and the vertex that it is near.

min  -1'a + t    s.t.  1/2 q_m(a) + s_m = t  (multiplier beta_m),   s >= 0,   0 <= a <= C
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.mkl.restricted import RestrictedProblem

__all__ = ["Iterate", "Products", "cold_start", "inside", "lifted", "longest_step", "purified", "warm_start"]

Array = NDArray[Any]

_EDGE = 1e-14  # of C: the least distance of a dual from 0 and from C
_SPREAD = 0.1  # of the weights that a warm start gives to all kernels alike
_FLOOR = 0.01  # of C, at most: the least dual of a warm start, and the least distance from C
_EXCESS = 0.1  # what a warm start adds to the multipliers of the box, which are in units of the margin


@dataclass(frozen=True)
class Products:
    """For each pair of complementary quantities, a number: their product, or what it should become."""

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

    def products(self, C: float) -> Products:
        return Products(self.weights * self.slacks, self.lower * self.duals, self.upper * (C - self.duals))


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


def warm_start(problem: RestrictedProblem, weights: Array, duals: Array) -> Iterate:
    """Near the solution of a smaller problem: off its bounds, and with the multipliers that it implies.

    The duals are shortened to the best multiple of themselves, for kernels that were not there before may have a
    far larger q than those that were.
    """
    C, n = problem.C, problem.n_duals
    weights = (1.0 - _SPREAD) * weights / weights.sum() + _SPREAD / len(weights)
    floor = min(_FLOOR * C, _SPREAD * float(duals[duals > 0].mean()))
    duals = np.clip(duals, floor, (1.0 - _FLOOR) * C)
    q = problem.forms(duals)
    duals *= min(1.0, float(duals.sum() / q.max()))
    U, q = problem.moments(duals)
    excess = U @ weights - 1.0
    lower, upper = np.maximum(excess, 0.0) + _EXCESS, np.maximum(-excess, 0.0) + _EXCESS
    product = float(lower @ duals + upper @ (C - duals)) / (2 * n)
    lower, upper = np.maximum(lower, 0.1 * product / duals), np.maximum(upper, 0.1 * product / (C - duals))
    level = 0.5 * float(q.max()) + 0.1 * product * len(q)
    return Iterate(duals, lower, upper, weights, level - 0.5 * q, level)


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


def purified(point: Iterate, q: Array, C: float) -> tuple[Array, Array]:
    """Weights and duals with those on their bounds that a point inside is about to put there.

    Of two complementary quantities one vanishes at the solution. It is the smaller one, each in its unit, long before
    it is small: a / C against the multiplier of a >= 0, and beta / max beta against s / (max q / 2).
    """
    duals = np.where(point.duals < C * point.lower, 0.0, point.duals)
    duals = np.where(C - point.duals < C * point.upper, C, duals)
    without = point.weights * (0.5 * q.max()) < point.slacks * point.weights.max()
    weights = np.where(without, 0.0, point.weights)
    return (weights if weights.any() else point.weights), duals
