"""SequentialMKL with two working sets (F6): the outer loop of training.

Each round solves MKL on working samples x active kernels, checks all samples (the margins) and the kernels of the open
set (the scan), and thereby certifies a relative duality gap for the problem with ALL samples and ALL kernels (F5):

    D = sum alpha - 1/2 max over all m of q_m(alpha)  <=  optimum  <=  P = 1/2 (sum_m |w_m|)^2 + C sum hinge

The certificate is the least P with the largest D, whichever rounds they were seen in (F15).

Many samples come in stages (`stages`); not every round need scan all kernels (`pricing`). A round is a function of the
state before it and of nothing else, so that a training resumed from a checkpoint goes on with the same bits; nor does
it matter how long a scan takes, or who does it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.executor import Executor
from mllkm_scale.kernels.grid import KernelGrid, RowSource
from mllkm_scale.mkl.certificate import Certificate
from mllkm_scale.mkl.diversity import diverse
from mllkm_scale.mkl.margins import decide_all
from mllkm_scale.mkl.pricing import Priced, Pricing, Seen
from mllkm_scale.mkl.restricted import Objective, Solution
from mllkm_scale.mkl.stages import Stages
from mllkm_scale.mkl.state import Settings, State
from mllkm_scale.mkl.working_sets import WorkingSets
from mllkm_scale.scan.scanner import Scanner, ScanResult

__all__ = ["InnerSolver", "SequentialMKL"]


_LOOSEST = 0.3  # inner tolerance: duals well inside of their box violate fewer kernels than those at its corners
_NEAR_TOL = 0.02  # inner tolerance of the first round, where training starts near its end
_INNER, _INNER_LATE = 0.2, 0.05  # of the gap, to which it is solved next; and when few kernels were left to insert
_FALLS, _FALLS_P = 0.01, 1e-3  # of the gap, or of P: what counts as progress
_MOST_DOUBLINGS = 3  # of the kernels that are inserted, while there is none
_FALLS_BUDGET = 0.02  # likewise of P, where kernels are exchanged for others within a budget
_PATIENCE = 1  # rounds without progress, after which a budget of kernels has brought what it can
_GROWTH_BUDGET = 3  # samples that join a working set, for each that is there
_ROUGHLY = 0.1  # inner tolerance with a budget, while many samples within the margin are not at work
_LEAST_INSERTIONS = 50  # for a small budget: the worst violators alone are no good choice
_ENOUGH = 300  # working samples of a class, by which noise is told
_FEW = 0.25  # of all samples
_AT_BOUND = 0.999  # of the box: interior points end slightly inside of it
_STAGE_GAP = 0.05  # at which the next stage begins, unless it is the last
_STAGE_FALLS = 0.01  # of P over all samples: a stage that lowers it by less has taught what it can


class InnerSolver(Protocol):
    """Solves MKL restricted to given kernels, and to given rows of each class; warm-started where that helps."""

    def __call__(self, sets: WorkingSets, tol: float) -> Solution: ...

    def flops(self, sets: WorkingSets) -> float: ...


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
        self.pricing = Pricing(data, signs, grid, scanner, lambda state: inner.flops(self.sets(state)), settings)
        self.stages = Stages(data.n_rows, settings.seed)

    def rounds(self, state: State | None = None) -> Iterator[tuple[State, Certificate]]:
        """Algorithm 2 on two working sets; ends when the certified gap is at most `tol`, or at the limit of rounding.

        The state after each round holds its weights and duals, kernels that were inserted for the next one with weight
        zero; and the best machine and the best duals so far, which the certificate is about.
        """
        state = state or self.start()
        while True:
            state, certificate = self.round(state)
            yield state, certificate
            if certificate.gap <= self.settings.tol or state.exhausted or self.budget_spent(state):
                return

    def round(self, state: State) -> tuple[State, Certificate]:
        pricing = self.pricing
        beside = None if state.priced else pricing.begin_scan(state, pricing.share(state))
        own = None
        try:
            if beside is not None and state.round == 0:
                state = self.first_kernels(state, beside.result())
            started = time.perf_counter()
            solved, solution = self.solve_active(state)
            solve_s = time.perf_counter() - started
            lagging = None if beside is None else beside.result()
            own = pricing.begin_scan(solved, pricing.share(solved)) if pricing.scans_at_once(solved) else None
            started = time.perf_counter()
            seen = self.look(solved)
            margins_s = time.perf_counter() - started
            priced = pricing.price(state, solved, seen, lagging, None if own is None else own.result())
        finally:
            for scan in (beside, own):
                if scan is not None:
                    scan.close()
        best = self.best(solved, seen, priced)
        certificate = self.certify(best, seen, priced, solution, (solve_s, margins_s))
        following = self.renew_samples(self.insert_kernels(self.drop_kernels(best, seen), seen, priced), seen)
        n_new = int(np.isin(following.active, state.active, invert=True).sum())
        grew = n_new > 0 or bool((following.working & ~state.working).any())
        inner = _INNER if n_new >= self.most_insertions(best) else _INNER_LATE
        stage_gap = Objective(seen.stage_primal, priced.stage_dual).gap
        following = replace(
            following,
            round=state.round + 1,
            inner_tol=self.next_tolerance(solved, seen, inner * stage_gap, grew),
            pool=priced.ids,
            priced=priced.priced,
            scanned=priced.scanned,
        )
        first = state.in_play < state.stage  # round of a stage: some samples within the margin are not at work
        falls = first or seen.primal < (1.0 - _STAGE_FALLS) * state.best_primal
        near = priced.priced and stage_gap <= _STAGE_GAP  # of what no scan has priced, too little is known
        stage_done = self.covers_stage(solved, seen) and (near or not falls)
        if not solved.last_stage and self.tame(solved, seen):
            following = replace(following, stage=self.stages.n_rows)
        elif not solved.last_stage and (stage_done or not grew or following.exhausted):
            following = self.next_stage(following, seen)
        return following, certificate

    def best(self, state: State, seen: Seen, priced: Priced) -> State:
        """The state with the machine of the least P, and the duals of the largest D, that were seen so far (F15)."""
        gap, primal = state.best_gap, state.best_primal
        if seen.primal < state.best_primal:
            used = state.weights > 0
            state = replace(
                state,
                best_primal=seen.primal,
                best_active=state.active[used],
                best_weights=state.weights[used],
                best_duals=state.duals,
            )
        if priced.proof is not None and priced.proof.dual > state.bound:
            state = replace(state, bound=priced.proof.dual, proof=priced.proof.duals)
        falls = _FALLS_BUDGET if state.over_budget else _FALLS_P
        better = state.best_gap < (1.0 - _FALLS) * gap or state.best_primal < (1.0 - falls) * primal
        return replace(state, idle=0 if better else state.idle + 1)

    def start(self) -> State:
        """Working samples of the first stage at random, half of each sign, with equal duals; no kernel yet."""
        settings, (n, K), stage = self.settings, self.signs.shape, self.stages.first
        in_play, box = self.stages.mask(stage), self.stages.box(stage, settings.C)
        working, duals = np.zeros((n, K), dtype=bool), np.zeros((n, K))
        for k in range(K):
            rng = np.random.default_rng([settings.seed, 0, k])
            for sign in (1.0, -1.0):
                rows = rng.permutation(np.flatnonzero(in_play & (self.signs[:, k] == sign)))
                rows = rows[: max(1, settings.first_samples // 2)]
                working[rows, k] = True
                duals[rows, k] = box / max(1, len(rows))
        nothing = np.empty(0, np.int64)
        return State(
            round=0,
            active=nothing,
            weights=np.empty(0),
            working=working,
            stage=stage,
            duals=duals,
            in_play=stage,
            inner_tol=_LOOSEST,
            pool=nothing,
            priced=False,
            scanned=False,
            left=nothing,
            proof=np.zeros((n, K)),
            best_active=nothing,
            best_weights=np.empty(0),
            best_duals=np.zeros((n, K)),
        )

    def start_at(self, active: Array, weights: Array, margins: Array) -> State:
        """Where training starts from a machine that is known: its kernels, weights, and margins (n, K).

        All samples that are not well beyond the margin are at work, if they are few; else those of the first stage.
        """
        few = np.count_nonzero(margins < 1.0) < _FEW * margins.size
        stage = self.stages.n_rows if few else self.stages.first
        box = self.stages.box(stage, self.settings.C)
        in_play = self.stages.mask(stage)[:, None]
        duals = np.where(in_play & (margins < 1.0), box, 0.0)
        working = in_play & (margins < self.settings.margin)
        for k in range(working.shape[1]):  # a class that is learned without a mistake needs some all the same
            nearest = np.argsort(np.where(in_play[:, 0], margins[:, k], np.inf), kind="stable")
            working[nearest[: self.settings.first_samples], k] = in_play[nearest[: self.settings.first_samples], 0]
        return replace(
            self.start(),
            active=active,
            weights=weights / weights.sum(),
            working=working,
            stage=stage,
            duals=duals,
            in_play=stage,
            priced=True,  # the first round solves before it scans
        )

    def first_kernels(self, state: State, scan: ScanResult) -> State:
        """The kernels that violate most for the duals of a start: with equal ones, those that tell signs apart."""
        support, signed_duals = self.pricing.support_of(state.duals)
        state = self.insert_kernels(
            state,
            Seen(support, signed_duals, state.duals, np.inf, np.inf, np.empty(0), 0.0),
            Priced(scan.ids, scan.values, None, 0.0, 0.0, priced=True, scanned=scan.complete),
        )
        if not len(state.active):  # no kernel tells anything apart, and any will do
            first = np.array([self.grid.first_open])
            state = replace(state, active=first, weights=np.zeros(1))
        return state

    def solve_active(self, state: State) -> tuple[State, Solution]:
        """MKL on working samples x active kernels.

        If more kernels have a weight than the budget allows, the heaviest are kept, and solved for once more.
        """
        solved, solution = self.solve(state)
        most = self.settings.max_kernels
        over = most is not None and bool(np.count_nonzero(solved.weights) > most)
        if most is not None and over:
            solved, solution = self.solve(_heaviest(solved, most))
        return replace(solved, over_budget=over), solution

    def solve(self, state: State) -> tuple[State, Solution]:
        """MKL on working samples x active kernels, however many have a weight."""
        sets = self.sets(state)
        solution = self.inner(sets, state.inner_tol)
        duals = np.zeros_like(state.duals)
        for k, part in enumerate(sets.split(solution.duals)):
            duals[sets.rows[k], k] = part
        return replace(state, weights=solution.weights, duals=duals, in_play=state.stage), solution

    def sets(self, state: State) -> WorkingSets:
        """Working samples x active kernels; duals of the stage before are shortened to the box of this one."""
        rows = [np.flatnonzero(column) for column in state.working.T]
        duals = [state.duals[r, k] * (state.in_play / state.stage) for k, r in enumerate(rows)]
        box = self.stages.box(state.stage, self.settings.C)
        return WorkingSets(self.grid.take(state.active), state.weights, rows, duals, box)

    def look(self, state: State) -> Seen:
        """Pass over all samples."""
        support, signed_duals = self.pricing.support_of(state.duals)
        active = self.grid.take(state.active)
        forms = active.quadratic_forms(support, signed_duals, self.threads)
        weighted = state.weights > 0
        norm = float(state.weights @ np.sqrt(forms))
        used, weights = active.take(weighted), state.weights[weighted]
        coef, local_coef = used.coefficients(support, signed_duals, weights)
        margins = self.signs * decide_all(self.grid.family, self.data, used, coef, local_coef, self.executor)
        hinge = np.maximum(0.0, 1.0 - margins).sum(axis=1)
        primal = 0.5 * norm**2 + self.settings.C * float(hinge.sum())
        in_play, box = self.stages.mask(state.in_play), self.stages.box(state.in_play, self.settings.C)
        stage_primal = 0.5 * norm**2 + box * float(hinge[in_play].sum())
        threshold = float(forms[weighted].max(initial=0.0))
        return Seen(support, signed_duals, margins, primal, stage_primal, forms, threshold)

    def certify(
        self, state: State, seen: Seen, priced: Priced, solution: Solution, seconds: tuple[float, float]
    ) -> Certificate:
        """The best P and D of F5 so far: over all samples, and over all kernels."""
        solve_s, margins_s = seconds
        return Certificate(
            primal=state.best_primal,
            dual=state.bound,
            lagged=not priced.scanned,
            likely_dual=priced.likely_dual,
            n_active=int(np.count_nonzero(state.weights)),
            n_support=len(seen.support),
            n_working=int(state.working.sum()),
            n_violating_samples=int(((seen.margins < 1.0) & ~state.working).sum()),
            n_violating_kernels=int((priced.values > seen.threshold).sum()),
            inner_gap=solution.objective.gap,
            inner_steps=solution.steps,
            solve_s=solve_s,
            margins_s=margins_s,
            scan_s=priced.scan_s,
            n_scanned=priced.n_scanned,
        )

    def drop_kernels(self, state: State, seen: Seen) -> State:
        """Kernels of zero weight leave, except those of the largest q, which would be the first to come back.

        None leaves twice: sets of kernels that take turns would go in a circle.
        """
        idle = np.flatnonzero(state.weights == 0.0)
        n_spare = int(self.settings.spare * (len(state.active) - len(idle)))
        idle = idle[np.argsort(-seen.active_forms[idle], kind="stable")[n_spare:]]
        leaving = idle[~np.isin(state.active[idle], state.left)]
        keep = np.isin(np.arange(len(state.active)), leaving, invert=True)
        left = np.union1d(state.left, state.active[leaving])
        return replace(state, active=state.active[keep], weights=state.weights[keep], left=left)

    def insert_kernels(self, state: State, seen: Seen, priced: Priced) -> State:
        """The worst violators join with weight zero, but of those with parallel responses only the best."""
        new = priced.ids[priced.values > seen.threshold]
        new = new[~np.isin(new, state.active)]
        rng = np.random.default_rng([self.settings.seed, state.round, 1])
        rows = np.sort(rng.permutation(len(seen.support))[: self.settings.n_witnesses(self.signs.shape[1])])
        if not len(new) or not len(rows):
            return state
        responses = self.grid.take(new).responses(seen.support[rows], seen.support, seen.signed_duals, self.threads)
        new = new[diverse(responses, self.most_insertions(state))]
        weights = np.concatenate([state.weights, np.zeros(len(new))])
        return replace(state, active=np.concatenate([state.active, new]), weights=weights)

    def most_insertions(self, state: State) -> int:
        """Kernels that a round may insert: more while there is no progress, but at most half of a budget."""
        usual, most = self.settings.n_insertions(self.signs.shape[1]), self.settings.max_kernels
        at_once = usual * 2 ** min(state.idle, _MOST_DOUBLINGS)
        return at_once if most is None else min(at_once, max(most // 2, _LEAST_INSERTIONS))

    def budget_spent(self, state: State) -> bool:
        """Whether kernels that are exchanged for others within the budget bring nothing any more."""
        return state.over_budget and state.last_stage and state.idle >= _PATIENCE

    def renew_samples(self, state: State, seen: Seen) -> State:
        """Samples well beyond the margin leave; some of those within it join, at most doubling a working set.

        Which ones, chance decides: the worst of noisy data are its errors, and a machine for these is of no use. A
        machine of few kernels has many samples within the margin, and takes more of them at once.
        """
        working = state.working & (seen.margins < self.settings.margin)
        in_play = self.stages.mask(state.stage)
        for k, margins in enumerate(seen.margins.T):
            rng = np.random.default_rng([self.settings.seed, state.round, 2, k])
            outside = rng.permutation(np.flatnonzero(in_play & (margins < 1.0) & ~working[:, k]))
            growth = _GROWTH_BUDGET if state.over_budget else 1
            working[outside[: max(self.settings.first_samples, growth * int(working[:, k].sum()))], k] = True
        return replace(state, working=working)

    def covers_stage(self, state: State, seen: Seen) -> bool:
        """Whether most samples of the stage that are within the margin are at work."""
        within = self.stages.mask(state.in_play)[:, None] & (seen.margins < 1.0)
        return bool(np.count_nonzero(within & ~state.working) <= np.count_nonzero(state.working))

    def tame(self, state: State, seen: Seen) -> bool:
        """Whether the data are not noisy: with enough samples at work, few of all are within the margin.

        Then few matter, and they come one round after the other.
        """
        enough = state.working.sum(axis=0).max() >= _ENOUGH or self.covers_stage(state, seen)
        return bool(enough and np.count_nonzero(seen.margins < 1.0) < _FEW * seen.margins.size)

    def next_stage(self, state: State, seen: Seen) -> State:
        """More samples in play: all that are not well beyond the margin become working samples at once."""
        stage = self.stages.after(state.stage)
        working = self.stages.mask(stage)[:, None] & (seen.margins < self.settings.margin)
        return replace(state, stage=stage, working=working, inner_tol=_LOOSEST, idle=0)

    def reweighed(self, state: State) -> State:
        """The active kernels weighed anew: solved for, with the working samples that follow for another time."""
        solved, _ = self.solve_active(state)
        return self.renew_samples(solved, self.look(solved))

    def truncated(self, state: State, max_kernels: int) -> State:
        """The heaviest kernels of the best machine, to be solved for once more; what was proved holds on."""
        best, tol = state.machine, 0.2 * self.settings.tol
        primal = state.best_primal if len(best.active) <= max_kernels else np.inf
        state = replace(state, active=best.active, weights=best.weights, duals=best.duals)
        return replace(_heaviest(state, max_kernels), inner_tol=tol, best_primal=primal, idle=0)

    def warm(self, state: State, C_before: float) -> State:
        """The end of the problem with another C as the start of this one: duals at their bound stay there.

        Kernels, working samples and the candidates of the last scan stay; what was proved does not.
        """
        before, box = self.stages.box(state.in_play, C_before), self.stages.box(state.in_play, self.settings.C)
        duals = np.where(state.duals > _AT_BOUND * before, box, np.minimum(state.duals, box))
        return replace(
            state,
            round=0,
            duals=duals,
            inner_tol=_NEAR_TOL,
            priced=False,
            scanned=False,
            left=np.empty(0, np.int64),
            proof=np.zeros_like(duals),
            bound=0.0,
            best_primal=np.inf,
            idle=0,
        )

    def next_tolerance(self, state: State, seen: Seen, wanted: float, grew: bool) -> float:
        """What is wanted, within bounds; a tenth of the last one if neither a kernel nor a sample was added.

        With a budget of kernels the gap stays wide, and says nothing about how exact a solution should be.
        """
        least = 0.2 * self.settings.tol
        if state.over_budget:
            return max(least, _NEAR_TOL if self.covers_stage(state, seen) else _ROUGHLY)
        tol = float(np.clip(wanted, least, max(_LOOSEST, least)))
        return tol if grew else min(tol, 0.1 * state.inner_tol)


def _heaviest(state: State, count: int) -> State:
    """The state with its heaviest kernels alone."""
    heaviest = np.sort(np.argsort(-state.weights, kind="stable")[:count])
    weights = state.weights[heaviest]
    return replace(state, active=state.active[heaviest], weights=weights / weights.sum())
