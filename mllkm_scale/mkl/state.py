"""The settings of the outer loop, and the state on which its next round depends."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.mkl.certificate import Objective, Proof
from mllkm_scale.solver.box import Box

__all__ = ["Machine", "Settings", "State"]


_TIGHTEST = 1e-8  # inner tolerance: the interior point works down to 1e-7
_PROGRESS = 0.01  # of P - D: a smaller decrease is no progress
_BUDGET_PROGRESS = 0.02  # likewise, with a full budget of kernels
_RESPONSES = 10_000  # of a candidate that are compared, with many classes


@dataclass(frozen=True)
class Settings:
    """Settings of the outer loop."""

    C: float = 1.0
    weights: Array | None = None  # (n,) of the samples in the loss; None: all one
    tol: float = 0.01
    seed: int = 0
    insertions: int = 100  # largest number of kernels inserted in a round, for one class
    candidates: int = 4000  # violators among which they are chosen, for one class; at least a quarter for several
    first_samples: int = 200  # working samples of a class in the first round
    margin: float = 3.0  # samples with y f(x) beyond it leave the working set; with 1.4, many come back
    witnesses: int = 500  # support vectors on which the responses of candidates are compared, for up to four classes
    overlap: str = "auto"  # scans run while the next round solves: "always", "never", or if they are the larger part
    pricing: str = "auto"  # "full": scans of all kernels; "auto": of a share, if scans would be the larger part
    max_kernels: int | None = None  # of positive weight, after every round

    def box(self, n: int) -> Box:
        """The box of the duals of n samples."""
        return Box.of(self.C, n) if self.weights is None else Box(self.C, self.weights)

    def n_insertions(self, n_classes: int) -> int:
        """Kernels inserted in a round: every class needs some."""
        return self.insertions * (4 + n_classes) // 5

    def n_candidates(self, n_classes: int) -> int:
        """Violators among which insertions are chosen: many are needed, because those of one class resemble each
        other."""
        return max(self.candidates // 4, self.candidates // n_classes)

    def n_witnesses(self, n_classes: int) -> int:
        """Support vectors on which responses of violators are compared: fewer with many classes, since all outputs
        count."""
        least = min(100, _RESPONSES // n_classes)
        return max(1, least, min(self.witnesses, 4 * self.witnesses // n_classes))


@dataclass(frozen=True)
class Machine:
    """Kernels by their ids (s,), weights (s,), and duals (n, K): w_m = beta_m sum_i alpha_i y_i phi_m(x_i)."""

    active: Array
    weights: Array
    duals: Array


@dataclass(frozen=True)
class State:
    """Everything that the next round depends on."""

    round: int
    active: Array  # ids of the active kernels (s,)
    weights: Array  # (s,)
    working: Array  # (n, K) bool: the working samples of each class
    duals: Array  # (n, K), from 0 to C_i, of the machine
    inner_tol: float  # relative gap to which the next round solves the restricted problem
    pool: Array  # ids of the candidates that the last scan has found
    priced: bool  # whether that scan used these duals
    scanned: bool  # and was over all kernels
    left: Array  # ids of the kernels that were dropped once, and are not dropped again
    proof: Array  # (n, K), from 0 to C_i, whose value is the bound
    best_active: Array  # ids of the kernels of the machine with the smallest P so far
    best_weights: Array
    best_duals: Array  # (n, K)
    bound: float = 0.0  # the largest D so far; zero duals prove this one
    best_primal: float = np.inf
    idle: int = 0  # rounds without progress
    over_budget: bool = False  # whether more kernels than allowed had a positive weight, and were cut

    @property
    def machine(self) -> Machine:
        """The machine with the smallest P so far."""
        return Machine(self.best_active, self.best_weights, self.best_duals)

    @property
    def best_gap(self) -> float:
        """The gap between the smallest P and the largest D so far (F15)."""
        return Objective(self.best_primal, self.bound).gap if np.isfinite(self.best_primal) else np.inf

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left to insert, and the inner tolerance is already the smallest."""
        return self.inner_tol < _TIGHTEST

    def improved(self, primal: float, proof: Proof | None) -> State:
        """The state in which this machine is the best if its P is the smallest so far, and these duals if their D is
        the largest (F15).

        There is progress if P - D decreases by a hundredth, or by two with a full budget of kernels.
        """
        before = self.best_primal - self.bound
        state = self
        if primal < self.best_primal:
            used = self.weights > 0
            state = replace(
                state,
                best_primal=primal,
                best_active=self.active[used],
                best_weights=self.weights[used],
                best_duals=self.duals,
            )
        if proof is not None and proof.dual > self.bound:
            state = replace(state, bound=proof.dual, proof=proof.duals)
        least = _BUDGET_PROGRESS if self.over_budget else _PROGRESS
        progress = state.best_primal - state.bound < (1.0 - least) * before
        return replace(state, idle=0 if progress else state.idle + 1)
