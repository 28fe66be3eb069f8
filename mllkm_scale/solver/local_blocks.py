"""SDCA on the features sqrt(beta_m) H_im [x_i - c_m, sqrt(b)] of global kernels, block by block in matrix products.

With the sums of all samples  v_m = sum_j a_j H_jm (x_j - c_m)  and  r_m = sum_j a_j H_jm,

    f(x_i) = <x_i, sum_m H_im beta_m v_m> + sum_m H_im beta_m (b r_m - <c_m, v_m>)

is one product with the bumps. The weights stand beside the sums, so other ones cost nothing, and the forms of all
kernels are q_m = |v_m|^2 + b r_m^2. The Gram matrix of a block takes E_im = H_im (<x_i, c_m> - (|c_m|^2 + b) / 2):

    K = X X' o (H beta H') - E beta H' - H beta E'

What a block needs of its samples alone, bumps and that matrix, is made ahead by all threads. Then SDCA visits the
samples of the block on it, and adds them to the sums. The steps equal those of an epoch that visits the samples one by
one in the same order, for any number of threads. All of it is compiled, so that the threads of several classes do not
wait for each other. Bumps are kept, or made again wherever they are needed, which takes half as long again as the
products.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import DTypeLike

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.threads import Threads
from mllkm_scale.kernels.locally_linear import GlobalKernels
from mllkm_scale.solver.box import Box
from mllkm_scale.solver.visits import BLOCK_ROWS, block_grams, visit_blocks

__all__ = ["AHEAD_ROWS", "PASS_ROWS", "LocalBlocks"]


AHEAD_ROWS = 8 * BLOCK_ROWS
"""Samples of a task that makes blocks ready."""
PASS_ROWS = 1024
"""Samples at a time where nothing depends on their order."""


@dataclass(frozen=True)
class _Prepared:
    """Of some samples: bumps, rows with a one behind them, and Gram matrices of their blocks."""

    at: Array
    H: Array
    Z: Array
    grams: Array


class LocalBlocks:
    """The samples of one class on weighted kernels: epochs of SDCA, margins, and forms; `duals` change in place."""

    def __init__(
        self,
        kernels: GlobalKernels,
        weights: Array,
        X: Array,
        signs: Array,
        C: float | Box,
        duals: Array,
        dtype: DTypeLike,
        threads: Threads | None = None,
        *,
        keep: bool = True,
    ) -> None:
        origin = kernels.anchors.mean(axis=0)
        self._signs, self._upper, self.duals = signs, Box.of(C, len(signs)).upper, duals
        self._threads, self._bias, self._dtype = threads or Threads(), kernels.local_bias, dtype
        self._Z = np.ones((len(X), X.shape[1] + 1), dtype)
        np.subtract(X, origin, out=self._Z[:, :-1], casting="same_kind")
        self._kernels = replace(kernels, anchors=kernels.anchors - origin)
        self._H: Array | None = None
        if keep:
            H = np.empty((len(X), len(kernels)), dtype)

            def fill(rows: slice) -> None:
                H[rows] = self._bumps(rows)

            self._threads.run(fill, _slices(len(X)))
            self._H = H
        self._anchors = (kernels.anchors - origin).astype(dtype)
        self._half = (0.5 * (np.einsum("ij,ij->i", self._anchors, self._anchors) + self._bias)).astype(dtype)
        self.reweigh(weights)
        self._sum_up()

    def reweigh(self, weights: Array) -> None:
        """Go on with other weights."""
        self._weights = weights.astype(self._dtype)

    def epoch(self, order: Array) -> None:
        """Visit the samples in this order."""
        tasks = [order[start : start + AHEAD_ROWS] for start in range(0, len(order), AHEAD_ROWS)]
        for ready in self._threads.map(self._prepare, tasks):
            at = ready.at
            duals = self.duals[at]
            machine = self._weights, self._anchors, self._bias
            visit_blocks(ready.H, ready.Z, ready.grams, *machine, self._signs[at], self._upper[at], duals, self._sums)
            self.duals[at] = duals

    def margins(self) -> Array:
        """y f(x) of all samples, from recomputed sums, so rounding does not accumulate over the epochs."""
        self._sum_up()
        table = self._table()

        def outputs(rows: slice) -> Array:
            return self._outputs(self._bumps(rows), self._Z[rows], table)

        return np.asarray(self._signs * np.concatenate(self._threads.run(outputs, _slices(len(self._Z)))))

    def forms(self) -> Array:
        """q_m of all kernels, by the sums."""
        V, r = self._sums[:, :-1].astype(np.float64), self._sums[:, -1].astype(np.float64)
        return np.asarray(np.einsum("sd,sd->s", V, V) + self._bias * r * r)

    def _bumps(self, rows: Array | slice) -> Array:
        """H of some samples."""
        if self._H is not None:
            return np.asarray(self._H[rows])
        return self._kernels.bumps(self._Z[rows, :-1].astype(np.float64)).astype(self._dtype)

    def _prepare(self, at: Array) -> _Prepared:
        H, Z = self._bumps(at), self._Z[at]
        return _Prepared(at, H, Z, block_grams(H, Z[:, :-1].copy(), self._anchors, self._half, self._weights))

    def _table(self) -> Array:
        """What bumps are multiplied by for f: beta [v, b r - <c, v>]."""
        table = self._sums * self._weights[:, None]
        table[:, -1] *= self._bias
        table[:, -1] -= np.einsum("sd,sd->s", table[:, :-1], self._anchors)
        return table

    def _outputs(self, H: Array, Z: Array, table: Array) -> Array:
        """f of some samples."""
        return np.einsum("ij,ij->i", H @ table, Z).astype(np.float64)

    def _sum_up(self) -> None:
        """Recompute the sums of all samples."""
        self._sums = np.zeros((len(self._kernels), self._Z.shape[1]), self._dtype)  # v_m and r_m
        used = np.flatnonzero(self.duals)
        mass = (self.duals * self._signs).astype(self._dtype)

        def part(at: slice) -> Array:
            rows = used[at]
            return np.asarray(self._bumps(rows).T @ (self._Z[rows] * mass[rows, None]))

        for more in self._threads.map(part, _slices(len(used))):
            self._sums += more
        self._sums[:, :-1] -= self._sums[:, -1:] * self._anchors


def _slices(n: int) -> list[slice]:
    return [slice(start, min(start + PASS_ROWS, n)) for start in range(0, n, PASS_ROWS)]
