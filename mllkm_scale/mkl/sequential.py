"""SequentialMKL with two working sets (F6): the outer loop of training.

Each round solves MKL on working samples x active kernels, checks all samples (the margins) and the kernels of the open
set (the scan), and thereby certifies a relative duality gap for the problem with ALL samples and ALL kernels (F5):

    D = sum alpha - 1/2 max over all m of q_m(alpha)  <=  optimum  <=  P = 1/2 (sum_m |w_m|)^2 + C sum hinge

Where scanning would be the larger part of a round, a share of the open set is scanned that takes as long as solving,
another one in every round (partial pricing); and with `overlap` it is scanned beside the solving of the next round:
round t + 1 solves while workers scan with the duals of round t, and then prices with its own duals the candidates that
they have found. D is the best one proved before then, which bounds the optimum as well. A round that could be the last
one, or that has nothing left to insert, scans all kernels with its own duals.

A round is a function of the state before it and of nothing else, so that a training resumed from a checkpoint goes on
with the same bits; nor does it matter how long a scan takes, or who does it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.crew import Crew
from mllkm_scale.kernels.grid import KernelGrid, RowSource
from mllkm_scale.kernels.locally_linear import LocallyLinearKernels
from mllkm_scale.kernels.picked_rows import Rows, pick
from mllkm_scale.mkl.certificate import Certificate
from mllkm_scale.mkl.diversity import diverse
from mllkm_scale.mkl.margins import decide_all
from mllkm_scale.mkl.restricted import Solution
from mllkm_scale.scan.scanner import ALL, Scan, Scanner, ScanResult, Share
from mllkm_scale.scan.work import scan_flops

__all__ = ["InnerSolver", "SequentialMKL", "Settings", "State"]

Array = NDArray[Any]

_PATIENCE = 30  # rounds without a smaller gap
_LOOSEST, _TIGHTEST = 3e-3, 1e-8  # bounds of the inner tolerance
_MOST_SHARES = 16  # into which the open set is cut
_LEAST_ANCHORS = 2000  # of a share
_FALLS = 1e-4  # of the primal value: what counts as progress


@dataclass(frozen=True)
class Settings:
    """How the outer loop goes."""

    C: float = 1.0
    tol: float = 0.01
    seed: int = 0
    insertions: int = 100  # kernels inserted in a round, at most; a tenth more for each further class
    candidates: int = 1000  # violators looked at to choose them from
    first_samples: int = 200  # working samples of a class in the first round
    margin: float = 1.1  # samples with y f(x) beyond it leave the working set
    witnesses: int = 2000  # support vectors x classes on which the responses of candidates are compared
    near: float = 0.02  # a kernel of zero weight stays while its q is so near to the largest
    overlap: str = "auto"  # scans run beside the next solving: "always", "never", or where they are the larger part
    pricing: str = "auto"  # scans are of all kernels: "full", or of a share where they would be the larger part

    @property
    def negligible(self) -> float:
        """Weights and duals below this share of the largest count as zero."""
        return min(1e-4, 1e-2 * self.tol)


@dataclass(frozen=True)
class State:
    """All that the next round depends on."""

    round: int
    active: Array  # ids of the active kernels (s,)
    weights: Array  # (s,)
    working: Array  # (n, K) bool: the working samples of each class
    duals: Array  # (n, K)
    inner_tol: float  # relative gap to which the next round solves the restricted problem
    pool: Array  # ids of the candidates that the last scan has found
    priced: bool  # whether that scan was one with these duals
    scanned: bool  # and one of all kernels
    bound: float = 0.0  # the largest D proved so far: duals of zero prove this one
    best_gap: float = np.inf  # certified so far
    best_primal: float = np.inf
    idle: int = 0  # rounds in which neither of them fell

    @property
    def stalled(self) -> bool:
        """Nothing is left to insert and rounding forbids a tighter solution, or the gap has not fallen for long."""
        return self.inner_tol < _TIGHTEST or self.idle >= _PATIENCE


@dataclass(frozen=True)
class _Seen:
    """What a round sees of its solution when it looks at all samples and at the active kernels."""

    support: Rows  # of the samples with a nonzero dual in some class
    signed_duals: Array  # a = alpha y of these samples (n_sv, K)
    margins: Array  # y f(x) of all samples (n, K)
    primal: float
    active_forms: Array  # q of the active kernels
    threshold: float  # the largest q among the kernels with a weight: what an open kernel must exceed to violate


@dataclass(frozen=True)
class _Priced:
    """Candidates with their q for the duals of the round, best first; and a bound on the optimum from below."""

    ids: Array
    values: Array
    dual: float
    likely_dual: float  # D if no kernel violates more than those that were scanned
    priced: bool  # found by a scan with these duals
    scanned: bool  # of all kernels: the bound rests on it, too
    scan_s: float = 0.0
    n_scanned: int = 0


class InnerSolver(Protocol):
    """Solves MKL restricted to given kernels, and to given rows of each class; warm-started where that helps."""

    def __call__(
        self, kernels: LocallyLinearKernels, weights: Array, rows: list[Array], duals: list[Array], tol: float
    ) -> Solution: ...

    def flops(self, kernels: LocallyLinearKernels, rows: list[Array]) -> float: ...


class SequentialMKL:
    """The outer loop on data (n, d), signs (n, K) and a grid of kernels."""

    def __init__(
        self,
        data: RowSource,
        signs: Array,
        grid: KernelGrid,
        scanner: Scanner,
        crew: Crew,
        inner: InnerSolver,
        settings: Settings,
    ) -> None:
        self.data, self.signs, self.grid = data, signs, grid
        self.scanner, self.crew, self.inner, self.settings = scanner, crew, inner, settings

    def rounds(self, state: State | None = None) -> Iterator[tuple[State, Certificate]]:
        """Algorithm 2 on two working sets; ends when the certified gap is at most `tol`, or nothing helps any more.

        The state after each round holds the weights and duals that its certificate is about; kernels inserted
        for the next round have weight zero. Where `state.scanned` is false, the bound D is the one of the duals
        before; `dual_bound` gives the state's own.
        """
        state = state or self.start()
        while True:
            state, certificate = self.round(state)
            yield state, certificate
            if state.scanned and (certificate.gap <= self.settings.tol or state.stalled):
                return

    def round(self, state: State) -> tuple[State, Certificate]:
        beside = None if state.priced else self.begin_scan(state, self.share(state))
        own = None
        try:
            if beside is not None and not len(state.active):
                state = self.first_kernels(state, beside.result())
            started = time.perf_counter()
            solved, solution = self.solve_active(state)
            solve_s = time.perf_counter() - started
            lagging = None if beside is None else beside.result()
            own = self.begin_scan(solved, self.share(solved)) if self.scans_at_once(solved) else None
            started = time.perf_counter()
            seen = self.look(solved)
            margins_s = time.perf_counter() - started
            priced = self.price(state, solved, seen, lagging, None if own is None else own.result())
        finally:
            for scan in (beside, own):
                if scan is not None:
                    scan.close()
        certificate = self.certify(solved, seen, priced, solution, (solve_s, margins_s))
        following = self.renew_samples(self.insert_kernels(self.drop_kernels(solved, seen), seen, priced), seen)
        inserted = bool(np.isin(following.active, state.active, invert=True).any())
        grew = inserted or bool((following.working & ~state.working).any())
        better = certificate.gap < state.best_gap or certificate.primal < (1.0 - _FALLS) * state.best_primal
        following = replace(
            following,
            round=state.round + 1,
            inner_tol=self.next_tolerance(state.inner_tol, certificate.likely_gap, grew),
            pool=priced.ids,
            priced=priced.priced,
            scanned=priced.scanned,
            bound=max(state.bound, certificate.dual),
            best_gap=min(state.best_gap, certificate.gap),
            best_primal=min(state.best_primal, certificate.primal),
            idle=0 if better else state.idle + 1,
        )
        return following, certificate

    def start(self) -> State:
        """Working samples at random, half of each sign, with equal duals; no kernel yet."""
        settings, (n, K) = self.settings, self.signs.shape
        working, duals = np.zeros((n, K), dtype=bool), np.zeros((n, K))
        for k in range(K):
            rng = np.random.default_rng([settings.seed, 0, k])
            for sign in (1.0, -1.0):
                rows = rng.permutation(np.flatnonzero(self.signs[:, k] == sign))
                rows = rows[: max(1, settings.first_samples // 2)]
                working[rows, k] = True
                duals[rows, k] = settings.C / max(1, len(rows))
        nothing = np.empty(0, np.int64)
        return State(0, nothing, np.empty(0), working, duals, _LOOSEST, pool=nothing, priced=False, scanned=False)

    def first_kernels(self, state: State, scan: ScanResult) -> State:
        """The kernels that tell the means of the signs apart."""
        support, signed_duals = self.support_of(state)
        state = self.insert_kernels(
            state,
            _Seen(support, signed_duals, state.duals, np.inf, np.empty(0), 0.0),
            _Priced(scan.ids, scan.values, 0.0, 0.0, priced=True, scanned=scan.complete),
        )
        if not len(state.active):  # no kernel tells anything apart, and any will do
            first = np.flatnonzero(self.grid.scales.ravel())[:1]
            state = replace(state, active=first, weights=np.zeros(1))
        return state

    def support_of(self, state: State) -> tuple[Rows, Array]:
        """Rows of the samples with a nonzero dual in some class, and their signed duals."""
        rows = np.flatnonzero(state.duals.any(axis=1))
        return pick(self.data, rows, self.scanner.support_bytes), state.duals[rows] * self.signs[rows]

    def begin_scan(self, state: State, share: Share = ALL) -> Scan:
        """A scan of all kernels, or of a share, with the duals of this state."""
        return self.scanner.start(lambda: self.support_of(state), self.settings.candidates, share)

    def share(self, state: State) -> Share:
        """The blocks of anchors that a round scans, unless it could be the last one; others in the next round."""
        if self.settings.pricing == "full":
            return ALL
        most = min(_MOST_SHARES, self.grid.anchors.n_rows // _LEAST_ANCHORS)
        step = int(max(1.0, min(most, self.scan_flops(state) / max(1.0, self.solve_flops(state)))))
        return Share(state.round % step, step)

    def scans_at_once(self, state: State) -> bool:
        """Whether this round scans with its own duals, or the next one scans beside its solving with these."""
        if self.settings.overlap != "auto":
            return self.settings.overlap == "never"
        return self.scan_flops(state) <= self.share(state).step * self.solve_flops(state)

    def scan_flops(self, state: State) -> float:
        """Multiply-adds of a scan of all kernels: by arithmetic, whose answer is the same everywhere."""
        n_support, n_duals = int(state.duals.any(axis=1).sum()), int(np.count_nonzero(state.duals))
        anchors, sizes = self.grid.anchors, (len(self.grid.gammas), self.grid.anchors.n_features)
        return anchors.n_rows * scan_flops(self.grid.family, *sizes, n_support, n_duals)

    def solve_flops(self, state: State) -> float:
        """Multiply-adds of solving on the working samples and active kernels of this state."""
        rows = [np.flatnonzero(column) for column in state.working.T]
        return self.inner.flops(self.grid.take(state.active), rows)

    def solve_active(self, state: State) -> tuple[State, Solution]:
        """MKL on working samples x active kernels; what is negligible in the solution becomes zero."""
        rows = [np.flatnonzero(column) for column in state.working.T]
        before = [state.duals[r, k] for k, r in enumerate(rows)]
        solution = self.inner(self.grid.take(state.active), state.weights, rows, before, state.inner_tol)
        floor = self.settings.negligible
        weights = np.where(solution.weights < floor * solution.weights.max(), 0.0, solution.weights)
        duals, edges = np.zeros_like(state.duals), np.cumsum([len(r) for r in rows])[:-1]
        for k, part in enumerate(np.split(solution.duals, edges)):
            duals[rows[k], k] = np.where(part < floor * part.max(initial=0.0), 0.0, part)
        return replace(state, weights=weights / weights.sum(), duals=duals), solution

    def look(self, state: State) -> _Seen:
        """Pass over all samples."""
        support, signed_duals = self.support_of(state)
        active = self.grid.take(state.active)
        forms = active.quadratic_forms(support, signed_duals)
        weighted = state.weights > 0
        norm = float(state.weights @ np.sqrt(forms))
        used, weights = active.take(weighted), state.weights[weighted]
        coef, local_coef = used.coefficients(support, signed_duals, weights)
        margins = self.signs * decide_all(self.grid.family, self.data, used, coef, local_coef, self.crew)
        primal = 0.5 * norm**2 + self.settings.C * float(np.maximum(0.0, 1.0 - margins).sum())
        return _Seen(support, signed_duals, margins, primal, forms, float(forms[weighted].max(initial=0.0)))

    def price(
        self, state: State, solved: State, seen: _Seen, lagging: ScanResult | None, own: ScanResult | None
    ) -> _Priced:
        """Candidates for the duals of this round, of its own scan and of those before; all kernels, if need be."""
        scans = [scan for scan in (lagging, own) if scan is not None]
        if own is None or not own.complete:
            ids, values = self.candidates(state, seen, lagging, own)
            bound = state.bound
            if lagging is not None and lagging.complete:
                bound = max(bound, self.dual_value(state, lagging.maximum))
            likely = max(bound, self.dual_value(solved, max(values.max(initial=0.0), seen.active_forms.max())))
            open_violators = ids[(values > seen.threshold) & ~np.isin(ids, solved.active)]
            nearly = seen.primal - likely <= self.settings.tol * abs(seen.primal)
            if len(open_violators) and not nearly and not state.stalled:
                return _Priced(ids, values, bound, likely, own is not None, False, *_effort(scans))
            own = self.begin_scan(solved).result()
            scans.append(own)
        dual = self.dual_value(solved, max(own.maximum, float(seen.active_forms.max())))
        return _Priced(own.ids, own.values, dual, dual, True, True, *_effort(scans))

    def candidates(
        self, state: State, seen: _Seen, lagging: ScanResult | None, own: ScanResult | None
    ) -> tuple[Array, Array]:
        """Kernels that scans have found, this round's or earlier ones, with their q for the duals of this one."""
        old = state.pool if lagging is None else lagging.ids
        ids = np.empty(0, np.int64) if own is None else own.ids
        known = np.empty(0) if own is None else own.values
        old = old[~np.isin(old, ids)]
        values = self.grid.take(old).quadratic_forms(seen.support, seen.signed_duals)
        ids, values = np.concatenate([ids, old]), np.concatenate([known, values])
        best = np.argsort(-values, kind="stable")[: self.settings.candidates]
        return ids[best], values[best]

    def dual_value(self, state: State, largest: float) -> float:
        """D of F5 for the duals of a state, given the largest q."""
        return float(state.duals.sum()) - 0.5 * largest

    def dual_bound(self, state: State) -> float:
        """D of F5 by a scan of all kernels with the duals of this state."""
        support, signed_duals = self.support_of(state)
        forms = self.grid.take(state.active).quadratic_forms(support, signed_duals)
        return self.dual_value(state, max(self.begin_scan(state).result().maximum, float(forms.max())))

    def certify(
        self, state: State, seen: _Seen, priced: _Priced, solution: Solution, seconds: tuple[float, float]
    ) -> Certificate:
        """P and D of F5: over all samples, and over all kernels."""
        solve_s, margins_s = seconds
        return Certificate(
            primal=seen.primal,
            dual=priced.dual,
            likely_dual=priced.likely_dual,
            lagged=not priced.scanned,
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

    def drop_kernels(self, state: State, seen: _Seen) -> State:
        """Kernels of zero weight leave, except those whose q is so near the largest that they would come back."""
        near = seen.active_forms > (1.0 - self.settings.near) * seen.threshold
        keep = (state.weights > 0) | near
        return replace(state, active=state.active[keep], weights=state.weights[keep])

    def insert_kernels(self, state: State, seen: _Seen, priced: _Priced) -> State:
        """The worst violators join with weight zero, but of those with parallel responses only the best."""
        new = priced.ids[priced.values > seen.threshold]
        new = new[~np.isin(new, state.active)]
        rng = np.random.default_rng([self.settings.seed, state.round, 1])
        witnesses = max(100, self.settings.witnesses // self.signs.shape[1])
        rows = np.sort(rng.permutation(len(seen.support))[:witnesses])
        if not len(new) or not len(rows):
            return state
        responses = self.grid.take(new).responses(seen.support[rows], seen.support, seen.signed_duals)
        most = self.settings.insertions * (9 + self.signs.shape[1]) // 10
        new = new[diverse(responses, most)]
        weights = np.concatenate([state.weights, np.zeros(len(new))])
        return replace(state, active=np.concatenate([state.active, new]), weights=weights)

    def renew_samples(self, state: State, seen: _Seen) -> State:
        """Samples well beyond the margin leave; some of those within it join, at most doubling a working set.

        Which ones, chance decides: the worst of noisy data are its errors, and a machine for these is of no use.
        """
        working = state.working & (seen.margins < self.settings.margin)
        for k, margins in enumerate(seen.margins.T):
            rng = np.random.default_rng([self.settings.seed, state.round, 2, k])
            outside = rng.permutation(np.flatnonzero((margins < 1.0) & ~working[:, k]))
            working[outside[: max(self.settings.first_samples, int(working[:, k].sum()))], k] = True
        return replace(state, working=working)

    def truncated(self, state: State, max_kernels: int) -> State:
        """Only the heaviest kernels, to be solved for once more."""
        heaviest = np.sort(np.argsort(-state.weights, kind="stable")[:max_kernels])
        weights = state.weights[heaviest]
        tol = 0.2 * self.settings.tol
        return replace(state, active=state.active[heaviest], weights=weights / weights.sum(), inner_tol=tol)

    def next_tolerance(self, inner_tol: float, gap: float, grew: bool) -> float:
        """A tenth of the certified gap; a tenth of the last one if neither a kernel nor a sample was added."""
        tol = float(np.clip(0.1 * gap, 0.2 * self.settings.tol, max(_LOOSEST, 0.2 * self.settings.tol)))
        return tol if grew else min(tol, 0.1 * inner_tol)


def _effort(scans: list[ScanResult]) -> tuple[float, int]:
    """Seconds and kernels of scans."""
    return sum(scan.seconds for scan in scans), sum(scan.n_kernels for scan in scans)
