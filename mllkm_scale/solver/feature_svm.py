"""The SVM of one class on explicit features: no Gram matrix, O(s d) per coordinate step (F11)."""

from __future__ import annotations

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.kernels.locally_linear import GlobalKernels, LocallyLinearKernels
from mllkm_scale.solver.box import Box
from mllkm_scale.solver.local_blocks import LocalBlocks
from mllkm_scale.solver.sdca import sdca_epoch_features
from mllkm_scale.solver.svm import EpochLimits, SVMSolution, run_epochs

__all__ = ["FeatureSVM"]


_SINGLE_PRECISION_TOL = 2e-4  # relative gaps down to this one are reached in single precision


class FeatureSVM:
    """SDCA on explicit features: O(s d) per step, and memory for the bumps only (global kernels)."""

    def __init__(
        self, kernels: LocallyLinearKernels, X: Array, signs: Array, C: float | Box, key: tuple[int, ...] = (0,)
    ) -> None:
        self.signs, self.box = signs, Box.of(C, len(signs))
        self._kernels, self._X, self._key = kernels, X, key

    def solve(self, weights: Array, duals: Array, limits: EpochLimits) -> SVMSolution:
        used = np.flatnonzero(weights)
        kernels, X, signs, box = self._kernels.take(used), self._X, self.signs, self.box
        duals = duals.astype(np.float64, copy=True)
        if isinstance(kernels, GlobalKernels):
            dtype = np.float32 if limits.tol >= _SINGLE_PRECISION_TOL else np.float64
            blocks = LocalBlocks(kernels, weights[used], X, signs, box, duals, dtype)
            return run_epochs(blocks.epoch, lambda: (duals, blocks.margins()), box, len(duals), limits, self._key)
        phi = kernels.features(X) * np.sqrt(weights[used])[:, None]
        phi = phi.reshape(len(phi), -1)
        diagonal = np.einsum("ij,ij->i", phi, phi)
        w, upper = (duals * signs) @ phi, box.upper

        def epoch(order: Array) -> None:
            sdca_epoch_features(phi, diagonal, signs, upper, order, duals, w)

        return run_epochs(epoch, lambda: (duals, signs * (phi @ w)), box, len(duals), limits, self._key)
