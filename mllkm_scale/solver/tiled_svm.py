"""The SVM of one class on tiles of its combined Gram matrix, from the bounded store (F2, F11).

An epoch passes over the row blocks: SDCA on the diagonal tile, then one product with each other tile of the row to
update the outputs of the other blocks. The direction of the pass alternates, and the store keeps the first tiles.
"""

from __future__ import annotations

import hashlib

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.gram.store import TileKey, TileStore
from mllkm_scale.kernels.locally_linear import LocallyLinearKernels
from mllkm_scale.solver.box import Box
from mllkm_scale.solver.sdca import sdca_epoch
from mllkm_scale.solver.svm import EpochLimits, SVMSolution, run_epochs

__all__ = ["TILE_ROWS", "TiledSVM"]


TILE_ROWS = 1024  # 8 MB tiles


class TiledSVM:
    """SDCA on tiles; `name` distinguishes the tiles of this problem from those of others in the same store.

    The tiles of the last weights stay in the store until other weights are solved for, or until `close`.
    """

    def __init__(
        self,
        kernels: LocallyLinearKernels,
        X: Array,
        signs: Array,
        C: float | Box,
        store: TileStore,
        name: str = "",
        key: tuple[int, ...] = (0,),
    ) -> None:
        self.signs, self.box = signs, Box.of(C, len(signs))
        self._kernels, self._X, self._key = kernels, X, key
        self._store, self._name, self._generation = store, name, ""
        self._blocks = [slice(i, min(i + TILE_ROWS, len(X))) for i in range(0, len(X), TILE_ROWS)]

    def solve(self, weights: Array, duals: Array, limits: EpochLimits) -> SVMSolution:
        self._renew(weights)
        duals = duals.astype(np.float64, copy=True)
        outputs, upper = np.zeros(len(duals)), self.box.upper
        for i, block in enumerate(self._blocks):
            self._spread(weights, i, duals[block] * self.signs[block], outputs)
        forward = True

        def epoch(order: Array) -> float:
            nonlocal forward
            worst = 0.0
            numbers = range(len(self._blocks))
            for i in numbers if forward else reversed(numbers):
                block = self._blocks[i]
                local = order[(order >= block.start) & (order < block.stop)] - block.start
                before, shadow = duals[block].copy(), outputs[block].copy()
                tile = self._tile(weights, i, i)
                worst = max(worst, sdca_epoch(tile, self.signs[block], upper[block], local, duals[block], shadow))
                self._spread(weights, i, (duals[block] - before) * self.signs[block], outputs)
            forward = not forward
            return worst

        def state() -> tuple[Array, Array]:
            return duals, self.signs * outputs

        return run_epochs(epoch, state, self.box, len(duals), limits, self._key)

    def close(self) -> None:
        """Forget the tiles of this problem."""
        self._store.retire(self._generation)

    def _renew(self, weights: Array) -> None:
        generation = f"{self._name}/{hashlib.sha256(np.ascontiguousarray(weights).tobytes()).hexdigest()[:16]}"
        if generation != self._generation:
            self.close()
            self._generation = generation

    def _tile(self, weights: Array, i: int, j: int) -> Array:
        def make() -> Array:
            used = np.flatnonzero(weights)
            kernels = self._kernels.take(used)
            return kernels.combined_gram(weights[used], self._X[self._blocks[i]], self._X[self._blocks[j]])

        return self._store.get(TileKey(self._generation, i, j), make)

    def _spread(self, weights: Array, i: int, mass: Array, outputs: Array) -> None:
        """outputs += K[:, block i] mass, tile by tile; only the lower triangle of tiles is computed."""
        if not mass.any():
            return
        for j, block in enumerate(self._blocks):
            if j >= i:
                outputs[block] += self._tile(weights, j, i) @ mass
            else:
                outputs[block] += self._tile(weights, i, j).T @ mass
