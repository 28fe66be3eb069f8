"""Solving MKL on the working sets in whichever form fits the memory: interior point, features or tiles."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.gram.blocks import Block, held_vectors, make_block
from mllkm_scale.gram.statistics import TileStatistics
from mllkm_scale.gram.store import TileStore
from mllkm_scale.kernels.grid import RowSource
from mllkm_scale.kernels.locally_linear import ComponentKernels, LocallyLinearKernels
from mllkm_scale.mkl.alternating import alternating_mkl
from mllkm_scale.mkl.forms import Choice, InnerSizes, choose_form, dense_bytes, inner_flops, tile_bytes
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
        choice = self.choose(self.sizes(kernels, rows))
        self.choices[choice.form] = self.choices.get(choice.form, 0) + 1
        if choice.form == "dense":
            blocks = self.team.run(
                lambda k: make_block(kernels, self.rows_of(rows[k]), self.signs[rows[k], k]), range(len(rows))
            )
            near = weights, np.concatenate(duals)
            return interior_point(RestrictedProblem(blocks, self.C, self.team), tol, near=near, poll=self.poll)
        return self.alternate(choice, kernels, weights, rows, duals, tol)

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
        return InnerSizes([len(r) for r in rows], len(kernels), kernels.n_features, componentwise)

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
        sizes = self.sizes(kernels, [r[mask] for r, mask in zip(rows, free, strict=True)])
        if dense_bytes(sizes) > self.available_bytes:
            return None

        def block(k: int) -> tuple[Block, Array]:
            signs, held = self.signs[rows[k], k], np.flatnonzero(~free[k] & (duals[k] > 0.0))
            X, mass = self.rows_of(rows[k][held]), duals[k][held] * signs[held]
            vectors, forms = held_vectors(kernels, X, mass), kernels.quadratic_forms(X, mass[:, None])
            return make_block(kernels, self.rows_of(rows[k][free[k]]), signs[free[k]], vectors), forms

        made = self.team.run(block, range(len(rows)))
        total = sum(float(a[~mask].sum()) for a, mask in zip(duals, free, strict=True))
        held = HeldSamples(total, np.sum([forms for _, forms in made], axis=0))
        problem = RestrictedProblem([part for part, _ in made], self.C, self.team, held)
        near = weights, np.concatenate([a[mask] for a, mask in zip(duals, free, strict=True)])
        solution = interior_point(problem, tol, near=near, poll=self.poll)
        for a, mask, part in zip(duals, free, problem.slices, strict=True):
            a[mask] = solution.duals[part]
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
