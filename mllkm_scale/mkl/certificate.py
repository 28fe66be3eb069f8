"""P and D: the bounds on the optimum that a machine and that duals prove (F5, F15), and the certificate of a round.

    D = sum alpha - 1/2 max over all m of q_m(alpha)  <=  optimum  <=  P = 1/2 (sum_m |w_m|)^2 + sum_i C_i hinge_i

with w_m = beta_m v_m and q_m = |v_m|^2, so that |w_m| = beta_m sqrt(q_m). P and D may come from different rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mllkm_scale.base.arrays import Array

__all__ = ["Certificate", "Objective", "Proof", "dual_value", "primal_value", "proof_of"]


@dataclass(frozen=True)
class Objective:
    """A primal and a dual value: primal >= optimum >= dual."""

    primal: float
    dual: float

    @property
    def gap(self) -> float:
        """Relative duality gap (P - D) / P."""
        return (self.primal - self.dual) / self.primal if self.primal != 0 else 0.0


def primal_value(weights: Array, forms: Array, loss: float) -> float:
    """P for these weights, forms q and loss sum C_i hinge_i.

    >>> primal_value(np.array([0.5, 0.5]), np.array([4.0, 16.0]), 1.0)
    5.5
    """
    return 0.5 * float(weights @ np.sqrt(np.maximum(forms, 0.0))) ** 2 + loss


def dual_value(total: float, largest: float) -> float:
    """D for duals with this sum, and this largest q over all kernels.

    >>> dual_value(3.0, 4.0)
    1.0
    """
    return total - 0.5 * largest


@dataclass(frozen=True)
class Proof:
    """A bound D on the optimum, and the duals (n, K), from 0 to C_i, that prove it."""

    dual: float
    duals: Array


def proof_of(duals: Array, largest: float) -> Proof:
    """The bound that duals prove, given the largest q, after scaling them by the best factor t <= 1.

    t sum alpha - t^2 / 2 max q is largest at t = sum alpha / max q, or at 1 if that is less (F15).

    >>> proof_of(np.full((2, 1), 2.0), 8.0)
    Proof(dual=1.0, duals=array([[1.],
           [1.]]))
    """
    total = float(duals.sum())
    t = min(1.0, total / largest) if largest > 0 else 1.0
    return Proof(dual_value(t * total, t**2 * largest), duals if t == 1.0 else t * duals)


@dataclass(frozen=True)
class Certificate(Objective):
    """The smallest P and the largest D so far, over all samples and all kernels; sizes and times of the round."""

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
    lagged: bool = False  # D is that of earlier duals: not all kernels were scanned with the duals of this round
    likely_dual: float = -math.inf  # D of the duals of this round over the scanned kernels

    @property
    def likely_gap(self) -> float:
        """The gap if no kernel violates more than those that were scanned."""
        return Objective(self.primal, max(self.dual, self.likely_dual)).gap
