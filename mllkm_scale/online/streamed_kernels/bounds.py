"""Lower bounds on the optimum over a stream of kernels, including forgotten ones, and the certificate.

For feasible duals alpha, all multiples t alpha with 0 <= t <= 1 are feasible too, and the best of their bounds (F5) is

    D = t sum alpha - t^2/2 max_m q_m(alpha),     t = min(1, sum alpha / max_m q_m(alpha))

The maximum must be over ALL kernels at ONE alpha. So some duals are frozen, and q_m of every later kernel is computed
for the frozen duals as well as for the current ones. A forgotten kernel thus remains part of the maximum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.executor import PlainArrays
from mllkm_scale.mkl.restricted import Objective

__all__ = ["FrozenDuals", "StreamCertificate", "SupportRows", "dual_bound"]


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
    """Frozen duals, and the largest q of the kernels so far."""

    support: SupportRows
    largest: float = 0.0

    def meet(self, prices: Array) -> None:
        self.largest = max(self.largest, float(prices.max(initial=0.0)))

    @property
    def zero(self) -> FrozenDuals:
        """Zero duals: their bound, which is zero, holds for any kernels."""
        return FrozenDuals(SupportRows(self.support.rows[:0], self.support.signed_duals[:0]))

    @property
    def bound(self) -> float:
        return dual_bound(self.support.total, self.largest)


def dual_bound(total: float, largest: float) -> float:
    """D for the best multiple of duals with this sum and this largest q.

    >>> dual_bound(2.0, 1.0), dual_bound(2.0, 4.0)
    (1.5, 0.5)
    """
    t = min(1.0, total / largest) if largest > 0 else 1.0
    return t * total - 0.5 * t * t * largest


@dataclass(frozen=True)
class StreamCertificate(Objective):
    """P of the machine, and D over all admitted kernels of the stream: primal >= optimum >= dual.

    Examples
    --------
    >>> certificate = StreamCertificate(2.0, 1.0, 500, 20, 100, 380, likely_dual=1.99)
    >>> round(certificate.gap, 3), round(certificate.likely_gap, 3)
    (0.5, 0.005)
    """

    n_seen: int  # number of kernels of D
    n_active: int
    n_remembered: int
    n_forgotten: int  # number of times that a kernel was forgotten, over all passes
    likely_dual: float  # D over the active and the remembered kernels only

    @property
    def likely_gap(self) -> float:
        """The gap under the assumption that no forgotten kernel violates now."""
        return Objective(self.primal, max(self.dual, self.likely_dual)).gap
