"""SequentialMKL with two working sets (F6): the outer loop of training.

Each round solves MKL on working samples x active kernels, checks all samples (margins) and all kernels of the open set
(the scan), and thereby certifies a relative duality gap for the problem with ALL samples and ALL kernels (F5):

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
from mllkm_scale.mkl.restricted import Objective, Solution
from mllkm_scale.scan.local import ScanResult

__all__ = ["Certificate", "InnerSolver", "Scanner", "SequentialMKL", "Settings", "State"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Settings:
    """How the outer loop goes."""

    C: float = 1.0
    tol: float = 0.01
    max_kernels: int | None = None
    max_rounds: int | None = None
    insertions: int = 100  # kernels inserted a round, at most
    first_samples: int = 200  # working samples of a class in the first round
    margin: float = 1.1  # samples beyond it leave the working set
    seed: int = 0


@dataclass(frozen=True)
class State:
    """All that the next round depends on."""

    round: int
    active: Array  # ids of the active kernels (s,)
    weights: Array  # (s,)
    working: Array  # (n, K) bool: the working samples of each class
    duals: Array  # (n, K)
    gap: float  # certified by the last round


@dataclass(frozen=True)
class Certificate(Objective):
    """What a round proved, and what it saw on the way."""

    n_open: int
    n_active: int
    n_support: int
    n_violating_samples: int
    n_violating_kernels: int
    inner_gap: float
    inner_steps: int
    solve_s: float
    margins_s: float
    scan_s: float


class Scanner(Protocol):
    """Scans the open set; local or distributed."""

    def scan(self, X: Array, signed_duals: Array, count: int) -> ScanResult: ...


class InnerSolver(Protocol):
    """Solves MKL restricted to given rows of each class and given kernels."""

    def __call__(
        self, kernels: LocallyLinearKernels, weights: Array, rows: list[Array], duals: list[Array], tol: float
    ) -> Solution: ...


class SequentialMKL:
    """The outer loop; `rounds` yields the state and certificate after each round."""

    def __init__(
        self,
        data: RowSource,
        signs: Array,
        grid: KernelGrid,
        scanner: Scanner,
        inner: InnerSolver,
        settings: Settings,
    ) -> None:
        self.data, self.signs, self.grid = data, signs, grid
        self.scanner, self.inner, self.settings = scanner, inner, settings

    def rounds(self, state: State | None = None) -> Iterator[tuple[State, Certificate]]:
        """Algorithm 2 on two working sets, until the certified gap is at most `tol`."""
        state = state or self.start()
        while True:
            started = time.perf_counter()
            state, solution = self.solve_active(state)
            solved = time.perf_counter()
            margins = self.margins(state)
            passed = time.perf_counter()
            scan = self.scan_open(state)
            certificate = self.certify(state, margins, scan, solution, (solved - started, passed - solved))
            state = replace(state, round=state.round + 1, gap=certificate.gap)
            following = self.insert(self.drop(state, scan), margins, scan)
            yield following, certificate
            if certificate.gap <= self.settings.tol:
                return
            state = following

    def start(self) -> State:
        """Working samples at random, half of each sign; the kernels that separate their means best."""
        settings, (n, K) = self.settings, self.signs.shape
        working = np.zeros((n, K), dtype=bool)
        duals = np.zeros((n, K))
        for k in range(K):
            rng = np.random.default_rng([settings.seed, 0, k])
            for sign in (1.0, -1.0):
                rows = np.flatnonzero(self.signs[:, k] == sign)
                chosen = rng.permutation(rows)[: max(1, settings.first_samples // 2)]
                working[chosen, k] = True
                duals[chosen, k] = min(1.0, settings.C) / len(chosen)
        nothing = np.empty(0)
        state = State(0, nothing.astype(np.int64), nothing, working, duals, np.inf)
        return self.insert_kernels(state, self.scan_open(state), threshold=0.0)

    def solve_active(self, state: State) -> tuple[State, Solution]:
        """MKL on working samples x active kernels; what is negligible in its solution becomes zero."""
        settings = self.settings
        tol = np.clip(0.1 * state.gap, 0.2 * settings.tol, 3e-2)
        rows = [np.flatnonzero(column) for column in state.working.T]
        before = [state.duals[r, k] for k, r in enumerate(rows)]
        solution = self.inner(self.grid.take(state.active), state.weights, rows, before, float(tol))
        weights = np.where(solution.weights < 1e-4 * solution.weights.max(), 0.0, solution.weights)
        weights /= weights.sum()
        duals = np.zeros_like(state.duals)
        start = 0
        for k, r in enumerate(rows):
            duals[r, k] = solution.duals[start : start + len(r)]
            start += len(r)
        duals[duals < 1e-4 * settings.C] = 0.0
        return replace(state, weights=weights, duals=duals), solution

    def margins(self, state: State) -> tuple[Array, float]:
        """y f(x) of every sample and class (n, K), in one pass over the chunks, and the norm sum_m |w_m|."""
        used = np.flatnonzero(state.weights)
        kernels, weights = self.grid.take(state.active[used]), state.weights[used]
        X, signed = self.support(state)
        coef, local = kernels.coefficients(X, signed, weights)
        q = kernels.quadratic_forms(X, signed)
        F = np.empty_like(state.duals)
        for start, chunk in self.data.chunks():
            F[start : start + len(chunk)] = kernels.decide(chunk.astype(np.float64), coef, local)
        return self.signs * F, float(weights @ np.sqrt(q))

    def support(self, state: State) -> tuple[Array, Array]:
        """Rows and signed duals of the samples that have a nonzero dual in some class."""
        rows = np.flatnonzero(state.duals.any(axis=1))
        return self.data.rows(rows).astype(np.float64), state.duals[rows] * self.signs[rows]

    def scan_open(self, state: State) -> ScanResult:
        X, signed = self.support(state)
        return self.scanner.scan(X, signed, POOL * self.settings.insertions)

    def certify(self, state: State, margins: tuple[Array, float], scan: ScanResult, solution: Solution, times: tuple[float, float]) -> Certificate:
        M, norm = margins
        hinge = np.maximum(0.0, 1.0 - M)
        primal = 0.5 * norm**2 + self.settings.C * hinge.sum()
        dual = state.duals.sum() - 0.5 * scan.maximum
        return Certificate(
            float(primal), float(dual), self.grid.n_open, int(np.count_nonzero(state.weights)),
            int(state.duals.any(axis=1).sum()), int(((M < 1) & ~state.working).sum()), 0,
            solution.objective.gap, solution.steps, times[0], times[1], scan.seconds)

    def drop(self, state: State, scan: ScanResult) -> State:
        X, signed = self.support(state)
        q = self.grid.take(state.active).quadratic_forms(X, signed)
        self.threshold = float(q[state.weights > 0].max())
        keep = (state.weights > 0) | (q > (1 - 0.02) * self.threshold)
        return replace(state, active=state.active[keep], weights=state.weights[keep])

    def insert(self, state: State, margins: tuple[Array, float], scan: ScanResult) -> State:
        M, _ = margins
        working = state.working & (M < self.settings.margin)
        for k in range(M.shape[1]):
            outside = np.flatnonzero((M[:, k] < 1) & ~working[:, k])
            worst = outside[np.argsort(M[outside, k], kind="stable")]
            working[worst[: max(self.settings.first_samples, int(working[:, k].sum()))], k] = True
        return self.insert_kernels(replace(state, working=working), scan, self.threshold)

    def insert_kernels(self, state: State, scan: ScanResult, threshold: float) -> State:
        new = scan.ids[scan.values > threshold]
        new = new[~np.isin(new, state.active)]
        new = self.diverse(state, new)
        self.inserted = len(new)
        return replace(state, active=np.concatenate([state.active, new]), weights=np.concatenate([state.weights, np.zeros(len(new))]))

    def diverse(self, state, ids):
        if not len(ids): return ids
        X, signed = self.support(state)
        if len(X) > 1000:
            sub=np.random.default_rng([self.settings.seed,state.round,7]).permutation(len(X))[:1000]
        else: sub=np.arange(len(X))
        k=self.grid.take(ids)
        Us=[]
        V,r=k._moments(X,signed)
        H=k.bumps(X[sub])
        for c in range(signed.shape[1]):
            Us.append(H*(X[sub]@V[c].T-(V[c]*k.anchors).sum(1)+k.local_bias*r[c]))
        U=np.concatenate(Us); U/=np.sqrt((U*U).sum(0))
        alive=np.ones(len(ids),bool); chosen=[]
        for i in range(len(ids)):
            if not alive[i]: continue
            chosen.append(i)
            if len(chosen)==self.settings.insertions: break
            alive&=(U.T@U[:,i])<COS
        return ids[chosen]
POOL=20
COS=0.9
