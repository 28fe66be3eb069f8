"""Solving MKL on the working sets in whichever form fits the memory: interior point, features, tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.allocator import give_back
from mllkm_scale.gram.blocks import Block, Held, held_vectors, make_block
from mllkm_scale.gram.lean import LeanBlock
from mllkm_scale.gram.statistics import TileStatistics
from mllkm_scale.gram.store import TileStore
from mllkm_scale.kernels.grid import RowSource
from mllkm_scale.kernels.locally_linear import ComponentKernels, GlobalKernels, LocallyLinearKernels
from mllkm_scale.mkl.alternating import alternating_mkl
from mllkm_scale.mkl.forms import (
    Choice,
    InnerSizes,
    choose_form,
    inner_flops,
    interior_form,
    threads_that_fit,
    tile_bytes,
)
from mllkm_scale.mkl.free_samples import free_samples_mkl
from mllkm_scale.mkl.interior_point import interior_point
from mllkm_scale.mkl.oracle import Oracle
from mllkm_scale.mkl.restricted import HeldSamples, RestrictedProblem, Solution
from mllkm_scale.solver.feature_svm import FeatureSVM
from mllkm_scale.solver.svm import EpochLimits, SVMSolution
from mllkm_scale.solver.tiled_svm import TiledSVM
from mllkm_scale.team import Team

__all__ = ["InnerMKL"]

Array = NDArray[Any]


@dataclass
class InnerMKL:
    """The inner solver within `available_bytes`; `choices` counts the forms used, `statistics` sums the tile stores."""

    data: RowSource
    signs: Array
    C: float
    available_bytes: int
    disk_bytes: int = 0
    scratch_dir: Path | None = None
    seed: int = 0
    team: Team = field(default_factory=Team)
    poll: Callable[[], None] = lambda: None
    choices: dict[str, int] = field(default_factory=dict)
    statistics: list[TileStatistics] = field(default_factory=list)

    def __call__(
        self, kernels: LocallyLinearKernels, weights: Array, rows: list[Array], duals: list[Array], tol: float
    ) -> Solution:
        give_back()
        try:
            return self.solve(kernels, weights, rows, duals, tol)
        finally:
            give_back()

    def solve(
        self, kernels: LocallyLinearKernels, weights: Array, rows: list[Array], duals: list[Array], tol: float
    ) -> Solution:
        """The solution in the form that is chosen for these sizes."""
        sizes = self.sizes(kernels, rows)
        choice = self.choose(sizes)
        self.choices[choice.form] = self.choices.get(choice.form, 0) + 1
        if choice.form not in ("dense", "lean"):
            return self.alternate(choice, kernels, weights, rows, duals, tol)
        return self.interior_point(choice, kernels, weights, rows, duals, tol)

    def interior_point(
        self,
        choice: Choice,
        kernels: LocallyLinearKernels,
        weights: Array,
        rows: list[Array],
        duals: list[Array],
        tol: float,
        held: tuple[list[Held], HeldSamples] | None = None,
    ) -> Solution:
        """Weights and duals of these rows together, in the dense or the lean form; other samples may be held."""
        vectors, samples = ([None] * len(rows), None) if held is None else held
        make = self.lean_blocks if choice.form == "lean" else self.dense_blocks
        near, sizes = (weights, np.concatenate(duals)), self.sizes(kernels, rows)
        with self.team.at_most(threads_that_fit(sizes, choice, self.available_bytes)) as team:
            blocks = make(kernels, rows, vectors, team)
            problem = RestrictedProblem(blocks, self.C, team, lean=choice.form == "lean", held=samples)
            return interior_point(problem, tol, near=near, poll=self.poll)

    def dense_blocks(
        self, kernels: LocallyLinearKernels, rows: list[Array], held: Sequence[Held | None], team: Team
    ) -> list[Block]:
        """The classes, each with its rows and maps."""

        def block(k: int) -> Block:
            return make_block(kernels, self.rows_of(rows[k]), self.signs[rows[k], k], held[k])

        return team.run(block, range(len(rows)))

    def lean_blocks(
        self, kernels: LocallyLinearKernels, rows: list[Array], held: Sequence[Held | None], team: Team
    ) -> list[Block]:
        """The classes with their bumps, on rows that they share."""
        assert isinstance(kernels, GlobalKernels)
        union = np.unique(np.concatenate(rows))
        shared = self.data.rows(union)

        def block(k: int) -> Block:
            return LeanBlock(kernels, shared, np.searchsorted(union, rows[k]), self.signs[rows[k], k], held[k])

        return team.run(block, range(len(rows)))

    def flops(self, kernels: LocallyLinearKernels, rows: list[Array]) -> float:
        """Multiply-adds of a call with these kernels and rows, roughly."""
        sizes = self.sizes(kernels, rows)
        return inner_flops(sizes, self.choose(sizes).form)

    def record(self) -> dict[str, Any]:
        """How often each form was used, and what the tile stores did in all."""
        totals: dict[str, int] = {}
        for statistics in self.statistics:
            for name, value in asdict(statistics).items():
                totals[name] = max(totals.get(name, 0), value) if "bytes" in name else totals.get(name, 0) + value
        return {"forms": dict(self.choices), "tiles": totals}

    def choose(self, sizes: InnerSizes) -> Choice:
        return choose_form(sizes, self.available_bytes, self.disk_bytes)

    def sizes(self, kernels: LocallyLinearKernels, rows: list[Array]) -> InnerSizes:
        componentwise = isinstance(kernels, ComponentKernels)
        union, itemsize = len(np.unique(np.concatenate(rows))), self.data.rows(np.empty(0, np.int64)).itemsize
        return InnerSizes([len(r) for r in rows], len(kernels), kernels.n_features, componentwise, union, itemsize)

    def alternate(
        self,
        choice: Choice,
        kernels: LocallyLinearKernels,
        weights: Array,
        rows: list[Array],
        duals: list[Array],
        tol: float,
    ) -> Solution:
        """Alternate SVMs and weights; the rows and maps of a class are in memory while its SVM is solved."""
        with ExitStack() as stack:
            store = None
            if choice.form == "tiles":
                ram_bytes = max(0, self.available_bytes - tile_bytes(self.sizes(kernels, rows)))
                folder = self.scratch_dir if self.disk_bytes else None
                store = stack.enter_context(TileStore(ram_bytes, self.disk_bytes if folder else 0, folder))
                stack.callback(lambda: self.statistics.append(store.statistics))
            svms = [_ClassSVM(self, kernels, rows[k], k, store) for k in range(len(rows))]

            def forms(k: int, class_duals: Array) -> Array:
                self.poll()
                used = np.flatnonzero(class_duals)
                signed = (class_duals[used] * self.signs[rows[k][used], k])[:, None]
                return kernels.quadratic_forms(self.rows_of(rows[k][used]), signed)

            def joint(weights: Array, duals: list[Array], free: list[Array], tol: float) -> Array | None:
                return self.solve_free(kernels, weights, rows, duals, free, tol)

            oracle = Oracle(svms, forms, self.C, team=self.team)
            oracle.duals = [np.clip(part, 0.0, self.C) for part in duals]
            solution = free_samples_mkl(oracle, joint, weights, tol, poll=self.poll)
            if solution.objective.gap <= tol:
                return solution
            more = alternating_mkl(oracle, solution.weights, tol, poll=self.poll)
            return min(solution, more, key=lambda found: found.objective.gap)

    def solve_free(
        self,
        kernels: LocallyLinearKernels,
        weights: Array,
        rows: list[Array],
        duals: list[Array],
        free: list[Array],
        tol: float,
    ) -> Array | None:
        """The interior point on the free samples of each class, with the duals of the others held; None if too many."""
        for mask in free:
            mask[:1] |= not mask.any()
        free_rows = [r[mask] for r, mask in zip(rows, free, strict=True)]
        choice = interior_form(self.sizes(kernels, free_rows), self.available_bytes)
        if choice is None:
            return None

        def hold(k: int) -> tuple[Held, Array]:
            at = np.flatnonzero(~free[k] & (duals[k] > 0.0))
            X, mass = self.rows_of(rows[k][at]), duals[k][at] * self.signs[rows[k][at], k]
            return held_vectors(kernels, X, mass), kernels.quadratic_forms(X, mass[:, None])

        held = self.team.run(hold, range(len(rows)))
        total = sum(float(a[~mask].sum()) for a, mask in zip(duals, free, strict=True))
        samples = HeldSamples(total, np.sum([forms for _, forms in held], axis=0))
        starts = [a[mask] for a, mask in zip(duals, free, strict=True)]
        solution = self.interior_point(
            choice, kernels, weights, free_rows, starts, tol, ([vectors for vectors, _ in held], samples)
        )
        edges = np.cumsum([len(r) for r in free_rows])[:-1]
        for a, mask, part in zip(duals, free, np.split(solution.duals, edges), strict=True):
            a[mask] = part
        return solution.weights

    def rows_of(self, rows: Array) -> Array:
        return self.data.rows(rows).astype(np.float64)


@dataclass
class _ClassSVM:
    """The SVM of one class, whose rows and maps are read when it is solved, and let go after."""

    inner: InnerMKL
    kernels: LocallyLinearKernels
    rows: Array
    number: int
    store: TileStore | None
    signs: Array = field(init=False)
    generation: str = ""  # of its tiles in the store

    def __post_init__(self) -> None:
        self.signs = self.inner.signs[self.rows, self.number]

    def solve(self, weights: Array, duals: Array, limits: EpochLimits) -> SVMSolution:
        X, key, C = self.inner.rows_of(self.rows), (self.inner.seed, self.number), self.inner.C
        if self.store is None:
            return FeatureSVM(self.kernels, X, self.signs, C, key).solve(weights, duals, limits)
        name = f"class {self.number}"
        svm = TiledSVM(self.kernels, X, self.signs, C, self.store, name, key, self.generation)
        solution = svm.solve(weights, duals, limits)
        self.generation = svm.generation
        return solution
