"""SequentialMKL (the paper's Algorithm 2) as a classifier on the generic kernels: few of them are ever held.

The problem and the kernels stand in `generic_mkl`, the algorithm in `mkl.paper`.
"""

from __future__ import annotations

from mllkm_scale.base.arrays import Array
from mllkm_scale.baselines.generic_mkl import GenericMKL
from mllkm_scale.kernels.generic import GenericFamily
from mllkm_scale.mkl.algorithm2 import PaperMKL

__all__ = ["SequentialMKLClassifier"]


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
