"""The linear system of a step of the interior point: N = blockdiag_k(Q_k(beta) + diag) + U diag(ratio) U'.

Column m of U holds the responses <phi_m(x_i), v_m> of the samples to the vector v_m of the point; a lean problem
recomputes them when they are needed. N is never formed: products with a vector use the features of the kernels, which
is cheap, in double precision. Its inverse is applied by conjugate gradients, preconditioned by factors of the smaller
side (`factors`). The factorisation takes nearly all of the time. Factors of samples are in single precision, which
halves this time; after one or two iterations the solution is as accurate as the products. If a factor loses positive
definiteness by rounding, or there are many iterations, the factors of this problem are in double precision from then
on.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError

from mllkm_scale.base.arrays import Array
from mllkm_scale.mkl.interior.factors import PANEL, ColumnFactors, Factors, Precision, SampleFactors
from mllkm_scale.mkl.restricted import RestrictedProblem, Vectors

__all__ = ["PANEL", "NewtonSystem"]


_MOST_ITERATIONS: dict[Precision, int] = {np.float32: 12, np.float64: 4}
_RESIDUAL = 1e-5  # relative, in the norm of the preconditioner, before the last correction


class NewtonSystem:
    """N for weights (s,), ratios (s,), a diagonal (all duals), and the vectors of a point."""

    def __init__(self, problem: RestrictedProblem, weights: Array, diagonal: Array, V: Vectors, ratio: Array) -> None:
        self.problem, self.weights, self.diagonal, self.V, self.ratio = problem, weights, diagonal, V, ratio
        self.inverse: Factors
        self.U = None if problem.lean else problem.columns(V)
        try:
            self._precondition(np.float32 if problem.single and not problem.by_columns else np.float64)
        except LinAlgError:
            if self.dtype is np.float64:
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
        z = self.inverse(right)
        if roughly:
            return z
        enough = _RESIDUAL**2 * float(right @ z)
        residual = right - self.product(z)
        direction, before = np.zeros_like(right), np.inf
        for _ in range(_MOST_ITERATIONS[self.dtype]):
            step = self.inverse(residual)
            size = float(residual @ step)
            if not (enough >= 0.0 and size >= 0.0):  # by rounding, the preconditioner is indefinite
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
        if hasattr(self, "inverse"):
            del self.inverse  # free its memory before larger factors are made
        self._precondition(np.float64)

    def _precondition(self, dtype: Precision) -> None:
        self.dtype = dtype
        if self.problem.by_columns:
            self.inverse = ColumnFactors(self.problem, self.weights, self.diagonal, self.V, self.ratio)
            return
        U = self.problem.columns(self.V, dtype) if self.U is None else self.U.astype(dtype)
        self.inverse = SampleFactors(self.problem, self.weights, self.diagonal, U, self.ratio, dtype)
