"""The restricted MKL problem: working samples of every class against the active kernels, shared weights.

    min over beta in the simplex, max over 0 <= alpha_ik <= C_i:
        sum_k 1'alpha_k - 1/2 sum_m beta_m q_m,      q_m = sum_k q_m(alpha_k)

The duals of all classes are one long vector; `slices` has the position of each class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import DTypeLike

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.threads import Threads
from mllkm_scale.gram.blocks import Block
from mllkm_scale.kernels.locally_linear import LocallyLinearKernels
from mllkm_scale.mkl.certificate import Objective, dual_value, primal_value
from mllkm_scale.solver.box import Box

__all__ = ["HeldSamples", "Objective", "RestrictedProblem", "Solution", "Vectors", "WorkingSets"]


@dataclass(frozen=True)
class WorkingSets:
    """Active kernels with weights, and rows of each class with duals, both from the previous problem.

    `box` is that of all samples.
    """

    kernels: LocallyLinearKernels
    weights: Array
    rows: list[Array]
    duals: list[Array]
    box: Box

    @property
    def boxes(self) -> list[Box]:
        """The boxes of the rows of each class."""
        return [self.box.take(r) for r in self.rows]

    def only(self, free: Sequence[Array], weights: Array, duals: Sequence[Array]) -> WorkingSets:
        """The sets restricted to the rows of these masks, with these initial weights and duals (of all rows)."""
        rows = [r[mask] for r, mask in zip(self.rows, free, strict=True)]
        starts = [a[mask] for a, mask in zip(duals, free, strict=True)]
        return replace(self, weights=weights, rows=rows, duals=starts)

    def near(self, solution: Solution) -> WorkingSets:
        """The same problem with a solution as the start."""
        return replace(self, weights=solution.weights, duals=self.split(solution.duals))

    def split(self, duals: Array) -> list[Array]:
        """The duals of each class, from the vector of all duals."""
        return np.split(duals, np.cumsum([len(r) for r in self.rows])[:-1])


@dataclass(frozen=True)
class Solution:
    """The result of a weight solver: weights (s,), duals (all classes), and their objective."""

    weights: Array
    duals: Array
    objective: Objective
    steps: int


Vectors = list[Array]


"""For each class, the vectors v_m of the active kernels."""


ROWS = 1024  # rows of a class per task


@dataclass(frozen=True)
class HeldSamples:
    """Samples whose duals are held fixed: the sum of these duals, and their vectors."""

    total: float
    vectors: Vectors


class RestrictedProblem:
    """Blocks of the classes, the box of all duals, and the threads that work on them.

    A `lean` problem needs less memory and more time. The moments of the blocks include the samples that are `held`.
    Linear systems are factored on the side of the samples, in single precision if `single`, or `by_columns` of the
    features of the kernels.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        C: float | Box,
        threads: Threads | None = None,
        *,
        lean: bool = False,
        by_columns: bool = False,
        held: HeldSamples | None = None,
    ) -> None:
        self.blocks, self.threads = list(blocks), threads or Threads()
        edges = np.cumsum([0, *(len(block.signs) for block in blocks)])
        self.slices = [slice(int(a), int(b)) for a, b in pairwise(edges)]
        self.n_duals, self.n_kernels = int(edges[-1]), self.blocks[0].n_kernels
        self.box = Box.of(C, self.n_duals)
        self.upper = self.box.upper
        self.lean, self.by_columns, self.held = lean, by_columns, held
        self.held_forms = np.zeros(self.n_kernels) if held is None else self.inner(held.vectors, held.vectors)
        self.single = True
        self._parts = [
            (k, slice(start, min(start + ROWS, len(block.signs))))
            for k, block in enumerate(self.blocks)
            for start in range(0, len(block.signs), ROWS)
        ]

    def vectors(self, duals: Array) -> Vectors:
        """v_m of every class for these duals, without held samples."""

        def part(task: tuple[int, slice]) -> Array:
            k, rows = task
            return self.blocks[k].vectors(duals[self.slices[k]], rows)

        sums: Vectors = []
        for (_, rows), V in zip(self._parts, self.threads.map(part, self._parts), strict=True):
            if rows.start == 0:
                sums.append(V)
            else:
                sums[-1] += V
        return sums

    def inner(self, V: Vectors, W: Vectors) -> Array:
        """<v_m, w_m> (s,), summed over the classes."""
        return np.sum([block.inner(v, w) for block, v, w in zip(self.blocks, V, W, strict=True)], axis=0)

    def responses(self, V: Vectors, weights: Array | float = 1.0) -> Array:
        """y_i sum_m weight_m <phi_m(x_i), v_m> of all samples of every class."""
        weighted = [v * np.reshape(weights, (-1, 1)) for v in V]

        def part(task: tuple[int, slice]) -> Array:
            k, rows = task
            return self.blocks[k].responses(weighted[k], rows)

        return np.concatenate(list(self.threads.map(part, self._parts)))

    def columns(self, V: Vectors, dtype: DTypeLike = float) -> Array:
        """U (all duals, s), whose column m is y o K_m (alpha o y) for the duals alpha that belong to these vectors."""
        U = np.empty((self.n_duals, self.n_kernels), dtype)

        def fill(task: tuple[int, slice]) -> None:
            k, rows = task
            U[self.slices[k]][rows] = self.blocks[k].columns(V[k], rows, dtype)

        self.threads.run(fill, self._parts)
        return U

    def moments(self, duals: Array) -> tuple[Vectors, Array]:
        """Vectors of every class, and q (s,) summed over the classes, including held samples."""
        V = self.vectors(duals)
        if self.held is not None:
            V = [v + h for v, h in zip(V, self.held.vectors, strict=True)]
        return V, self.inner(V, V)

    def forms(self, duals: Array) -> Array:
        """The quadratic forms (s,) of these duals, without held samples."""
        V = self.vectors(duals)
        return self.inner(V, V)

    def objective(self, duals: Array, weights: Array, V: Vectors, q: Array) -> Objective:
        """F5 on the restricted problem, with w_m = beta_m v_m(alpha).

        With held samples, the value at fixed weights is concave in the other duals. Its tangent over the box gives the
        bound sum C_i hinge_i + 1/2 sum_m beta_m (a'Q_m a - c_m) + the sum of the held duals, where c_m is the form of
        the held duals.
        """
        hinge = self.box.loss(self.responses(V, weights))
        total, largest = float(duals.sum()), float(q.max())
        if self.held is None:
            return Objective(primal_value(weights, q, hinge), dual_value(total, largest))
        primal = hinge + 0.5 * weights @ (self.forms(duals) - self.held_forms) + self.held.total
        return Objective(float(primal), dual_value(total + self.held.total, largest))
