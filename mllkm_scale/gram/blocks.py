"""The restricted problem seen by one class: its working samples against the active kernels.

A block answers the two questions that every weight solver asks (y are the signs, K_m the active kernels):

    gram(beta)     Q(beta) = y y' o sum_m beta_m K_m, all of it or some rows of some columns
    moments(a, U)  fills U, whose column m is y o K_m (a o y), and returns the quadratic forms q_m
    forms(a)       the quadratic forms alone
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.kernels.locally_linear import GlobalKernels, LocallyLinearKernels

__all__ = ["Block", "FeatureBlock", "GlobalBlock", "Held", "MatrixBlock", "held_vectors", "make_block"]

Array = NDArray[Any]
ALL = slice(None)
Held = tuple[Array, ...]  # v_m (s, d) and r_m (s,) of global kernels, v_m (s, d + 1) of component-wise ones


class Block(Protocol):
    """One class of the restricted problem."""

    signs: Array

    def gram(self, weights: Array, columns: slice = ALL, rows: slice = ALL) -> Array: ...

    @property
    def n_kernels(self) -> int: ...

    def moments(self, duals: Array, U: Array) -> Array: ...

    def forms(self, duals: Array) -> Array: ...


class GlobalBlock:
    """Global kernels: one linear Gram G = X X' serves them all (F2); it is made where it is needed.

    K = G o (A A') - B A' - A B' + A diag(p) A' with A = H sqrt(beta), B = A * P, P = X C', p = |c|^2 + b. The last
    term is folded into B <- B - A p / 2, which leaves three products; beta is kept on one side of them.
    """

    def __init__(self, kernels: GlobalKernels, X: Array, signs: Array, held: Held | None = None) -> None:
        self.signs, self._held = signs, held
        self._X, self._anchors, self._bias = X, kernels.anchors, kernels.local_bias
        self._H = kernels.bumps(X)
        norms = np.einsum("ij,ij->i", kernels.anchors, kernels.anchors) + kernels.local_bias
        self._B = X @ kernels.anchors.T
        self._B -= 0.5 * norms
        self._B *= self._H

    def gram(self, weights: Array, columns: slice = ALL, rows: slice = ALL) -> Array:
        used = weights > 0
        if columns == rows == ALL:  # symmetric: one product, and half of another
            A, B = self._H[:, used], self._B[:, used]
            root = np.sqrt(weights[used])
            A *= root
            B *= root
            M = B @ A.T
            Q = A @ A.T
            Q *= self._X @ self._X.T
            Q -= M
            Q -= M.T
            Q *= np.outer(self.signs, self.signs)
            return Q
        A, B = self._H[rows, used], self._B[rows, used]
        right, B_right = self._H[columns, used] * weights[used], self._B[columns, used] * weights[used]
        Q = A @ right.T
        Q *= self._X[rows] @ self._X[columns].T
        Q -= B @ right.T
        Q -= A @ B_right.T
        Q *= self.signs[rows, None]
        Q *= self.signs[columns]
        return np.asarray(Q)

    @property
    def n_kernels(self) -> int:
        return int(self._H.shape[1])

    def _vectors(self, duals: Array) -> tuple[Array, Array]:
        """v_m = sum_i a_i H_im (x_i - c_m), and r_m = sum_i a_i H_im."""
        mass = self._H * (duals * self.signs)[:, None]
        r = mass.sum(axis=0)
        V = mass.T @ self._X
        V -= r[:, None] * self._anchors
        return V, r

    def forms(self, duals: Array) -> Array:
        V, r = self._vectors(duals)
        return np.einsum("sd,sd->s", V, V) + self._bias * r * r

    def moments(self, duals: Array, U: Array) -> Array:
        V, r = self._vectors(duals)
        if self._held is not None:
            V += self._held[0]
            r += self._held[1]
        np.matmul(self._X, V.T, out=U)
        U -= np.einsum("sd,sd->s", V, self._anchors) - self._bias * r
        U *= self._H
        U *= self.signs[:, None]
        return np.asarray(np.einsum("sd,sd->s", V, V) + self._bias * r * r)


class FeatureBlock:
    """Kernels given by explicit features (n, s, p): the component-wise families."""

    def __init__(self, features: Array, signs: Array, held: Held | None = None) -> None:
        self.signs, self._held = signs, held
        self._features = features * signs[:, None, None]

    def gram(self, weights: Array, columns: slice = ALL, rows: slice = ALL) -> Array:
        used = weights > 0
        left = self._features[rows, used]
        right = self._features[columns, used] * weights[used][:, None]
        return np.asarray(left.reshape(len(left), -1) @ right.reshape(len(right), -1).T)

    @property
    def n_kernels(self) -> int:
        return int(self._features.shape[1])

    def moments(self, duals: Array, U: Array) -> Array:
        V = np.tensordot(duals, self._features, 1)
        if self._held is not None:
            V += self._held[0]
        np.einsum("isp,sp->is", self._features, V, out=U)
        return np.asarray(np.einsum("sp,sp->s", V, V))

    def forms(self, duals: Array) -> Array:
        V = np.tensordot(duals, self._features, 1)
        return np.einsum("sp,sp->s", V, V)


class MatrixBlock:
    """Kernels given by their Gram matrices: the generic families of plain MKL."""

    def __init__(self, grams: Sequence[Array], signs: Array) -> None:
        self.signs = signs
        self._grams = [K * np.outer(signs, signs) for K in grams]

    def gram(self, weights: Array, columns: slice = ALL, rows: slice = ALL) -> Array:
        Q = np.zeros_like(self._grams[0][rows, columns])
        for weight, K in zip(weights, self._grams, strict=True):
            if weight > 0:
                Q += weight * K[rows, columns]
        return Q

    @property
    def n_kernels(self) -> int:
        return len(self._grams)

    def moments(self, duals: Array, U: Array) -> Array:
        for m, K in enumerate(self._grams):
            U[:, m] = K @ duals
        return np.asarray(duals @ U)

    def forms(self, duals: Array) -> Array:
        return np.array([duals @ (K @ duals) for K in self._grams])


def held_vectors(kernels: LocallyLinearKernels, X: Array, signed_duals: Array) -> Held:
    """What samples add to the moments of a block if their duals do not change: sums of a_i phi_m(x_i)."""
    moments = kernels.moments(X, signed_duals[:, None])
    return tuple(part[0] for part in (moments if isinstance(moments, tuple) else (moments,)))


def make_block(kernels: LocallyLinearKernels, X: Array, signs: Array, held: Held | None = None) -> Block:
    """The block that suits the family of these kernels; its moments include samples that are held, its forms do not."""
    if isinstance(kernels, GlobalKernels):
        return GlobalBlock(kernels, X, signs, held)
    return FeatureBlock(kernels.features(X), signs, held)
