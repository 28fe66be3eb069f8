"""SequentialMKL as the paper prints it (Algorithm 2), on any family of kernels, all samples in memory.

    S <- {k_1}, O <- the others, beta <- 1
    repeat
        K <- sum over S of beta_m k_m,  alpha <- SDCA(K)
        g <- max over S of 1/2 q_m(alpha)
        every k_m of O with 1/2 q_m(alpha) > g enters S
        beta <- SolveMKL(S), which is SimpleMKL
        every k_m with beta_m = 0 leaves S
    until none has entered

The listing leaves the numerical tolerances open. alpha and beta are optimal only to a tolerance, so a kernel violates
if q_m > (1 + tol/2) max over S of q. SolveMKL is solved to a tenth of the gap over the whole family (F5), and finally
to tol/2. If no kernel violates then, that gap is at most tol/2 + tol/2 g/P <= tol. The loop ends at a gap of tol, or if
J(beta) no longer decreases with smaller tolerances of SolveMKL.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.mkl.certificate import Certificate, dual_value
from mllkm_scale.mkl.families import KernelFamily
from mllkm_scale.mkl.oracle import Evaluation, Oracle
from mllkm_scale.mkl.simple import simple_mkl
from mllkm_scale.mkl.state import Machine
from mllkm_scale.solver.box import Box
from mllkm_scale.solver.svm import DenseSVM

__all__ = ["PaperMKL", "PaperState"]

_LOOSEST_TOL = 0.1  # of SolveMKL
_TIGHTEST_TOL = 1e-3  # of SolveMKL, times tol: its smallest tolerance


@dataclass(frozen=True)
class PaperState:
    """All that the next round depends on."""

    round: int
    active: Array  # S: ids (s,)
    weights: Array  # beta (s,)
    duals: Array  # alpha (n, K)
    violators: Array  # ids that enter S next, the worst first
    inner_tol: float  # relative gap of the next SolveMKL
    value: float  # the lowest J(beta) so far, from above
    stalled: bool  # J no longer decreases

    @property
    def machine(self) -> Machine:
        return Machine(self.active, self.weights, self.duals)

    @property
    def proof(self) -> Array:
        """Duals of the certificate: those of all samples."""
        return self.duals


class PaperMKL:
    """Algorithm 2.

    Parameters
    ----------
    family : KernelFamily
    X : array (n, d)
    signs : array (n, K)
        Labels of each class, -1 and +1; the classes share the weights.
    C : float or Box
    tol : float
        Relative duality gap over all kernels at which the loop ends.
    insertions : int, optional
        Largest number of kernels that enter in a round, the worst violators first; by default all violators, as in the
        paper.
    seed : int
        Seed of the orders in which SDCA visits the samples.
    max_epochs : int
        Largest number of epochs of SDCA for one SVM.
    poll : callable
        Called between two steps of SolveMKL; an exception that it raises ends the training.

    Examples
    --------
    >>> from mllkm_scale.kernels.generic import GenericFamily
    >>> X = np.linspace(-1, 1, 20)[:, None]
    >>> signs = np.where(np.abs(X) < 0.5, 1.0, -1.0)
    >>> mkl = PaperMKL(GenericFamily.fit(X), X, signs, C=10.0, tol=1e-3)
    >>> *_, (state, last) = mkl.rounds()
    >>> last.gap <= 1e-3, bool(np.all(mkl.decide(state, X) * signs > 0))
    (True, True)
    """

    def __init__(
        self,
        family: KernelFamily,
        X: Array,
        signs: Array,
        C: float | Box,
        tol: float,
        *,
        insertions: int | None = None,
        seed: int = 0,
        max_epochs: int = 1000,
        poll: Callable[[], None] = lambda: None,
    ) -> None:
        self.family, self.X, self.signs = family, X.astype(np.float64), signs
        self.box, self.tol, self.insertions = Box.of(C, len(X)), tol, insertions
        self.seed, self.max_epochs, self.poll = seed, max_epochs, poll

    def rounds(self, state: PaperState | None = None) -> Iterator[tuple[PaperState, Certificate]]:
        """The state after each round, and its certificate; training continues from a given state."""
        state = state or self.start()
        while True:
            started = time.perf_counter()
            state, inner_steps = self.solve_mkl(self.insert(state)) if state.round else (state, 0)
            state, svm = self.solve_svm(self.drop(state))
            solved = time.perf_counter()
            q = self.family.quadratic_forms(self.X, state.duals * self.signs)
            violators = self.violators(state, q)
            report = Certificate(
                primal=svm.objective.primal,
                dual=dual_value(float(state.duals.sum()), float(q.max())),
                n_active=len(state.active),
                n_support=int(state.duals.any(axis=1).sum()),
                n_working=self.signs.size,
                n_violating_samples=0,
                n_violating_kernels=len(violators),
                inner_gap=svm.objective.gap,
                inner_steps=inner_steps,
                solve_s=solved - started,
                margins_s=0.0,
                scan_s=time.perf_counter() - solved,
                n_scanned=len(q),
            )
            state = self.settle(state, violators, value_from_above(svm), report.gap)
            yield state, report
            if report.gap <= self.tol or state.stalled:
                return

    def start(self) -> PaperState:
        """S = {k_1}, the first kernel that is not excluded; beta = 1, alpha = 0."""
        first = np.flatnonzero(self.family.scales)[:1]
        nothing = np.empty(0, dtype=np.int64)
        return PaperState(0, first, np.ones(1), np.zeros(self.signs.shape), nothing, _LOOSEST_TOL, np.inf, False)

    def insert(self, state: PaperState) -> PaperState:
        """The violators enter S, with weight zero."""
        active = np.concatenate([state.active, state.violators])
        return replace(state, active=active, weights=np.concatenate([state.weights, np.zeros(len(state.violators))]))

    def solve_mkl(self, state: PaperState) -> tuple[PaperState, int]:
        """beta <- SolveMKL(S)."""
        solution = simple_mkl(self.oracle(state), state.weights, state.inner_tol, poll=self.poll)
        duals = solution.duals.reshape(self.signs.shape[::-1]).T
        return replace(state, weights=solution.weights, duals=duals), solution.steps

    def drop(self, state: PaperState) -> PaperState:
        """Kernels whose weight is zero leave S."""
        used = state.weights > 0
        return replace(state, active=state.active[used], weights=state.weights[used])

    def solve_svm(self, state: PaperState) -> tuple[PaperState, Evaluation]:
        """K <- sum over S of beta_m k_m,  alpha <- SDCA(K)."""
        evaluation = self.oracle(state).evaluate(state.weights, 0.1 * state.inner_tol)
        return replace(state, duals=np.stack(evaluation.duals, axis=1)), evaluation

    def violators(self, state: PaperState, q: Array) -> Array:
        """Kernels of O whose q exceeds the largest of S by more than the slack, the worst first."""
        candidates = np.flatnonzero(q > (1.0 + 0.5 * self.tol) * q[state.active].max())
        return candidates[np.argsort(-q[candidates], kind="stable")]

    def settle(self, state: PaperState, violators: Array, value: float, gap: float) -> PaperState:
        """The end of a round: the kernels to insert next, and the next tolerance of SolveMKL."""
        if value < state.value:
            inner_tol = min(state.inner_tol, max(0.5 * self.tol, 0.1 * gap))
        else:  # the duals are not exact enough to tell whether J has decreased
            inner_tol = 0.1 * state.inner_tol
        return replace(
            state,
            round=state.round + 1,
            violators=violators[: self.insertions],
            inner_tol=inner_tol,
            value=min(value, state.value),
            stalled=inner_tol < _TIGHTEST_TOL * self.tol,
        )

    def budget_spent(self, state: PaperState) -> bool:
        """False: Algorithm 2 has no budget of kernels; its machine is truncated at the end."""
        return False

    def truncated(self, state: PaperState, max_kernels: int) -> PaperState:
        """Only the kernels with the largest weights, to be solved for again."""
        heaviest = np.sort(np.argsort(-state.weights, kind="stable")[:max_kernels])
        weights = state.weights[heaviest]
        return replace(
            state,
            active=state.active[heaviest],
            weights=weights / weights.sum(),
            violators=state.violators[:0],
        )

    def warm(self, state: PaperState, C_before: float) -> PaperState:
        """The solution of the problem with another C as the start of this one; duals at their bound stay there."""
        upper, before = self.box.upper[:, None], replace(self.box, C=C_before).upper[:, None]
        duals = np.where(state.duals == before, upper, np.minimum(state.duals, upper))
        return replace(state, round=0, duals=duals, inner_tol=_LOOSEST_TOL, value=np.inf, stalled=False)

    def oracle(self, state: PaperState) -> Oracle:
        """SDCA on the combined Gram of the active kernels, for every class, from the duals of the state."""
        active = self.family.active(state.active, self.X)
        svms = [DenseSVM(active.gram, y, self.box, (self.seed, state.round, k)) for k, y in enumerate(self.signs.T)]

        def forms(k: int, duals: Array) -> Array:
            return active.forms((duals * self.signs[:, k])[:, None])

        oracle = Oracle(svms, forms, self.max_epochs)
        oracle.duals = [a.copy() for a in state.duals.T]
        return oracle

    def decide(self, state: PaperState, X: Array) -> Array:
        """f_k(x) for every row of X, shape (rows, K)."""
        rows = np.flatnonzero(state.duals.any(axis=1))
        K = self.family.combined_gram(state.active, state.weights, X.astype(np.float64), self.X[rows])
        return np.asarray(K @ (state.duals[rows] * self.signs[rows]))


def value_from_above(svm: Evaluation) -> float:
    """J(beta) <= 1/2 sum_m beta_m q_m + sum C_i hinge_i, the primal value of the SVMs."""
    norm = float(svm.weights @ np.sqrt(svm.forms))
    return svm.objective.primal + 0.5 * (float(svm.weights @ svm.forms) - norm**2)
