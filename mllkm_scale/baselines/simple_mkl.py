"""SimpleMKL (Rakotomamonjy et al. 2008) as a classifier: reduced gradient on the weights of all generic kernels.

The Gram matrices of all 10 d Gaussian kernels are held at once, n^2 numbers each, which is what the doubts about the
memory of MKL are about. The problem and the kernels stand in `generic_mkl`, the algorithm in `mkl.simple`.
"""

from __future__ import annotations

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.baselines.generic_mkl import GenericMKL
from mllkm_scale.kernels.generic import ActiveGeneric, GenericFamily
from mllkm_scale.mkl.oracle import Oracle
from mllkm_scale.mkl.simple import simple_mkl
from mllkm_scale.solver.svm import DenseSVM

__all__ = ["SimpleMKLClassifier"]


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
        solution = simple_mkl(Oracle(svms, forms, C), np.full(len(ids), 1.0 / len(ids)), self.tol)
        used = solution.weights > 0
        duals = solution.duals.reshape(signs.shape[::-1]).T
        return ids[used], solution.weights[used], duals, solution.objective.gap
