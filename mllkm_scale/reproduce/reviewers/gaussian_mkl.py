"""l1-MKL over plain Gaussian kernels of several widths on all features, by the paper's SequentialMKL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.baselines.base import Baseline
from mllkm_scale.kernels.distances import squared_distances
from mllkm_scale.mkl.algorithm2 import PaperMKL

__all__ = ["GaussianFamily", "GaussianMKLClassifier"]


@dataclass(frozen=True)
class GaussianFamily:
    """Kernels exp(-gamma |x - z|^2), one a gamma; their diagonals are one."""

    gammas: Array

    @property
    def scales(self) -> Array:
        """No kernel is left out."""
        return np.ones(len(self.gammas))

    def __len__(self) -> int:
        return len(self.gammas)

    def describe(self, id: int) -> str:
        """The formula of a kernel."""
        return f"exp(-{self.gammas[id]:.4g} |x - z|^2)"

    def combined_gram(self, ids: Array, weights: Array, X: Array, Z: Array) -> Array:
        """sum_m beta_m k_m(x, z), shape (rows of X, rows of Z)."""
        squares = squared_distances(X, Z)
        return np.asarray(sum(w * np.exp(-self.gammas[id] * squares) for id, w in zip(ids, weights, strict=True)))

    def quadratic_forms(self, X: Array, signed_duals: Array) -> Array:
        """q_m of all kernels, summed over the classes."""
        return self.active(np.arange(len(self.gammas)), X).forms(signed_duals)

    def active(self, ids: Array, X: Array) -> ActiveGaussians:
        """The kernels with these ids on these rows."""
        squares = squared_distances(X, X)
        return ActiveGaussians(np.stack([np.exp(-self.gammas[id] * squares) for id in ids]))


@dataclass(frozen=True)
class ActiveGaussians:
    """Gram matrices (s, n, n) of a few kernels."""

    grams: Array

    def gram(self, weights: Array) -> Array:
        """sum_m beta_m K_m."""
        return np.tensordot(weights, self.grams, axes=1)

    def forms(self, signed_duals: Array) -> Array:
        """q_m summed over the classes."""
        return np.maximum(np.einsum("ik,sik->s", signed_duals, self.grams @ signed_duals), 0.0)


class GaussianMKLClassifier(Baseline):
    """A sum of Gaussian kernels whose weights are learned; C is for kernels of unit trace, as in the table."""

    def __init__(self, C: float = 100.0, gammas: Sequence[float] = (0.1, 1.0, 10.0), tol: float = 0.01) -> None:
        self.C = C
        self.gammas = gammas
        self.tol = tol

    def _learn(self, X: Array, signs: Array) -> None:
        mkl = PaperMKL(GaussianFamily(np.asarray(self.gammas)), X, signs, self.C / len(X), self.tol)
        *_, (state, _) = mkl.rounds()
        self.weights_, self._mkl, self._state = state.weights, mkl, state

    def _scores(self, X: Array) -> Array:
        return self._mkl.decide(self._state, X)
