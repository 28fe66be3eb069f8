"""SequentialMKL with two working sets (F6): the outer loop of training.

A round is

    solve     MKL on working samples x active kernels                          `solve_active`
    primal    a pass over all samples: P of the machine, and its margins       `margins.primal_pass`
    dual      a scan of the open set for the duals: D, and violating kernels   `pricing.RoundScans`
    certify   the smallest P with the largest D, of all rounds so far          `certify`  (F5, F15)
    renew     add and drop kernels and samples                                 `renewal.Renewal`

which proves a relative duality gap for the problem with ALL samples and ALL kernels:

    D = sum alpha - 1/2 max over all m of q_m(alpha)  <=  optimum  <=  P = 1/2 (sum_m |w_m|)^2 + sum C_i hinge_i

Samples are added at random, and a working set grows at most by a factor of four in a round, so early rounds are cheap.
A round is a function of the state before it and of nothing else. So a training run that is resumed from a checkpoint
continues with the same bits, and the result does not depend on how long a scan takes, or on which worker runs it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.executor import Executor
from mllkm_scale.kernels.grid import KernelGrid, RowSource
from mllkm_scale.mkl.certificate import Certificate, Objective
from mllkm_scale.mkl.margins import PrimalPass, primal_pass
from mllkm_scale.mkl.pricing import DualPass, Pricing, RoundScans
from mllkm_scale.mkl.renewal import Renewal
from mllkm_scale.mkl.restricted import Solution, WorkingSets
from mllkm_scale.mkl.starts import cold_start, heaviest, start_from_heaviest, start_from_machine, start_from_other_C
from mllkm_scale.mkl.state import Settings, State
from mllkm_scale.scan.scanner import Scanner, ScanResult

__all__ = ["InnerSolver", "SequentialMKL", "Solved"]


_RANKING = 3.0  # times the inner tolerance, for a solution that only ranks kernels
_PATIENCE = 1  # rounds without progress, after which training with a budget of kernels ends


class InnerSolver(Protocol):
    """Solves MKL restricted to given kernels and to given rows of each class, with a warm start if that helps."""

    def __call__(self, sets: WorkingSets, tol: float) -> Solution: ...

    def flops(self, sets: WorkingSets) -> float: ...


@dataclass(frozen=True)
class Solved:
    """The state with the new weights and duals, their objective, and the time of solving."""

    state: State
    solution: Solution
    seconds: float


class SequentialMKL:
    """The outer loop on data (n, d), signs (n, K) and a grid of kernels."""

    def __init__(
        self,
        data: RowSource,
        signs: Array,
        grid: KernelGrid,
        scanner: Scanner,
        executor: Executor,
        inner: InnerSolver,
        settings: Settings,
    ) -> None:
        self.data, self.signs, self.grid = data, signs, grid
        self.executor, self.inner, self.settings, self.threads = executor, inner, settings, scanner.threads
        self.box = settings.box(len(signs))
        self.pricing = Pricing(data, signs, grid, scanner, lambda state: inner.flops(self.sets(state)), settings)
        self.renewal = Renewal(grid, signs.shape[1], settings, scanner.threads)

    def rounds(self, state: State | None = None) -> Iterator[tuple[State, Certificate]]:
        """Algorithm 2 on two working sets; ends when the certified gap is at most `tol`, or at the limit of rounding.

        The state after each round holds its weights and duals, with the kernels inserted for the next round at weight
        zero. It also holds the best machine and the best duals so far, to which the certificate refers.
        """
        state = state or self.start()
        while True:
            state, certificate = self.round(state)
            yield state, certificate
            if certificate.gap <= self.settings.tol or state.exhausted or self.budget_spent(state):
                return

    def round(self, state: State) -> tuple[State, Certificate]:
        """One pass through the listing above."""
        with RoundScans(self.pricing, state) as scans:
            if not len(state.active):
                state = self.first_kernels(state, scans.beside())
            solved = self.solve_active(state)
            scans.begin_own(solved.state)
            primal = self.primal_pass(solved.state)
            dual = scans.dual_pass(solved.state, primal)
        best = solved.state.improved(primal.primal, dual.proof)
        certificate = self.certify(best, solved, primal, dual)
        own = Objective(primal.primal, dual.likely_dual)
        return self.renewal(best, primal, dual, own.gap), certificate

    def solve_active(self, state: State) -> Solved:
        """MKL on working samples x active kernels.

        If more kernels have a positive weight than the budget allows, those with the largest weights are kept and
        solved for again. While exchanging kernels, the first solution only ranks them.
        """
        started, most = time.perf_counter(), self.settings.max_kernels
        ranks = most is not None and state.over_budget and len(state.active) > most
        state, solution = self._solve(state, (_RANKING if ranks else 1.0) * state.inner_tol)
        over = most is not None and bool(np.count_nonzero(state.weights) > most)
        if most is not None and over:
            state, solution = self._solve(heaviest(state, most), state.inner_tol)
        return Solved(replace(state, over_budget=over), solution, time.perf_counter() - started)

    def _solve(self, state: State, tol: float) -> tuple[State, Solution]:
        sets = self.sets(state)
        solution = self.inner(sets, tol)
        duals = np.zeros_like(state.duals)
        for k, part in enumerate(sets.split(solution.duals)):
            duals[sets.rows[k], k] = part
        return replace(state, weights=solution.weights, duals=duals), solution

    def sets(self, state: State) -> WorkingSets:
        """Working samples x active kernels, with the initial weights and duals."""
        rows = [np.flatnonzero(column) for column in state.working.T]
        duals = [state.duals[r, k] for k, r in enumerate(rows)]
        return WorkingSets(self.grid.take(state.active), state.weights, rows, duals, self.box)

    def primal_pass(self, state: State) -> PrimalPass:
        """The pass over all samples for the machine of a state."""
        machine, support = (state.active, state.weights), self.pricing.support_of(state.duals)
        return primal_pass(self.grid, self.data, self.signs, machine, support, self.box, self.executor, self.threads)

    def certify(self, best: State, solved: Solved, primal: PrimalPass, dual: DualPass) -> Certificate:
        """The certificate with the best P and D of F5 so far, over all samples and all kernels."""
        return Certificate(
            primal=best.best_primal,
            dual=best.bound,
            lagged=not dual.complete,
            likely_dual=dual.likely_dual,
            n_active=int(np.count_nonzero(best.weights)),
            n_support=len(primal.support),
            n_working=int(best.working.sum()),
            n_violating_samples=int(((primal.margins < 1.0) & ~best.working).sum()),
            n_violating_kernels=int((dual.values > primal.threshold).sum()),
            inner_gap=solved.solution.objective.gap,
            inner_steps=solved.solution.steps,
            solve_s=solved.seconds,
            margins_s=primal.seconds,
            scan_s=dual.seconds,
            n_scanned=dual.n_scanned,
        )

    def budget_spent(self, state: State) -> bool:
        """Whether exchanging kernels within the budget no longer improves the machine."""
        return state.over_budget and state.idle >= _PATIENCE

    def first_kernels(self, state: State, scan: ScanResult | None) -> State:
        """The kernels that violate most for the initial duals; equal duals select kernels that separate the signs."""
        if scan is not None:
            support = self.pricing.support_of(state.duals)
            nothing = PrimalPass(*support, np.empty(0), np.inf, np.empty(0), threshold=0.0)
            found = DualPass(scan.ids, scan.values, None, 0.0, priced=True, complete=scan.complete)
            state = self.renewal.insert_kernels(state, nothing, found)
        if not len(state.active):  # no kernel separates the signs, so any kernel will do
            state = replace(state, active=np.array([self.grid.first_open]), weights=np.zeros(1))
        return state

    def start(self) -> State:
        """The initial state without a known machine."""
        return cold_start(self.signs, self.settings)

    def start_at(self, active: Array, weights: Array, margins: Array) -> State:
        """The initial state from a known machine, given its kernels, weights, and margins (n, K)."""
        return start_from_machine(active, weights, margins, self.signs, self.settings)

    def warm(self, state: State, C_before: float) -> State:
        """The solution of the problem with another C as the start of this one."""
        return start_from_other_C(state, C_before, self.settings)

    def truncated(self, state: State, max_kernels: int) -> State:
        """The kernels of the best machine with the largest weights, to be solved for again."""
        return start_from_heaviest(state, max_kernels, self.settings)

    def reweighed(self, state: State) -> State:
        """The active kernels solved for again, with the working samples renewed once."""
        solved = self.solve_active(state).state
        return self.renewal.renew_samples(solved, self.primal_pass(solved).margins)
