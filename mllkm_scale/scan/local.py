"""The scanner on one machine: blocks of anchors on a fixed grid, in threads with one BLAS thread each.

`scan(support)` returns the best candidates and a bound on q over ALL kernels of the grid: what the certificate needs (F5).
In single precision the best candidates are evaluated again in double precision, and the bound on the rest is
raised by more than the products can be off.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mllkm_scale.kernels.grid import KernelGrid
from mllkm_scale.scan.products import Support, scan_block

__all__ = ["BLOCK_BYTES", "LocalScanner", "ScanResult", "block_height"]

Array = NDArray[Any]

BLOCK_BYTES = 16 << 20  # of the distances of one block
_LEAST_HEIGHT = 64
_SINGLE_PRECISION_MARGIN = 1e-4


def block_height(n_support: int, itemsize: int) -> int:
    """Anchors per block: a function of the problem alone, so that the bits do not depend on the machine."""
    return max(_LEAST_HEIGHT, BLOCK_BYTES // (itemsize * max(1, n_support)))


@dataclass(frozen=True)
class ScanResult:
    """Best kernel of each of the best anchors, best first, and a bound on q over the whole grid."""

    ids: Array
    values: Array
    maximum: float
    seconds: float


@dataclass(frozen=True)
class LocalScanner:
    """Scans the whole grid with `n_jobs` threads; the answer does not depend on their number."""

    grid: KernelGrid
    n_jobs: int = 1
    dtype: np.dtype[Any] = np.dtype(np.float32)

    def scan(self, X: Array, signed_duals: Array, count: int, stop: Callable[[], bool] = lambda: False) -> ScanResult:
        """The `count` best candidates for support rows X (n_sv, d) with signed duals (n_sv, K)."""
        started = time.perf_counter()
        support = Support.of(X, signed_duals, self.dtype)
        best_gamma, best = [np.empty(0, np.int64)], [np.empty(0)]
        second = 0.0  # largest q among the kernels that are not their anchor's best
        n_gammas = len(self.grid.gammas)
        with threadpool_limits(1), ThreadPoolExecutor(self.n_jobs) as pool:
            for start, q in _in_order(pool, self._block_forms(support), 2 * self.n_jobs):
                if stop():
                    break
                gamma = q.argmax(axis=1)
                rows = np.arange(len(q))
                best_gamma.append((start + rows) * n_gammas + gamma)
                best.append(q[rows, gamma].copy())
                q[rows, gamma] = 0.0
                second = max(second, float(q.max(initial=0.0)))
        ids, values = np.concatenate(best_gamma), np.concatenate(best)
        order = np.argsort(-values, kind="stable")[: count + 1]
        rest = max(second, float(values[order[count]]) if len(order) > count else 0.0)
        ids, values = ids[order[:count]], values[order[:count]]
        if self.dtype != np.float64 and len(ids):
            values = self.grid.take(ids).quadratic_forms(support.X.astype(np.float64), support.signed_duals)
            order = np.argsort(-values, kind="stable")
            ids, values = ids[order], values[order]
            rest *= 1.0 + _SINGLE_PRECISION_MARGIN
        maximum = max(rest, float(values[0]) if len(values) else 0.0)
        return ScanResult(ids, values, maximum, time.perf_counter() - started)

    def _block_forms(self, support: Support) -> Iterator[Callable[[], tuple[int, Array]]]:
        height = block_height(len(support.X), self.dtype.itemsize)
        grid = self.grid
        for start, chunk in grid.anchors.chunks():
            for first in range(0, len(chunk), height):
                block = chunk[first : first + height]
                at = start + first
                scales = grid.scales[at : at + len(block)]

                def forms(at: int = at, block: Array = block, scales: Array = scales) -> tuple[int, Array]:
                    return at, scan_block(grid.family, block, grid.gammas, scales, support)

                yield forms


def _in_order(
    pool: ThreadPoolExecutor, tasks: Iterator[Callable[[], tuple[int, Array]]], ahead: int
) -> Iterator[tuple[int, Array]]:
    """Results in the order of the tasks, with at most `ahead` of them under way."""
    waiting = []
    for task in tasks:
        waiting.append(pool.submit(task))
        if len(waiting) > ahead:
            yield waiting.pop(0).result()
    for future in waiting:
        yield future.result()
