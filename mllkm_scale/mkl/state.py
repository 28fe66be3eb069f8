"""How the outer loop goes, and all that its next round depends on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.mkl.certificate import Objective, Proof
from mllkm_scale.solver.box import Box

__all__ = ["Machine", "Settings", "State"]


_TIGHTEST = 1e-8  # inner tolerance: the interior point is sensible down to 1e-7
_PROGRESS = 0.01  # of P - D, by which it falls
_RESPONSES = 10_000  # of a candidate that are compared, where there are many classes


@dataclass(frozen=True)
class Settings:
    """How the outer loop goes."""

    C: float = 1.0
    weights: Array | None = None  # (n,) of the samples in the loss; None: one each
    tol: float = 0.01
    seed: int = 0
    insertions: int = 100  # kernels inserted in a round, at most, for one class
    candidates: int = 4000  # violators looked at to choose them from, for one class; a quarter at least for several
    first_samples: int = 200  # working samples of a class in the first round
    margin: float = 3.0  # samples with y f(x) beyond it leave the working set; from 1.4 on many come back
    witnesses: int = 500  # support vectors on which the responses of candidates are compared, for up to four classes
    overlap: str = "auto"  # scans run beside the next solving: "always", "never", or where they are the larger part
    pricing: str = "auto"  # scans are of all kernels: "full", or of a share where they would be the larger part
    max_kernels: int | None = None  # with a weight, after every round

    def box(self, n: int) -> Box:
        """The box of the duals of n samples."""
        return Box.of(self.C, n) if self.weights is None else Box(self.C, self.weights)

    def n_insertions(self, n_classes: int) -> int:
        """Kernels inserted in a round: each class needs some of its own."""
        return self.insertions * (4 + n_classes) // 5

    def n_candidates(self, n_classes: int) -> int:
        """Violators looked at: those of one class crowd, so that few of many are unlike each other."""
        return max(self.candidates // 4, self.candidates // n_classes)

    def n_witnesses(self, n_classes: int) -> int:
        """Support vectors on which their responses are compared: of many classes fewer, each of which counts."""
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
    """All that the next round depends on."""

    round: int
    active: Array  # ids of the active kernels (s,)
    weights: Array  # (s,)
    working: Array  # (n, K) bool: the working samples of each class
    duals: Array  # (n, K), from 0 to C_i, of the machine
    inner_tol: float  # relative gap to which the next round solves the restricted problem
    pool: Array  # ids of the candidates that the last scan has found
    priced: bool  # whether that scan was one for these duals
    scanned: bool  # and one of all kernels
    left: Array  # ids of the kernels that have left: those that come back stay
    proof: Array  # (n, K), from 0 to C_i, whose value is the bound
    best_active: Array  # ids of the kernels of the machine with the least P so far
    best_weights: Array
    best_duals: Array  # (n, K)
    bound: float = 0.0  # the largest D proved so far: duals of zero prove this one
    best_primal: float = np.inf
    idle: int = 0  # rounds without progress
    over_budget: bool = False  # whether more kernels than allowed had a weight, and only the heaviest were kept

    @property
    def machine(self) -> Machine:
        """The machine with the least P so far."""
        return Machine(self.best_active, self.best_weights, self.best_duals)

    @property
    def best_gap(self) -> float:
        """Certified so far: the least P with the largest D, wherever they were seen (F15)."""
        return Objective(self.best_primal, self.bound).gap if np.isfinite(self.best_primal) else np.inf

    @property
    def exhausted(self) -> bool:
        """Nothing is left to insert, and rounding forbids a more exact solution."""
        return self.inner_tol < _TIGHTEST

    def improved(self, primal: float, proof: Proof | None) -> State:
        """This machine is the best one if its P is the least so far, and these duals if their D is the largest (F15).

        It counts as progress if P - D falls by a hundredth.
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
        progress = state.best_primal - state.bound < (1.0 - _PROGRESS) * before
        return replace(state, idle=0 if progress else state.idle + 1)
