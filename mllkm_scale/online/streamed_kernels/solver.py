"""The machine of streamed kernels: MKL on working samples x active kernels (F6), with warm starts.

solve          weights and duals of the active kernels on the working samples, to a relative gap
primal_pass    all samples: margins, and P = 1/2 (sum_m |w_m|)^2 + C sum hinge; the active kernels: q_m
renew          drop samples well beyond the margin from the working set, and add some of those within it
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.executor import ThreadExecutor
from mllkm_scale.base.threads import Threads
from mllkm_scale.base.units import format_bytes
from mllkm_scale.data import Dataset
from mllkm_scale.errors import BudgetError
from mllkm_scale.gram.blocks import MatrixBlock
from mllkm_scale.mkl.inner import InnerMKL
from mllkm_scale.mkl.interior.interior_point import interior_point
from mllkm_scale.mkl.restricted import RestrictedProblem, Solution, WorkingSets
from mllkm_scale.mkl.state import Settings
from mllkm_scale.online.streamed_kernels.bounds import SupportRows
from mllkm_scale.online.streamed_kernels.grams import GramKernels
from mllkm_scale.online.streamed_kernels.lists import Kernels, LocalKernels

__all__ = ["MachineSolver", "StreamedMachine", "View"]

_BEYOND = 0.3  # of the tolerance, for the interior point; the rest is for removing kernels


@dataclass(frozen=True)
class StreamedMachine:
    """Active kernels with weights, duals (n, K), and the working samples (n, K) of each class."""

    active: Kernels
    weights: Array
    duals: Array
    working: Array

    def joined(self, kernels: Kernels) -> StreamedMachine:
        """The machine with these kernels added, at weight zero."""
        weights = np.concatenate([self.weights, np.zeros(len(kernels))])
        return replace(self, active=self.active.joined([kernels]), weights=weights)

    def only(self, mask: Array) -> StreamedMachine:
        """The machine with only the kernels of this mask."""
        return replace(self, active=self.active.take(np.flatnonzero(mask)), weights=self.weights[mask])


@dataclass(frozen=True)
class View:
    """The result of a pass over all samples and active kernels of a machine."""

    support: SupportRows
    forms: Array  # q of the active kernels (s,)
    threshold: float  # the largest q of kernels with positive weight
    margins: Array  # y f (n, K)
    primal: float

    @classmethod
    def before(cls, support: SupportRows) -> View:
        """The view without any kernel: every kernel that separates the classes violates."""
        return cls(support, np.empty(0), 0.0, np.empty(0), np.inf)


class MachineSolver:
    """Solves on the samples with signs (n, K)."""

    def __init__(self, data: Dataset, signs: Array, settings: Settings, available_bytes: int, threads: Threads) -> None:
        self.data, self.signs, self.settings, self.threads = data, signs, settings, threads
        self.available_bytes = available_bytes
        self.inner = InnerMKL(data, signs, available_bytes, seed=settings.seed, threads=threads)

    def start(self) -> tuple[Array, Array]:
        """Initial duals and working samples: random samples of each sign, with equal duals."""
        working = np.zeros(self.signs.shape, dtype=bool)
        duals = np.zeros(self.signs.shape)
        for k, signs in enumerate(self.signs.T):
            rng = np.random.default_rng([self.settings.seed, 0, k])
            for sign in (1.0, -1.0):
                rows = rng.permutation(np.flatnonzero(signs == sign))[: self.settings.first_samples // 2]
                working[rows, k] = True
                duals[rows, k] = self.settings.C / max(1, len(rows))
        return duals, working

    def solve(self, machine: StreamedMachine, tol: float) -> StreamedMachine:
        """MKL on working samples x active kernels."""
        rows = [np.flatnonzero(column) for column in machine.working.T]
        starts = [machine.duals[r, k] for k, r in enumerate(rows)]
        solution = self._solution(machine, rows, starts, tol)
        duals = np.zeros_like(machine.duals)
        for k, part in enumerate(np.split(solution.duals, np.cumsum([len(r) for r in rows])[:-1])):
            duals[rows[k], k] = part
        return replace(machine, weights=solution.weights, duals=duals)

    def _solution(self, machine: StreamedMachine, rows: list[Array], starts: list[Array], tol: float) -> Solution:
        kernels, box = machine.active, self.settings.box(len(self.signs))
        if isinstance(kernels, LocalKernels):
            return self.inner(WorkingSets(kernels.plain, machine.weights, rows, starts, box), tol)
        assert isinstance(kernels, GramKernels)
        self._require_room(len(kernels), rows)
        blocks = [MatrixBlock(kernels.grams(self._rows(r)), self.signs[r, k]) for k, r in enumerate(rows)]
        near = machine.weights, np.concatenate(starts)
        return interior_point(
            RestrictedProblem(blocks, self.settings.C, self.threads), _BEYOND * tol, pure_tol=tol, near=near
        )

    def _require_room(self, n_kernels: int, rows: list[Array]) -> None:
        needed = 8 * (n_kernels + 4) * sum(len(r) ** 2 for r in rows)
        if needed > self.available_bytes:
            raise BudgetError(
                f"memory_budget={format_bytes(self.available_bytes)}: the Grams of {n_kernels} active kernels on the"
                f" working samples take {format_bytes(needed)}: give at least that, a smaller C, or fewer samples"
            )

    def primal_pass(self, machine: StreamedMachine) -> View:
        """Pass over all samples."""
        support = self.support_of(machine.duals)
        forms = machine.active.forms(support.rows, support.signed_duals)
        norm = float(machine.weights @ np.sqrt(forms))
        margins = self.signs * self.decide(machine, self.data, support)
        hinge = float(np.maximum(0.0, 1.0 - margins).sum())
        threshold = float(forms[machine.weights > 0].max())
        return View(support, forms, threshold, margins, 0.5 * norm**2 + self.settings.C * hinge)

    def decide(self, machine: StreamedMachine, data: Dataset, support: SupportRows) -> Array:
        """f (rows of data, K)."""
        used = machine.only(machine.weights > 0)
        executor = ThreadExecutor(self.threads)
        return used.active.decide(data, support.rows, support.signed_duals, used.weights, executor)

    def support_of(self, duals: Array) -> SupportRows:
        rows = np.flatnonzero(duals.any(axis=1))
        return SupportRows(self._rows(rows), duals[rows] * self.signs[rows])

    def renewed(self, machine: StreamedMachine, view: View, round: int) -> StreamedMachine:
        """Drop samples well beyond the margin, and add some of those within it, at most doubling a working set."""
        working = machine.working & (view.margins < self.settings.margin)
        for k, margins in enumerate(view.margins.T):
            rng = np.random.default_rng([self.settings.seed, round, 2, k])
            outside = rng.permutation(np.flatnonzero((margins < 1.0) & ~working[:, k]))
            working[outside[: max(self.settings.first_samples, int(working[:, k].sum()))], k] = True
            working[np.argmin(margins), k] |= not working[:, k].any()
        return replace(machine, working=working)

    def _rows(self, rows: Array) -> Array:
        return self.data.rows(rows).astype(np.float64)
