"""The SVM of one class on explicit features: no Gram at all, O(s d) a coordinate step (F11)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.kernels.locally_linear import GlobalKernels, LocallyLinearKernels
from mllkm_scale.solver.sdca import sdca_epoch_features, sdca_epoch_local
from mllkm_scale.solver.svm import SVMSolution, run_epochs

__all__ = ["FeatureSVM"]

Array = NDArray[Any]


class FeatureSVM:
    """SDCA on explicit features: O(s d) a step, and memory for the bumps alone (global kernels)."""

    def __init__(
        self, kernels: LocallyLinearKernels, X: Array, signs: Array, C: float, key: tuple[int, ...] = (0,)
    ) -> None:
        self.signs, self._kernels, self._X, self._C, self._key = signs, kernels, X, float(C), key

    def solve(self, weights: Array, duals: Array, tol: float, max_epochs: int) -> SVMSolution:
        used = np.flatnonzero(weights)
        kernels, root = self._kernels.take(used), np.sqrt(weights[used])
        duals = duals.astype(np.float64, copy=True)
        mass = duals * self.signs
        X, signs, C = self._X, self.signs, self._C
        if isinstance(kernels, GlobalKernels):
            A = kernels.bumps(X) * root
            diagonal = kernels.diagonals(X) @ weights[used]
            local = mass @ A
            w = (A * mass[:, None]).T @ X - local[:, None] * kernels.anchors

            def epoch(order: Array) -> float:
                return float(
                    sdca_epoch_local(
                        X, A, kernels.anchors, kernels.local_bias, diagonal, signs, C, order, duals, w, local
                    )
                )

            def state() -> tuple[Array, Array]:
                inner = X @ w.T - np.einsum("sd,sd->s", w, kernels.anchors) + kernels.local_bias * local
                return duals, signs * np.einsum("is,is->i", A, inner)

        else:
            phi = kernels.features(X) * root[:, None]
            phi = phi.reshape(len(phi), -1)
            diagonal = np.einsum("ij,ij->i", phi, phi)
            flat = mass @ phi

            def epoch(order: Array) -> float:
                return float(sdca_epoch_features(phi, diagonal, signs, C, order, duals, flat))

            def state() -> tuple[Array, Array]:
                return duals, signs * (phi @ flat)

        return run_epochs(epoch, state, C, len(duals), tol, max_epochs, self._key)
