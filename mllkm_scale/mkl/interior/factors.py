"""Preconditioners of the Newton system  N = blockdiag_k(F_k F_k' + D_k) + U diag(ratio) U'  (F8, F17): its inverse from
factors of the smaller side.

F_k (samples x columns) are the features of the kernels with a weight, times sqrt(beta) and the signs; D is diagonal;
column m of U holds the responses to the vector v_m. So U_k = F_k T_k, where column m of T_k is v_m / sqrt(beta_m) on
the columns of kernel m.

samples     A_k = F_k F_k' + D_k = L_k L_k'; with Y = L^-1 U the rest is the Schur complement  diag(1 / ratio) + Y'Y.
            F_k F_k' is the Gram Q_k(beta), which needs no features (F2).
columns     A_k^-1 = D^-1/2 (I - G S^-1 G') D^-1/2  with  G = D^-1/2 F,  S = I + G'G  (Woodbury), of columns x columns.
            From F'A^-1 F = I - S^-1 the Schur complement, multiplied by sqrt(beta) from both sides, is diag(slacks) +
            V'(I - S^-1) V, where column m of V is v_m.

With few features, few kernels and many samples, which are typical of noisy data, the columns are the smaller side.
Factors of samples may be in single precision. Woodbury's formula needs double precision, because D spans many orders of
magnitude near the end.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky, get_blas_funcs, solve_triangular

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.threads import Threads
from mllkm_scale.gram.blocks import ALL, Panels
from mllkm_scale.mkl.restricted import ROWS, RestrictedProblem, Vectors

__all__ = ["PANEL", "ColumnFactors", "Factors", "Precision", "SampleFactors"]

Precision = type[np.float32] | type[np.float64]

PANEL = 384  # columns of a Gram matrix that one task makes; a task makes and factors up to twice as many at once
_NEGLIGIBLE = 1e-8  # of the largest weight: a kernel below it is left out of the factors
_RIDGE: dict[Precision, float] = {np.float32: 1e-6, np.float64: 1e-12}  # of the diagonal of each factored matrix


class Factors(Protocol):
    """N^-1, to the precision of the factors."""

    def __call__(self, right: Array) -> Array: ...


class SampleFactors:
    """One factor per class of the size of its working samples, and a Schur complement of the size of the active set."""

    def __init__(
        self,
        problem: RestrictedProblem,
        weights: Array,
        diagonal: Array,
        U: Array,
        ratio: Array,
        dtype: Precision,
    ) -> None:
        self.problem, self.dtype, self._divide = problem, dtype, get_blas_funcs("trsv", dtype=dtype)
        self.factors = self._factors(np.where(_used(weights), weights, 0.0), diagonal)
        self.Y = self._forward(U)
        schur = self._self_product(self.Y)
        schur[np.diag_indices_from(schur)] += 1.0 / ratio
        self.schur = cho_factor(schur, lower=True, overwrite_a=True, check_finite=False)

    def __call__(self, right: Array) -> Array:
        z: Array = right.astype(self.dtype)
        parts = list(zip(self.factors, self.problem.slices, strict=True))
        for L, part in parts:
            z[part] = self._divide(L, z[part], lower=1)
        inner = cho_solve(self.schur, (self.Y.T @ z).astype(np.float64), check_finite=False)
        z -= self.Y @ inner.astype(self.dtype)
        for L, part in parts:
            z[part] = self._divide(L, z[part], lower=1, trans=1)
        return z.astype(np.float64)

    def _factors(self, weights: Array, diagonal: Array) -> list[Array]:
        """Cholesky factors of all classes: a small factor is one task, and a large one has a task per panel."""
        problem, nobody = self.problem, Threads()
        large = max(len(block.signs) for block in problem.blocks) > 2 * PANEL

        def factor(k: int) -> Array:
            block, threads = problem.blocks[k], problem.threads if large else nobody
            panels = block.panels(weights, self.dtype)
            return _cholesky_of(panels, len(block.signs), diagonal[problem.slices[k]], self.dtype, threads)

        numbers = range(len(problem.blocks))
        return [factor(k) for k in numbers] if large else problem.threads.run(factor, numbers)

    def _forward(self, U: Array) -> Array:
        """Y_k = L_k^-1 U_k, which overwrites U."""
        slices = self.problem.slices

        def solve(task: tuple[int, slice]) -> None:
            k, columns = task
            right = U[slices[k], columns]
            U[slices[k], columns] = solve_triangular(self.factors[k], right, lower=True, check_finite=False)

        panels = _panels(U.shape[1])
        self.problem.threads.run(solve, [(k, columns) for k in range(len(slices)) for columns in panels])
        return U

    def _self_product(self, Y: Array) -> Array:
        """Y' Y, summed over the classes in order."""
        total = np.zeros((Y.shape[1], Y.shape[1]))
        for part in self.problem.threads.map(lambda rows: Y[rows].T @ Y[rows], self.problem.slices):
            total += part
        return total


