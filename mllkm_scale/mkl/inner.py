"""MKL on the working sets, in the form that fits into memory: interior point, features, or tiles."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.memory import give_back
from mllkm_scale.base.threads import Threads
from mllkm_scale.gram.blocks import Block, make_block, vectors_of
from mllkm_scale.gram.store import TileStatistics, TileStore
from mllkm_scale.kernels.grid import RowSource
from mllkm_scale.kernels.locally_linear import ComponentKernels
from mllkm_scale.mkl.alternating import alternating_mkl
from mllkm_scale.mkl.ascent import ClassSamples, joint_ascent, with_a_share
from mllkm_scale.mkl.forms import (
    FIRST_ORDER,
    FIRST_ORDER_TOL,
    THREADS,
    Choice,
    InnerSizes,
    choose_form,
    feature_bytes,
    inner_flops,
    interior_flops,
    interior_form,
    most_epochs,
    threads_that_fit,
    tile_bytes,
)
from mllkm_scale.mkl.free_samples import free_samples_mkl
from mllkm_scale.mkl.interior.interior_point import interior_point
from mllkm_scale.mkl.oracle import Oracle
from mllkm_scale.mkl.restricted import HeldSamples, RestrictedProblem, Solution, WorkingSets
from mllkm_scale.solver.box import Box
from mllkm_scale.solver.feature_svm import FeatureSVM, samples_on_features
from mllkm_scale.solver.svm import SVM, EpochLimits, SVMSolution
from mllkm_scale.solver.tiled_svm import TiledSVM

__all__ = ["InnerMKL"]

_BEYOND = 0.3  # of the tolerance, for the interior point; the rest is for removing kernels and duals
_ENOUGH = 1.5  # times the tolerance, which epochs may leave: to come nearer, what follows costs many times as much
_NEW_SHARE = 0.2  # of the weight, for all new kernels together, before the interior point starts
_LITTLE = 0.05  # of the memory: it fits into the reserve of the plan, and trimming a large heap takes long


@dataclass
class InnerMKL:
    """The inner solver within `available_bytes`; `choices` counts the forms used, and `statistics` adds up those of the
    tile stores."""

    data: RowSource
    signs: Array
    available_bytes: int
    disk_bytes: int = 0
    scratch_dir: Path | None = None
    seed: int = 0
    threads: Threads = field(default_factory=Threads)
    poll: Callable[[], None] = lambda: None
    choices: dict[str, int] = field(default_factory=dict)
    statistics: list[TileStatistics] = field(default_factory=list)

    def __call__(self, sets: WorkingSets, tol: float) -> Solution:
        """The solution to the relative gap `tol`, in the form chosen for these sizes."""
        choice = self.choose(self.sizes(sets, tol))
        self.choices[choice.form] = self.choices.get(choice.form, 0) + 1
        if choice.bytes < _LITTLE * self.available_bytes:
            return self.solve(choice, sets, tol)
        give_back()
        try:
            return self.solve(choice, sets, tol)
        finally:
            give_back()

    def solve(self, choice: Choice, sets: WorkingSets, tol: float) -> Solution:
        """Epochs as long as they are likely to be cheaper than the chosen form; then that form."""
        sizes, first_order = self.sizes(sets, tol), choice.form in FIRST_ORDER
        if first_order or feature_bytes(sizes) <= choice.bytes:
            found = self.ascend(choice, sets, tol, most_epochs(sizes, choice.form))
            if found.objective.gap <= _ENOUGH * tol:
                return found
            sets = sets.near(found)
        follow = self.interior_point if choice.form in ("dense", "lean") else self.alternate
        return follow(choice, sets, tol)

    def flops(self, sets: WorkingSets) -> float:
        """Multiply-adds of a call, roughly."""
        sizes = self.sizes(sets)
        return inner_flops(sizes, self.choose(sizes).form)

    def choose(self, sizes: InnerSizes) -> Choice:
        return choose_form(sizes, self.available_bytes, self.disk_bytes)

    def sizes(self, sets: WorkingSets, tol: float = 1.0) -> InnerSizes:
        kernels, working = sets.kernels, [len(r) for r in sets.rows]
        itemsize = self.data.rows(np.empty(0, np.int64)).itemsize
        componentwise = isinstance(kernels, ComponentKernels)
        return InnerSizes(working, len(kernels), kernels.n_features, componentwise, itemsize, tol)

    def record(self) -> dict[str, Any]:
        """How often each form was used, and the totals of the tile stores."""
        totals: dict[str, int] = {}
        for statistics in self.statistics:
            for name, value in asdict(statistics).items():
                totals[name] = max(totals.get(name, 0), value) if "bytes" in name else totals.get(name, 0) + value
        return {"forms": dict(self.choices), "tiles": totals}

    def interior_point(
        self, choice: Choice, sets: WorkingSets, tol: float, held: HeldSamples | None = None
    ) -> Solution:
        """Weights and duals together, in the dense or the lean form; duals of other samples may be held."""
        sizes = self.sizes(sets, tol)
        near = sets.weights, np.concatenate(sets.duals)
        with self.threads.at_most(threads_that_fit(sizes, choice, self.available_bytes)) as threads:
            blocks = threads.run(lambda k: self.block(choice, sets, k), range(len(sets.rows)))
            box = Box(sets.box.C, np.concatenate([own.weights for own in sets.boxes]))
            lean, by_columns = choice.form == "lean", sizes.by_columns
            problem = RestrictedProblem(blocks, box, threads, lean=lean, by_columns=by_columns, held=held)
            solution = interior_point(problem, _BEYOND * tol, pure_tol=tol, near=near, poll=self.poll)
            if by_columns and solution.objective.gap > tol and self.fits(replace(sizes, tol=0.0)):
                problem.by_columns, near = False, (solution.weights, solution.duals)
                solution = interior_point(problem, _BEYOND * tol, pure_tol=tol, near=near, poll=self.poll)
        return solution

    def ascend(self, choice: Choice, sets: WorkingSets, tol: float, most: float) -> Solution:
        """Epochs of SDCA with weight updates between them (`ascent`).

        New kernels get a share of the weight. For the previous duals, which were solved without them, their forms are
        far above the others, and the interior point would need many short steps.
        """
        dtype = np.float32 if tol >= FIRST_ORDER_TOL else np.float64
        weights = with_a_share(sets.weights, _NEW_SHARE)
        starts, boxes, keep = clipped(sets), sets.boxes, choice.form != "streamed"

        with self.threads.at_most(THREADS) as threads:
            alone = Threads()
            by_class, within = (threads, alone) if len(boxes) > 1 else (alone, threads)

            def samples(k: int) -> ClassSamples:
                X, signs = self.data.rows(sets.rows[k]), self.signs[sets.rows[k], k]
                own = weights, X, signs, boxes[k], starts[k], dtype, within
                return samples_on_features(sets.kernels, *own, keep=keep)

            classes = by_class.run(samples, range(len(boxes)))
            limits = tol, most, self.seed
            return joint_ascent(classes, boxes, weights, *limits, by_class, self.poll)

    def fits(self, sizes: InnerSizes) -> bool:
        """Whether there is memory for the interior point."""
        return interior_form(sizes, self.available_bytes) is not None

    def block(self, choice: Choice, sets: WorkingSets, k: int) -> Block:
        """The working samples of a class; a lean block keeps bumps in single precision, and rows in their stored
        type."""
        X, signs = self.data.rows(sets.rows[k]), self.signs[sets.rows[k], k]
        if choice.form == "lean":
            return make_block(sets.kernels, X, signs, np.float32)
        return make_block(sets.kernels, X.astype(np.float64), signs)

    def alternate(self, choice: Choice, sets: WorkingSets, tol: float) -> Solution:
        """SVMs and the interior point on free samples; rows and maps of a class are in memory only while it is solved.

        If this costs as much as the interior point on all samples without reaching the gap, the latter follows.
        """
        with ExitStack() as stack:
            store = None
            if choice.form == "tiles":
                ram_bytes = max(0, self.available_bytes - tile_bytes(self.sizes(sets)))
                folder = self.scratch_dir if self.disk_bytes else None
                store = stack.enter_context(TileStore(ram_bytes, self.disk_bytes if folder else 0, folder))
                stack.callback(lambda: self.statistics.append(store.statistics))
            threads = stack.enter_context(self.threads.at_most(THREADS))

            whole = interior_form(self.sizes(sets, tol), self.available_bytes)
            left = interior_flops(self.sizes(sets, tol)) if whole is not None else np.inf

            def go_on(free: list[Array]) -> bool:
                nonlocal left
                left -= interior_flops(self.sizes(sets.only(free, sets.weights, sets.duals), tol))
                return left >= 0

            def joint(weights: Array, duals: list[Array], free: list[Array], tol: float) -> Array | None:
                return self.solve_free(sets, weights, duals, free, tol)

            oracle = Oracle(
                self.svms(sets, store, keep=choice.form != "streamed"), partial(self.forms, sets), threads=threads
            )
            oracle.duals = clipped(sets)
            solution = free_samples_mkl(oracle, joint, sets.weights, tol, poll=self.poll, go_on=go_on)
            if solution.objective.gap <= tol or (solution.steps and whole is None):
                return solution
            if whole is None:
                return alternating_mkl(oracle, solution.weights, max(tol, FIRST_ORDER_TOL), poll=self.poll)
        return self.interior_point(whole, sets.near(solution), tol)

    def forms(self, sets: WorkingSets, k: int, duals: Array) -> Array:
        """q of the active kernels for duals of a class."""
        self.poll()
        used = np.flatnonzero(duals)
        return sets.kernels.quadratic_forms(*self.signed(sets.rows[k][used], k, duals[used]))

    def svms(self, sets: WorkingSets, store: TileStore | None, *, keep: bool) -> list[SVM]:
        """The SVM of each class on explicit features, whose bumps may be kept, or on tiles of a store."""
        return [_ClassSVM(self, sets, k, store, keep) for k in range(len(sets.rows))]

    def solve_free(
        self, sets: WorkingSets, weights: Array, duals: list[Array], free: list[Array], tol: float
    ) -> Array | None:
        """The interior point on the free samples of each class, with the other duals held; None if they do not fit."""
        for mask in free:
            mask[:1] |= not mask.any()
        few = sets.only(free, weights, duals)
        choice = interior_form(self.sizes(few, tol), self.available_bytes)
        if choice is None:
            return None

        def hold(k: int) -> Array:
            at = np.flatnonzero(~free[k] & (duals[k] > 0.0))
            X, mass = self.signed(sets.rows[k][at], k, duals[k][at])
            return vectors_of(sets.kernels, X, mass[:, 0])

        total = sum(float(a[~mask].sum()) for a, mask in zip(duals, free, strict=True))
        held = HeldSamples(total, self.threads.run(hold, range(len(free))))
        solution = self.interior_point(choice, few, tol, held)
        for a, mask, part in zip(duals, free, few.split(solution.duals), strict=True):
            a[mask] = part
        return solution.weights

    def signed(self, rows: Array, k: int, duals: Array) -> tuple[Array, Array]:
        """These rows, and their signed duals (n, 1) for class k."""
        return self.rows_of(rows), (duals * self.signs[rows, k])[:, None]

    def rows_of(self, rows: Array) -> Array:
        return self.data.rows(rows).astype(np.float64)


def clipped(sets: WorkingSets) -> list[Array]:
    """The initial duals, clipped to their box."""
    return [np.clip(duals, 0.0, box.upper) for duals, box in zip(sets.duals, sets.boxes, strict=True)]


@dataclass
class _ClassSVM:
    """The SVM of one class; its rows and maps are read when it is solved, and released afterwards."""

    inner: InnerMKL
    sets: WorkingSets
    number: int
    store: TileStore | None
    keep: bool
    signs: Array = field(init=False)
    box: Box = field(init=False)

    def __post_init__(self) -> None:
        rows = self.sets.rows[self.number]
        self.signs, self.box = self.inner.signs[rows, self.number], self.sets.box.take(rows)

    def solve(self, weights: Array, duals: Array, limits: EpochLimits) -> SVMSolution:
        kernels, key = self.sets.kernels, (self.inner.seed, self.number)
        X = self.inner.rows_of(self.sets.rows[self.number])
        if self.store is None:
            return FeatureSVM(kernels, X, self.signs, self.box, key, keep=self.keep).solve(weights, duals, limits)
        svm = TiledSVM(kernels, X, self.signs, self.box, self.store, f"class {self.number}", key)
        try:
            return svm.solve(weights, duals, limits)
        finally:
            svm.close()  # the weights will change, and other classes need the memory
