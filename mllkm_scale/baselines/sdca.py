"""Stochastic Dual Coordinate Ascent for the linear SVM (Shalev-Shwartz and Zhang 2013).

    min over w:               P = 1/2 |w|^2 + C sum_i max(0, 1 - y_i <w, x_i>)
    max over 0 <= alpha <= C: D = sum alpha - 1/2 |w(alpha)|^2,      w(alpha) = sum_i alpha_i y_i x_i

with a constant 1 appended to every x_i for the bias. A step maximises D over one alpha_i exactly, in O(d); an epoch
visits the samples in a random order, and training ends at a relative duality gap (P - D) / P. The epochs are those of
`mllkm_scale.solver`, on the features as they are instead of locally linear ones; between two evaluations of the gap,
samples at a bound rest whose margin is far on the right side of it.
"""

from __future__ import annotations

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.baselines.base import LinearBaseline, check_count, check_positive, seed_of, warn_of_gap
from mllkm_scale.solver.sdca import sdca_epoch_features
from mllkm_scale.solver.svm import EpochLimits, SVMSolution, run_epochs

__all__ = ["SDCAClassifier"]


class SDCAClassifier(LinearBaseline):
    """Linear SVM by Stochastic Dual Coordinate Ascent; more than two classes are one against the rest.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the hinge losses against the norm.
    fit_intercept : bool, default=True
        Learn a bias. It is the weight of a constant feature 1, and regularised with the other weights, as in LIBLINEAR.
    tol : float, default=1e-3
        Relative duality gap `(P - D) / P` at which training stops.
    max_iter : int, default=1000
        Largest number of epochs for one class.
    random_state : int or None, default=0
        Seed of the orders in which the samples are visited.

    Attributes
    ----------
    coef_ : ndarray of shape (K, d)
        Weights; K is 1 for two classes.
    intercept_ : ndarray of shape (K,)
        Biases.
    duals_ : ndarray of shape (n, K)
        Dual variables of the samples, from 0 to C.
    gap_ : ndarray of shape (K,)
        Relative duality gap reached for each class.
    n_iter_ : ndarray of shape (K,)
        Epochs run for each class.

    References
    ----------
    S. Shalev-Shwartz, T. Zhang, "Stochastic dual coordinate ascent methods for regularized loss minimization", Journal
    of Machine Learning Research 14, 2013.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_wine(return_X_y=True)
    >>> SDCAClassifier().fit(scale(X), y).score(scale(X), y) > 0.99
    True
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        fit_intercept: bool = True,
        tol: float = 1e-3,
        max_iter: int = 1000,
        random_state: int | None = 0,
    ) -> None:
        self.C = C
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def _learn(self, X: Array, signs: Array) -> None:
        check_positive(C=self.C, tol=self.tol)
        check_count(max_iter=self.max_iter)
        features = self._features(X)
        key = (seed_of(self.random_state),)
        # Every class draws the same orders, as if it were trained alone.
        solutions = [self._solve(features, np.ascontiguousarray(column), key) for column in signs.T]
        self.duals_ = np.column_stack([solution.duals for solution in solutions])
        self.gap_ = np.array([solution.gap for solution in solutions])
        self.n_iter_ = np.array([solution.epochs for solution in solutions])
        warn_of_gap("SDCA", self.gap_.max(), self.tol, self.max_iter)
        # Computed again from the duals: w of the epochs has the rounding errors of all steps.
        self._set_weights((self.duals_ * signs).T @ features)

    def _solve(self, features: Array, signs: Array, key: tuple[int, ...]) -> SVMSolution:
        C, duals, w = float(self.C), np.zeros(len(features)), np.zeros(features.shape[1])
        diagonal, even = np.einsum("ij,ij->i", features, features), np.ones(features.shape[1])
        upper = np.full(len(signs), C)

        def epoch(order: Array) -> None:
            sdca_epoch_features(features, even, diagonal, signs, upper, order, duals, w)

        def state() -> tuple[Array, Array]:
            return duals, signs * (features @ w)

        limits = EpochLimits(float(self.tol), most=int(self.max_iter), least=1)
        return run_epochs(epoch, state, C, len(duals), limits, key)
