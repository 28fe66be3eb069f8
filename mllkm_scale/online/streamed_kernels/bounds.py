"""Lower bounds on the optimum that hold over a stream of kernels, also over those that were forgotten.

For feasible duals alpha, all multiples t alpha with 0 <= t <= 1 are feasible too, and the best of their bounds (F5) is

    D = t sum alpha - t^2/2 max_m q_m(alpha),     t = min(1, sum alpha / max_m q_m(alpha))

The maximum must be over ALL kernels at ONE alpha. So duals are frozen, and every kernel that arrives from then on is
priced by them as well as by those of the day: of a forgotten kernel, its share in the maximum remains.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.executor import PlainArrays

__all__ = ["FrozenDuals", "SupportRows", "dual_bound"]


@dataclass(frozen=True)
class SupportRows(PlainArrays):
    """Rows with nonzero duals (n_sv, d), and their signed duals alpha y (n_sv, K)."""

    rows: Array
    signed_duals: Array

    @property
    def total(self) -> float:
        """sum alpha."""
        return float(np.abs(self.signed_duals).sum())


@dataclass
class FrozenDuals:
    """Duals that stay, and the largest price of the kernels they have met."""

    support: SupportRows
    largest: float = 0.0

    def meet(self, prices: Array) -> None:
        self.largest = max(self.largest, float(prices.max(initial=0.0)))

    @property
    def zero(self) -> FrozenDuals:
        """Duals of zero: their bound, which is zero, holds for any kernels."""
        return FrozenDuals(SupportRows(self.support.rows[:0], self.support.signed_duals[:0]))

    @property
    def bound(self) -> float:
        return dual_bound(self.support.total, self.largest)


def dual_bound(total: float, largest: float) -> float:
    """D of the best multiple of duals with this sum, and this largest q.

    >>> dual_bound(2.0, 1.0), dual_bound(2.0, 4.0)
    (1.5, 0.5)
    """
    t = min(1.0, total / largest) if largest > 0 else 1.0
    return t * total - 0.5 * t * t * largest
