"""SequentialMKL with two working sets (F6): the outer loop of training.

Each round solves MKL on working samples x active kernels, checks all samples (the margins) and all kernels of the open
set (the scan), and thereby certifies a relative duality gap for the problem with ALL samples and ALL kernels (F5):

    D = sum alpha - 1/2 max over all m of q_m(alpha)  <=  optimum  <=  P = 1/2 (sum_m |w_m|)^2 + C sum hinge

A round is a function of the state before it and of nothing else, so that a training resumed from a checkpoint goes on
with the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.kernels.grid import KernelGrid, RowSource
from mllkm_scale.kernels.locally_linear import LocallyLinearKernels
from mllkm_scale.mkl.certificate import Certificate
from mllkm_scale.mkl.diversity import diverse
from mllkm_scale.mkl.restricted import Solution
from mllkm_scale.scan.local import ScanResult

__all__ = ["InnerSolver", "Scanner", "SequentialMKL", "Settings", "State"]

Array = NDArray[Any]

_PATIENCE = 30  # rounds without a smaller gap
_LOOSEST, _TIGHTEST = 3e-3, 1e-8  # bounds of the inner tolerance


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
    best_gap: float = np.inf  # certified so far
    idle: int = 0  # rounds since

    @property
    def stalled(self) -> bool:
        """Nothing is left to insert and rounding forbids a tighter solution, or the gap has not fallen for long."""
        return self.inner_tol < _TIGHTEST or self.idle >= _PATIENCE


@dataclass(frozen=True)
class _Seen:
    """What a round sees of its solution when it looks at all samples and all kernels."""

    support: Array  # rows of the samples with a nonzero dual in some class
    signed_duals: Array  # a = alpha y of these samples (n_sv, K)
    margins: Array  # y f(x) of all samples (n, K)
    norm: float  # sum_m |w_m|
    scan: ScanResult  # of the open set
    active_forms: Array  # q of the active kernels
    threshold: float  # the largest q among the kernels with a weight: what an open kernel must exceed to violate
    margins_s: float
    scan_s: float


class Scanner(Protocol):
    """Scans the open set; local or distributed."""

    def scan(self, X: Array, signed_duals: Array, count: int) -> ScanResult: ...


class InnerSolver(Protocol):
    """Solves MKL restricted to given kernels, and to given rows of each class; warm-started where that helps."""

    def __call__(
        self, kernels: LocallyLinearKernels, weights: Array, rows: list[Array], duals: list[Array], tol: float
    ) -> Solution: ...


class SequentialMKL:
    """The outer loop on data (n, d), signs (n, K) and a grid of kernels."""

    def __init__(
        self,
        data: RowSource,
        signs: Array,
        grid: KernelGrid,
        scanner: Scanner,
        inner: InnerSolver,
        settings: Settings,
        poll: Callable[[], None] = lambda: None,
    ) -> None:
        self.data, self.signs, self.grid = data, signs, grid
        self.scanner, self.inner, self.settings, self.poll = scanner, inner, settings, poll

    def rounds(self, state: State | None = None) -> Iterator[tuple[State, Certificate]]:
        """Algorithm 2 on two working sets; ends when the certified gap is at most `tol`, or nothing helps any more.

        The state after each round holds the weights and duals that its certificate is about; kernels inserted
        for the next round have weight zero. `poll` is called often and may raise to interrupt a round.
        """
        state = state or self.start()
        while True:
            state, certificate = self.round(state)
            yield state, certificate
            if certificate.gap <= self.settings.tol or state.stalled:
                return

    def round(self, state: State) -> tuple[State, Certificate]:
        started = time.perf_counter()
        solved, solution = self.solve_active(state)
        solve_s = time.perf_counter() - started
        seen = self.look(solved)
        certificate = self.certify(solved, seen, solution, solve_s)
        following = self.renew_samples(self.insert_kernels(self.drop_kernels(solved, seen), seen), seen)
        inserted = bool(np.isin(following.active, state.active, invert=True).any())
        grew = inserted or bool((following.working & ~state.working).any())
        tol = self.next_tolerance(state.inner_tol, certificate.gap, grew)
        best, idle = (certificate.gap, 0) if certificate.gap < state.best_gap else (state.best_gap, state.idle + 1)
        return replace(following, round=state.round + 1, inner_tol=tol, best_gap=best, idle=idle), certificate

    def start(self) -> State:
        """Working samples at random, half of each sign; the kernels that tell the means of the signs apart."""
        settings, (n, K) = self.settings, self.signs.shape
        working, duals = np.zeros((n, K), dtype=bool), np.zeros((n, K))
        for k in range(K):
            rng = np.random.default_rng([settings.seed, 0, k])
            for sign in (1.0, -1.0):
                rows = rng.permutation(np.flatnonzero(self.signs[:, k] == sign))
                rows = rows[: max(1, settings.first_samples // 2)]
                working[rows, k] = True
                duals[rows, k] = settings.C / max(1, len(rows))
        state = State(0, np.empty(0, np.int64), np.empty(0), working, duals, _LOOSEST)
        state = self.insert_kernels(state, self.look(state))
        if not len(state.active):  # no kernel tells anything apart, and any will do
            first = np.flatnonzero(self.grid.scales.ravel())[:1]
            state = replace(state, active=first, weights=np.zeros(1))
        return state

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
        """Pass over all samples, and scan all kernels."""
        started = time.perf_counter()
        rows = np.flatnonzero(state.duals.any(axis=1))
        support, signed_duals = self.data.rows(rows).astype(np.float64), state.duals[rows] * self.signs[rows]
        active = self.grid.take(state.active)
        forms = active.quadratic_forms(support, signed_duals)
        weighted = state.weights > 0
        norm = float(state.weights @ np.sqrt(forms))
        margins = self.pass_samples(active.take(weighted), state.weights[weighted], support, signed_duals)
        passed = time.perf_counter()
        scan = self.scanner.scan(support, signed_duals, self.settings.candidates)
        threshold = float(forms[weighted].max(initial=0.0))
        times = passed - started, time.perf_counter() - passed
        return _Seen(support, signed_duals, margins, norm, scan, forms, threshold, *times)

    def pass_samples(self, kernels: LocallyLinearKernels, weights: Array, support: Array, signed_duals: Array) -> Array:
        """y f(x) of every sample and class (n, K), in one pass over the chunks."""
        F = np.zeros_like(self.signs)
        if len(kernels):
            coef, local_coef = kernels.coefficients(support, signed_duals, weights)
            for start, chunk in self.data.chunks():
                self.poll()
                F[start : start + len(chunk)] = kernels.decide(chunk.astype(np.float64), coef, local_coef)
        return self.signs * F

    def certify(self, state: State, seen: _Seen, solution: Solution, solve_s: float) -> Certificate:
        """P and D of F5: over all samples, and over all kernels."""
        largest = max(seen.scan.maximum, float(seen.active_forms.max()))
        return Certificate(
            primal=0.5 * seen.norm**2 + self.settings.C * float(np.maximum(0.0, 1.0 - seen.margins).sum()),
            dual=float(state.duals.sum()) - 0.5 * largest,
            n_active=int(np.count_nonzero(state.weights)),
            n_support=len(seen.support),
            n_working=int(state.working.sum()),
            n_violating_samples=int(((seen.margins < 1.0) & ~state.working).sum()),
            n_violating_kernels=int((seen.scan.values > seen.threshold).sum()),
            inner_gap=solution.objective.gap,
            inner_steps=solution.steps,
            solve_s=solve_s,
            margins_s=seen.margins_s,
            scan_s=seen.scan_s,
        )

    def drop_kernels(self, state: State, seen: _Seen) -> State:
        """Kernels of zero weight leave, except those whose q is so near the largest that they would come back."""
        near = seen.active_forms > (1.0 - self.settings.near) * seen.threshold
        keep = (state.weights > 0) | near
        return replace(state, active=state.active[keep], weights=state.weights[keep])

    def insert_kernels(self, state: State, seen: _Seen) -> State:
        """The worst violators join with weight zero, but of those with parallel responses only the best."""
        new = seen.scan.ids[seen.scan.values > seen.threshold]
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
        """Samples well beyond the margin leave; the worst of those within it join, at most doubling a working set."""
        working = state.working & (seen.margins < self.settings.margin)
        for k, margins in enumerate(seen.margins.T):
            outside = np.flatnonzero((margins < 1.0) & ~working[:, k])
            worst = outside[np.argsort(margins[outside], kind="stable")]
            working[worst[: max(self.settings.first_samples, int(working[:, k].sum()))], k] = True
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
