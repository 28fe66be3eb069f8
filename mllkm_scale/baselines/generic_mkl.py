"""What SimpleMKL and SequentialMKL share as classifiers: the 19 generic kernels of every feature, and prediction.

    min over beta in the simplex   sum over classes k of J_k(beta)
    J_k(beta) = max over 0 <= alpha <= C of   sum alpha - 1/2 sum_m beta_m sum_ij a_i a_j k_m(x_i, x_j),  a = alpha y_k

    f_k(x) = sum_m beta_m sum_i alpha_ik y_ik k_m(x, x_i)

The kernels and the procedure are those of Rakotomamonjy et al. 2008, on single features as in the paper on MLLKM:
features of zero mean and unit variance, kernels of unit trace. There is no bias: the inhomogeneous kernels hold a
constant. A kernel of unit mean diagonal is n times one of unit trace, so C is n times smaller inside.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.baselines.base import Baseline
from mllkm_scale.baselines.checks import check_positive, seed_of
from mllkm_scale.kernels.generic import GenericFamily

__all__ = ["GenericMKL"]


class GenericMKL(Baseline):
    """A classifier on the generic kernels; subclasses find the weights and duals."""

    def __init__(self, C: float = 100.0, tol: float = 0.01, random_state: int | None = 0) -> None:
        self.C = C
        self.tol = tol
        self.random_state = random_state

    @abstractmethod
    def _solve(
        self, family: GenericFamily, X: Array, signs: Array, C: float, seed: int
    ) -> tuple[Array, Array, Array, float]:
        """Ids and weights of the kernels that are used, duals (n, K), and the relative duality gap over all kernels."""

    def _learn(self, X: Array, signs: Array) -> None:
        check_positive(C=self.C, tol=self.tol)
        self.mean_, spread = X.mean(axis=0), X.std(axis=0)
        self.scale_ = np.where(spread > 0, spread, 1.0)
        X = (X - self.mean_) / self.scale_
        self.family_ = GenericFamily.fit(X)
        solution = self._solve(self.family_, X, signs, self.C / len(X), seed_of(self.random_state))
        self.kernels_, self.weights_, self.duals_, self.gap_ = solution
        self.support_ = np.flatnonzero(self.duals_.any(axis=1))
        self.support_vectors_ = X[self.support_]
        self.dual_coef_ = (self.duals_ * signs)[self.support_]

    def _scores(self, X: Array) -> Array:
        X = (X - self.mean_) / self.scale_
        return self.family_.combined_gram(self.kernels_, self.weights_, X, self.support_vectors_) @ self.dual_coef_
