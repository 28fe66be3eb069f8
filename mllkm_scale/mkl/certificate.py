"""What is proved after a round of the outer loop, and what the round saw on the way."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mllkm_scale.base.arrays import Array
from mllkm_scale.mkl.restricted import Objective

__all__ = ["Certificate", "Proof", "proof_of"]


@dataclass(frozen=True)
class Proof:
    """A bound D on the optimum, and the duals (n, K) from 0 to C whose value it is."""

    dual: float
    duals: Array


def proof_of(duals: Array, largest: float, share: float = 1.0) -> Proof:
    """What duals prove whose largest q is known, once they are shortened to the best multiple of at most `share`.

    t sum alpha - t^2 / 2 max q is largest at t = sum alpha / max q (F15).
    """
    total = float(duals.sum())
    t = min(share, total / largest) if largest > 0 else share
    return Proof(t * total - 0.5 * t**2 * largest, duals if t == 1.0 else t * duals)


@dataclass(frozen=True)
class Certificate(Objective):
    """The least P and the largest D so far, over all samples and all kernels; sizes and times of the round."""

    n_active: int  # kernels with a positive weight
    n_support: int  # samples with a nonzero dual
    n_working: int  # working samples, summed over the classes
    n_violating_samples: int  # within the margin, but not in a working set
    n_violating_kernels: int  # among the candidates of the scan
    inner_gap: float
    inner_steps: int
    solve_s: float
    margins_s: float
    scan_s: float
    n_scanned: int  # kernels of all scans of the round
    lagged: bool = False  # D is of earlier duals: not all kernels were scanned for those of this round
    likely_dual: float = -math.inf  # D of the duals of this round, as far as kernels were scanned

    @property
    def likely_gap(self) -> float:
        """The gap if no kernel violates more than those that were scanned."""
        return Objective(self.primal, max(self.dual, self.likely_dual)).gap