class ColumnFactors:
    """One factor per class of the size of its columns, and a Schur complement of the size of the kernels with nonzero
    weight."""

    def __init__(self, problem: RestrictedProblem, weights: Array, diagonal: Array, V: Vectors, ratio: Array) -> None:
        self.problem, self.root = problem, 1.0 / np.sqrt(diagonal)
        used = _used(weights)
        self.V = [v[used] for v in V]
        self.features = [self._features(k, np.where(used, weights, 0.0)) for k in range(len(problem.blocks))]
        self.factors = [self._factor(G) for G in self.features]
        schur = np.diag(weights[used] / ratio[used])
        for L, v in zip(self.factors, self.V, strict=True):
            Y = solve_triangular(L, _by_kernel(v), lower=True, overwrite_b=True, check_finite=False)
            schur -= Y.T @ Y
            schur[np.diag_indices_from(schur)] += np.einsum("sp,sp->s", v, v)
        self.schur = cho_factor(schur, lower=True, overwrite_a=True, check_finite=False)

    def __call__(self, right: Array) -> Array:
        z: Array = self.root * right
        parts = list(zip(self.features, self.factors, self.problem.slices, strict=True))
        sums = [_solved(L, G.T @ z[part]) for G, L, part in parts]
        across = np.zeros(len(self.V[0]))
        for v, t in zip(self.V, sums, strict=True):
            across += np.einsum("sp,sp->s", v, t.reshape(v.shape))
        inner = cho_solve(self.schur, across, check_finite=False)
        for (G, L, part), v, t in zip(parts, self.V, sums, strict=True):
            z[part] -= G @ (t + _solved(L, (v * inner[:, None]).ravel()))
        return self.root * z

    def _features(self, k: int, weights: Array) -> Array:
        """G of a class, made in runs of rows."""
        block, root = self.problem.blocks[k], self.root[self.problem.slices[k]]
        n = len(block.signs)
        G = np.empty((n, np.count_nonzero(weights) * block.width))

        def fill(start: int) -> None:
            rows = slice(start, min(start + ROWS, n))
            np.multiply(block.features(weights, rows), root[rows, None], out=G[rows])

        self.problem.threads.run(fill, range(0, n, ROWS))
        return G

    def _factor(self, G: Array) -> Array:
        """The Cholesky factor of I + G'G."""

        def panel(columns: slice, rows: slice) -> Array:
            return np.asarray(G[:, rows].T @ G[:, columns])

        return _cholesky_of(panel, G.shape[1], np.ones(G.shape[1]), np.float64, self.problem.threads)


def _solved(L: Array, right: Array) -> Array:
    return np.asarray(cho_solve((L, True), right, check_finite=False))


def _used(weights: Array) -> Array:
    """Mask of the kernels that are used."""
    return np.asarray(weights >= _NEGLIGIBLE * weights.max())


def _by_kernel(v: Array) -> Array:
    """Vectors (s, p) as the columns of a block-diagonal matrix (s p, s)."""
    s, p = v.shape
    columns = np.zeros((s, p, s))
    columns[np.arange(s), :, np.arange(s)] = v
    return columns.reshape(s * p, s)


def _cholesky_of(panel: Panels, n: int, diagonal: Array, dtype: Precision, threads: Threads) -> Array:
    """The Cholesky factor of a Gram matrix, made in panels, plus a diagonal; the upper triangle is not set."""
    if n <= 2 * PANEL:
        Q = np.asfortranarray(panel(ALL, ALL))
    else:
        Q = np.empty((n, n), dtype, order="F")

        def fill(columns: slice) -> None:
            rows = slice(columns.start, None)
            Q[rows, columns] = panel(columns, rows)

        threads.run(fill, _panels(n))
    Q[np.diag_indices(n)] += diagonal + _RIDGE[dtype] * np.diagonal(Q)
    if n <= 2 * PANEL:
        return np.asarray(cholesky(Q, lower=True, overwrite_a=True, check_finite=False))
    _cholesky(Q, threads)
    return Q


def _cholesky(Q: Array, threads: Threads) -> None:
    """Overwrite a matrix by its lower Cholesky factor, panel by panel; the updates of the panels to the right are
    tasks."""
    panels = _panels(len(Q))
    for number, columns in enumerate(panels):
        L = cholesky(Q[columns, columns], lower=True, check_finite=False)
        Q[columns, columns] = L
        behind = panels[number + 1 :]

        def divide(rows: slice, L: Array = L, columns: slice = columns) -> None:
            Q[rows, columns] = solve_triangular(L, Q[rows, columns].T, lower=True, check_finite=False).T

        def subtract(others: slice, columns: slice = columns) -> None:
            rows = slice(others.start, None)
            Q[rows, others] -= Q[rows, columns] @ Q[others, columns].T

        threads.run(divide, behind)
        threads.run(subtract, behind)


def _panels(n: int) -> list[slice]:
    """All columns at once, or panels of columns if there are enough for several threads."""
    if n <= 2 * PANEL:
        return [slice(0, n)]
    return [slice(start, min(start + PANEL, n)) for start in range(0, n, PANEL)]
