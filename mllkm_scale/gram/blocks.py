"""The restricted problem of one class: its working samples and the active kernels.

With the signs y, and phi_m the map of the active kernel m, the weight solvers ask a block for

    vectors(a)          v_m = sum_i a_i y_i phi_m(x_i), for all m
    inner(V, W)         <v_m, w_m>, for all m: the quadratic forms q_m(a) are inner(v, v)
    responses(V)        y_i sum_m <phi_m(x_i), v_m>, for all i
    columns(V)          y_i <phi_m(x_i), v_m>, for all i and m
    gram(beta)          Q(beta) = y y' o sum_m beta_m K_m, or panels of it
    features(beta)      y_i sqrt(beta_m) phi_m(x_i), for all i and the m with a weight: F with F F' = Q(beta)

so that Q(beta) a = responses(beta v(a)), at the cost of the features of the kernels, without a Gram matrix.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import DTypeLike

from mllkm_scale.base.arrays import Array
from mllkm_scale.kernels.locally_linear import GlobalKernels, LocallyLinearKernels

__all__ = ["ALL", "Block", "FeatureBlock", "GlobalBlock", "MatrixBlock", "Panels", "make_block", "vectors_of"]

ALL = slice(None)
Panels = Callable[[slice, slice], Array]
"""A function that computes these rows and columns of a Gram matrix."""


class Block(ABC):
    """One class of the restricted problem; `rows` are some of its samples."""

    signs: Array
    n_kernels: int
    width: int  # columns of a kernel among the features; 0 if it has none

    @abstractmethod
    def vectors(self, duals: Array, rows: slice = ALL) -> Array: ...

    @abstractmethod
    def inner(self, V: Array, W: Array) -> Array: ...

    @abstractmethod
    def responses(self, V: Array, rows: slice = ALL) -> Array: ...

    @abstractmethod
    def columns(self, V: Array, rows: slice = ALL, dtype: DTypeLike = float) -> Array: ...

    @abstractmethod
    def panels(self, weights: Array, dtype: DTypeLike = float) -> Panels: ...

    def features(self, weights: Array, rows: slice = ALL) -> Array:
        """Explicit features of rows; generic kernels have none, and are never solved by columns."""
        raise NotImplementedError(f"{type(self).__name__} has no explicit features")

    def gram(self, weights: Array) -> Array:
        return self.panels(weights)(ALL, ALL)

    def forms(self, duals: Array) -> Array:
        """The quadratic forms q_m."""
        V = self.vectors(duals)
        return self.inner(V, V)


class GlobalBlock(Block):
    """Global kernels: one linear Gram matrix G = X X' serves them all (F2); it is computed on demand.

    K = G o (A A') - B A' - A B' + A diag(p) A' with A = H sqrt(beta), B = A * P, P = X C', p = |c|^2 + b. The last
    term is folded into B <- B - A p / 2, which leaves three products.

    Only the bumps H are kept. In single precision they are the bumps of slightly different kernels, equal to seven
    digits, and nothing else changes: phi_m(x_i) = H_im (x_i - c_m) is a feature map for any H.
    """

    def __init__(self, kernels: GlobalKernels, X: Array, signs: Array, dtype: DTypeLike = float) -> None:
        self.signs, self.n_kernels, self.width = signs, len(kernels), X.shape[1] + 1
        self._X, self._anchors, self._bias = X, kernels.anchors, kernels.local_bias
        self._half = 0.5 * (np.einsum("ij,ij->i", kernels.anchors, kernels.anchors) + kernels.local_bias)
        self._H = np.empty((len(X), len(kernels)), dtype)
        for start in range(0, len(X), _AT_ONCE):
            rows = slice(start, start + _AT_ONCE)
            self._H[rows] = kernels.bumps(X[rows].astype(np.float64, copy=False))

    def vectors(self, duals: Array, rows: slice = ALL) -> Array:
        """V (s, d + 1): sum_i a_i H_im (x_i - c_m), and sqrt(b) sum_i a_i H_im."""
        H, X = self._samples(rows)
        a = duals[rows] * self.signs[rows]
        V = np.empty((self.n_kernels, X.shape[1] + 1))
        mass = H.T @ a
        V[:, :-1] = H.T @ (a[:, None] * X)
        V[:, :-1] -= mass[:, None] * self._anchors
        V[:, -1] = np.sqrt(self._bias) * mass
        return V

    def inner(self, V: Array, W: Array) -> Array:
        return np.asarray(np.einsum("sp,sp->s", V, W))

    def responses(self, V: Array, rows: slice = ALL) -> Array:
        H, X = self._samples(rows)
        table = V.copy()
        table[:, -1] = self._offsets(V)
        products = H @ table
        return (np.einsum("id,id->i", products[:, :-1], X) + products[:, -1]) * self.signs[rows]

    def columns(self, V: Array, rows: slice = ALL, dtype: DTypeLike = float) -> Array:
        U = self._X[rows].astype(dtype, copy=False) @ V[:, :-1].T.astype(dtype, copy=False)
        U += self._offsets(V).astype(dtype)
        U *= self._H[rows]
        U *= self.signs[rows, None].astype(dtype)
        return np.asarray(U)

    def _offsets(self, V: Array) -> Array:
        """The value of <phi_m(x), v_m> / H_m(x) at x = 0."""
        return np.sqrt(self._bias) * V[:, -1] - np.einsum("sd,sd->s", V[:, :-1], self._anchors)

    def _samples(self, rows: slice) -> tuple[Array, Array]:
        """Bumps and rows in double precision."""
        return self._H[rows].astype(np.float64, copy=False), self._X[rows].astype(np.float64, copy=False)

    def features(self, weights: Array, rows: slice = ALL) -> Array:
        used = weights > 0
        H, X = self._samples(rows)
        H = H[:, used] * np.sqrt(weights[used]) * self.signs[rows, None]
        F = np.empty((*H.shape, self.width))
        np.subtract(X[:, None, :], self._anchors[used], out=F[:, :, :-1])
        F[:, :, -1] = np.sqrt(self._bias)
        F *= H[:, :, None]
        return F.reshape(len(X), -1)

    def panels(self, weights: Array, dtype: DTypeLike = float) -> Panels:
        used = weights > 0
        X, signs = self._X.astype(dtype, copy=False), self.signs.astype(dtype)
        A = (self._H[:, used] * np.sqrt(weights[used])).astype(dtype, copy=False)
        B = X @ self._anchors[used].T.astype(dtype, copy=False)
        B -= self._half[used].astype(dtype)
        B *= A

        def panel(columns: slice, rows: slice) -> Array:
            Q = A[rows] @ A[columns].T
            Q *= X[rows] @ X[columns].T
            mixed = B[rows] @ A[columns].T
            Q -= mixed
            Q -= mixed.T if columns == rows else A[rows] @ B[columns].T
            Q *= signs[rows, None]
            Q *= signs[columns]
            return np.asarray(Q)

        return panel


class FeatureBlock(Block):
    """Kernels given by explicit features (n, s, p): the component-wise families."""

    def __init__(self, features: Array, signs: Array) -> None:
        self.signs, (self.n_kernels, self.width) = signs, features.shape[1:]
        self._features = features * signs[:, None, None]

    def vectors(self, duals: Array, rows: slice = ALL) -> Array:
        return np.asarray(np.tensordot(duals[rows], self._features[rows], 1))

    def inner(self, V: Array, W: Array) -> Array:
        return np.asarray(np.einsum("sp,sp->s", V, W))

    def responses(self, V: Array, rows: slice = ALL) -> Array:
        return np.asarray(np.tensordot(self._features[rows], V, 2))

    def columns(self, V: Array, rows: slice = ALL, dtype: DTypeLike = float) -> Array:
        return np.einsum("isp,sp->is", self._features[rows], V).astype(dtype, copy=False)

    def features(self, weights: Array, rows: slice = ALL) -> Array:
        used = weights > 0
        features = self._features[rows, used] * np.sqrt(weights[used])[:, None]
        return np.asarray(features.reshape(len(features), -1))

    def panels(self, weights: Array, dtype: DTypeLike = float) -> Panels:
        features = self.features(weights).astype(dtype, copy=False)
        return lambda columns, rows: np.asarray(features[rows] @ features[columns].T)


class MatrixBlock(Block):
    """Kernels given by their Gram matrices: the generic families of plain MKL.

    Vectors are represented by their coefficients on the samples: (s, n).
    """

    def __init__(self, grams: Sequence[Array], signs: Array) -> None:
        self.signs, self.n_kernels, self.width = signs, len(grams), 0
        self._grams = [K * np.outer(signs, signs) for K in grams]

    def vectors(self, duals: Array, rows: slice = ALL) -> Array:
        V = np.zeros((self.n_kernels, len(self.signs)))
        V[:, rows] = duals[rows]
        return V

    def inner(self, V: Array, W: Array) -> Array:
        return np.array([v @ (K @ w) for K, v, w in zip(self._grams, V, W, strict=True)])

    def responses(self, V: Array, rows: slice = ALL) -> Array:
        return np.sum([K[rows] @ v for K, v in zip(self._grams, V, strict=True)], axis=0)

    def columns(self, V: Array, rows: slice = ALL, dtype: DTypeLike = float) -> Array:
        return np.stack([K[rows] @ v for K, v in zip(self._grams, V, strict=True)], axis=1).astype(dtype, copy=False)

    def panels(self, weights: Array, dtype: DTypeLike = float) -> Panels:
        def panel(columns: slice, rows: slice) -> Array:
            Q = np.zeros_like(self._grams[0][rows, columns])
            for weight, K in zip(weights, self._grams, strict=True):
                if weight > 0:
                    Q += weight * K[rows, columns]
            return Q.astype(dtype, copy=False)

        return panel


_AT_ONCE = 4096  # rows whose bumps are made


def make_block(kernels: LocallyLinearKernels, X: Array, signs: Array, dtype: DTypeLike = float) -> Block:
    """The block for the family of these kernels; global ones keep their bumps in this precision."""
    if isinstance(kernels, GlobalKernels):
        return GlobalBlock(kernels, X, signs, dtype)
    return FeatureBlock(kernels.features(X), signs)


def vectors_of(kernels: LocallyLinearKernels, X: Array, signed_duals: Array) -> Array:
    """The vectors of samples with these signed duals, in the layout of a block of these kernels."""
    moments = kernels.moments(X, signed_duals[:, None])
    if not isinstance(moments, tuple):
        return moments[0]
    V, mass = (part[0] for part in moments)
    return np.concatenate([V, np.sqrt(kernels.local_bias) * mass[:, None]], axis=1)
