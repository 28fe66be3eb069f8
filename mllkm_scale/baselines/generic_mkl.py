"""SimpleMKL and SequentialMKL as classifiers on generic kernels: 19 kernels of every feature, as in the paper on MLLKM.

    min over beta in the simplex   sum over classes k of J_k(beta)
    J_k(beta) = max over 0 <= alpha <= C of   sum alpha - 1/2 sum_m beta_m sum_ij a_i a_j k_m(x_i, x_j),  a = alpha y_k

    f_k(x) = sum_m beta_m sum_i alpha_ik y_ik k_m(x, x_i)

The kernels and the procedure are those of Rakotomamonjy et al. 2008, on single features: features of zero mean and unit
variance, kernels of unit trace. There is no bias: the inhomogeneous kernels hold a constant. A kernel of unit mean
diagonal is n times one of unit trace, so C is n times smaller inside.

SimpleMKL (`mkl.simple`) holds the Grams of all kernels. SequentialMKL, the paper's Algorithm 2 (`mkl.algorithm2`),
holds only those of the kernels that are active.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.baselines.base import Baseline, check_positive, seed_of
from mllkm_scale.kernels.generic import ActiveGeneric, GenericFamily
from mllkm_scale.mkl.algorithm2 import PaperMKL
from mllkm_scale.mkl.oracle import Oracle
from mllkm_scale.mkl.simple import simple_mkl
from mllkm_scale.solver.svm import DenseSVM

__all__ = ["GenericMKL", "SequentialMKLClassifier", "SimpleMKLClassifier"]


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


class SimpleMKLClassifier(GenericMKL):
    """l1 multiple kernel learning by SimpleMKL, on the 19 kernels of every feature.

    Parameters
    ----------
    C : float
        Weight of the hinge loss, for kernels of unit trace.
    tol : float
        Relative duality gap at which the descent ends.
    random_state : int or None
        Seed of the orders in which the inner SVM visits the samples.

    Attributes
    ----------
    classes_ : array (c,)
    kernels_, weights_ : arrays (s,)
        Ids of the kernels with a weight (`family_.describe` names them), and the weights, which sum to one.
    support_ : array (n_support,)
        Training rows that any class needs.
    dual_coef_ : array (n_support, K)
        alpha_i y_i of these rows.
    gap_ : float
        Relative duality gap that was reached.

    References
    ----------
    A. Rakotomamonjy, F. Bach, S. Canu, Y. Grandvalet: SimpleMKL. Journal of Machine Learning Research 9, 2008.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> machine = SimpleMKLClassifier().fit(X[::2], y[::2])
    >>> machine.score(X[1::2], y[1::2]) > 0.9, machine.gap_ <= 0.01
    (True, True)
    """

    def _solve(
        self, family: GenericFamily, X: Array, signs: Array, C: float, seed: int
    ) -> tuple[Array, Array, Array, float]:
        ids = np.flatnonzero(family.scales)
        kernels = ActiveGeneric(family, ids, X, kept_bytes=8 * len(ids) * len(X) ** 2)

        def forms(k: int, duals: Array) -> Array:
            return kernels.forms((duals * signs[:, k])[:, None])

        svms = [DenseSVM(kernels.gram, y, C, (seed, k)) for k, y in enumerate(signs.T)]
        solution = simple_mkl(Oracle(svms, forms), np.full(len(ids), 1.0 / len(ids)), self.tol)
        used = solution.weights > 0
        duals = solution.duals.reshape(signs.shape[::-1]).T
        return ids[used], solution.weights[used], duals, solution.objective.gap


class SequentialMKLClassifier(GenericMKL):
    """l1 multiple kernel learning by SequentialMKL, on the 19 kernels of every feature.

    Parameters
    ----------
    C : float
        Weight of the hinge loss, for kernels of unit trace.
    tol : float
        Relative duality gap over all kernels at which the rounds end.
    random_state : int or None
        Seed of the orders in which the inner SVM visits the samples.

    Attributes
    ----------
    classes_ : array (c,)
    kernels_, weights_ : arrays (s,)
        Ids of the kernels with a weight (`family_.describe` names them), and the weights, which sum to one.
    support_ : array (n_support,)
        Training rows that any class needs.
    dual_coef_ : array (n_support, K)
        alpha_i y_i of these rows.
    gap_ : float
        Relative duality gap over all kernels that was reached.
    n_iter_ : int
        Rounds.

    References
    ----------
    D. Picard: Multiple Locally Linear Kernel Machines, section 4.1, algorithm 2.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> machine = SequentialMKLClassifier().fit(X[::2], y[::2])
    >>> machine.score(X[1::2], y[1::2]) > 0.9, machine.gap_ <= 0.01
    (True, True)
    """

    def _solve(
        self, family: GenericFamily, X: Array, signs: Array, C: float, seed: int
    ) -> tuple[Array, Array, Array, float]:
        mkl = PaperMKL(family, X, signs, C, self.tol, seed=seed)
        *_, (state, certificate) = mkl.rounds()
        self.n_iter_ = state.round
        used = state.weights > 0
        return state.active[used], state.weights[used], state.duals, certificate.gap
