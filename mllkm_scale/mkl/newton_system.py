"""The linear system of a step of the interior point: N = blockdiag_k(Q_k(beta) + diag) + U diag(ratio) U'.

Column m of U holds the responses <phi_m(x_i), v_m> of the samples to the vector v_m of the point; a lean problem makes
them again where they are needed. N is never made: its product with a vector goes through the features of the kernels,
which is cheap, in double precision. Its inverse goes by conjugate gradients, preconditioned by one Cholesky factor a
class and Woodbury's formula with a Schur complement of the size of the active set. The preconditioner takes nearly all
of the time, and in single precision half of it: the solution is as exact as the product all the same, after a product
or two. Where rounding eats the positive definiteness of a factor, or iterations are many, the factors of this problem
are made in double precision from there on.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky, get_blas_funcs, solve_triangular

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.threads import Threads
from mllkm_scale.gram.blocks import ALL, Block
from mllkm_scale.mkl.restricted import RestrictedProblem, Vectors

__all__ = ["PANEL", "NewtonSystem"]

Precision = type[np.float32] | type[np.float64]

PANEL = 384  # columns of a Gram that one task makes; of up to twice as many, a task makes and factors all
_NEGLIGIBLE = 1e-8  # of the largest weight: a kernel below it is left out of the factors
_RIDGE: dict[Precision, float] = {np.float32: 1e-6, np.float64: 1e-12}  # of the diagonal of each Gram
_MOST_ITERATIONS: dict[Precision, int] = {np.float32: 12, np.float64: 4}
_RESIDUAL = 1e-5  # relative, in the norm of the preconditioner, before the last correction


class NewtonSystem:
    """N for weights and ratio (s,), a diagonal (all duals), and the vectors of a point."""

    def __init__(self, problem: RestrictedProblem, weights: Array, diagonal: Array, V: Vectors, ratio: Array) -> None:
        self.problem, self.weights, self.diagonal, self.V, self.ratio = problem, weights, diagonal, V, ratio
        self.factors: list[Array]
        self.Y: Array
        self.U = None if problem.lean else problem.columns(V)
        try:
            self._precondition(np.float32 if problem.single else np.float64)
        except LinAlgError:
            if not problem.single:
                raise
            self._go_double()

    def product(self, z: Array) -> Array:
        """N z."""
        problem, Z = self.problem, self.problem.vectors(z)
        across = self.ratio * problem.inner(self.V, Z)
        if self.U is not None:
            return problem.responses(Z, self.weights) + self.U @ across + self.diagonal * z
        combined = [self.weights[:, None] * own + across[:, None] * v for own, v in zip(Z, self.V, strict=True)]
        return problem.responses(combined) + self.diagonal * z

    def U_times(self, e: Array) -> Array:
        """U e."""
        return self.problem.responses(self.V, e) if self.U is None else np.asarray(self.U @ e)

    def times_U(self, x: Array) -> Array:
        """U' x."""
        if self.U is None:
            return self.problem.inner(self.V, self.problem.vectors(x))
        return np.asarray(self.U.T @ x)

    def solve(self, right: Array, *, roughly: bool = False) -> Array:
        """N^-1 applied to a vector: preconditioned conjugate gradients, or the preconditioner alone."""
        z = self._preconditioned(right)
        if roughly:
            return z
        enough = _RESIDUAL**2 * float(right @ z)
        residual = right - self.product(z)
        direction, before = np.zeros_like(right), np.inf
        for _ in range(_MOST_ITERATIONS[self.dtype]):
            step = self._preconditioned(residual)
            size = float(residual @ step)
            if not (enough >= 0.0 and size >= 0.0):  # rounding has made the preconditioner indefinite
                break
            if size <= enough:
                return z + step
            direction = step + size / before * direction
            image = self.product(direction)
            length = size / float(direction @ image)
            z, residual, before = z + length * direction, residual - length * image, size
        if self.dtype is np.float64:
            return z
        self._go_double()
        return self.solve(right)

    def _go_double(self) -> None:
        self.problem.single = False
        self.factors, self.Y = [], np.empty(0)  # before there are larger ones
        self._precondition(np.float64)

    def _precondition(self, dtype: Precision) -> None:
        """L_k with L_k L_k' = Q_k(beta) + diag, Y = L^-1 U, and the factor of diag(1 / ratio) + Y'Y."""
        self.dtype, self._divide = dtype, get_blas_funcs("trsv", dtype=dtype)
        self.factors = self._factors(dtype)
        U = self.problem.columns(self.V, dtype) if self.U is None else self.U.astype(dtype)
        self.Y = self._forward(U)
        schur = self._self_product(self.Y)
        schur[np.diag_indices_from(schur)] += 1.0 / self.ratio
        self.schur = cho_factor(schur, lower=True, overwrite_a=True, check_finite=False)

    def _preconditioned(self, right: Array) -> Array:
        """The inverse of the factored matrix by Woodbury's formula."""
        z: Array = right.astype(self.dtype)
        parts = list(zip(self.factors, self.problem.slices, strict=True))
        for L, part in parts:
            z[part] = self._divide(L, z[part], lower=1)
        inner = cho_solve(self.schur, (self.Y.T @ z).astype(np.float64), check_finite=False)
        z -= self.Y @ inner.astype(self.dtype)
        for L, part in parts:
            z[part] = self._divide(L, z[part], lower=1, trans=1)
        return z.astype(np.float64)

    def _factors(self, dtype: Precision) -> list[Array]:
        """Cholesky factors of all classes: small ones are tasks, of large ones their panels are."""
        weights = np.where(self.weights < _NEGLIGIBLE * self.weights.max(), 0.0, self.weights)
        problem, nobody = self.problem, Threads()
        large = max(len(block.signs) for block in problem.blocks) > 2 * PANEL

        def factor(k: int) -> Array:
            threads = problem.threads if large else nobody
            return _factor(problem.blocks[k], weights, self.diagonal[problem.slices[k]], dtype, threads)

        numbers = range(len(problem.blocks))
        return [factor(k) for k in numbers] if large else problem.threads.run(factor, numbers)

    def _forward(self, U: Array) -> Array:
        """Y_k = L_k^-1 U_k in the place of U."""
        slices = self.problem.slices

        def solve(task: tuple[int, slice]) -> None:
            k, columns = task
            right = U[slices[k], columns]
            U[slices[k], columns] = solve_triangular(self.factors[k], right, lower=True, check_finite=False)

        panels = _panels(U.shape[1])
        self.problem.threads.run(solve, [(k, columns) for k in range(len(slices)) for columns in panels])
        return U

    def _self_product(self, Y: Array) -> Array:
        """Y' Y, summed over the classes in their order."""
        total = np.zeros((Y.shape[1], Y.shape[1]))
        for part in self.problem.threads.map(lambda rows: Y[rows].T @ Y[rows], self.problem.slices):
            total += part
        return total


def _factor(block: Block, weights: Array, diagonal: Array, dtype: Precision, threads: Threads) -> Array:
    """The Cholesky factor of Q(beta) + diag of one class; what is above its diagonal is left as it is."""
    n, panel = len(block.signs), block.panels(weights, dtype)
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
    """The lower Cholesky factor in the place of a matrix: panel by panel, whose tasks are the panels to the right."""
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
    """All columns at once, or panels of them where there are so many that threads should share the work."""
    if n <= 2 * PANEL:
        return [slice(0, n)]
    return [slice(start, min(start + PANEL, n)) for start in range(0, n, PANEL)]
