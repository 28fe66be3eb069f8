"""The scanner on one machine: blocks of anchors on a fixed grid, in threads with one BLAS thread each.

`scan` returns the best candidates and a bound on q over ALL kernels of the grid: what the certificate needs (F5).
In single precision the best candidates are evaluated again in double precision, and the bound on the rest is
raised by more than the products can be off.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.kernels.grid import KernelGrid
from mllkm_scale.scan.products import Support, scan_block
from mllkm_scale.team import Team

__all__ = ["BLOCK_BYTES", "LocalScanner", "ScanResult", "block_bytes", "block_height"]

Array = NDArray[Any]

BLOCK_BYTES = 8 << 20  # of the distances of one block
_LEAST_HEIGHT = 64
_SINGLE_PRECISION_MARGIN = 1e-4


def block_height(n_support: int, itemsize: int) -> int:
    """Anchors per block: a function of the problem alone, so that the bits do not depend on the machine."""
    return max(_LEAST_HEIGHT, BLOCK_BYTES // (itemsize * max(1, n_support)))


def block_bytes(n_support: int, n_features: int) -> int:
    """Memory of a thread that scans: distances, bumps and masses of a block, and its anchors and products."""
    height = block_height(n_support, 4)
    return 3 * height * n_support * 4 + 4 * height * n_features * 8


@dataclass(frozen=True)
class ScanResult:
    """Best kernel of each of the best anchors, best first, and a bound on q over the whole grid."""

    ids: Array
    values: Array
    maximum: float
    seconds: float


@dataclass(frozen=True)
class LocalScanner:
    """Scans the whole grid with a team of threads; the answer does not depend on their number."""

    grid: KernelGrid
    team: Team = field(default_factory=Team)
    dtype: np.dtype[Any] = np.dtype(np.float32)
    poll: Callable[[], None] = lambda: None

    def scan(self, X: Array, signed_duals: Array, count: int) -> ScanResult:
        """The `count` best candidates for support rows X (n_sv, d) with signed duals (n_sv, K)."""
        started = time.perf_counter()
        support = Support.of(X, signed_duals, self.dtype)
        best_gamma, best = [np.empty(0, np.int64)], [np.empty(0)]
        second = 0.0  # largest q among the kernels that are not their anchor's best
        n_gammas = len(self.grid.gammas)
        for start, q in self.team.map(lambda task: self._forms(support, *task), self._blocks(len(support.X))):
            self.poll()
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
            values = self.grid.take(ids).quadratic_forms(X.astype(np.float64), support.signed_duals)
            order = np.argsort(-values, kind="stable")
            ids, values = ids[order], values[order]
            rest *= 1.0 + _SINGLE_PRECISION_MARGIN
        maximum = max(rest, float(values[0]) if len(values) else 0.0)
        return ScanResult(ids, values, maximum, time.perf_counter() - started)

    def _blocks(self, n_support: int) -> Iterator[tuple[int, Array]]:
        height = block_height(n_support, self.dtype.itemsize)
        for start, chunk in self.grid.anchors.chunks():
            for first in range(0, len(chunk), height):
                yield start + first, chunk[first : first + height]

    def _forms(self, support: Support, start: int, anchors: Array) -> tuple[int, Array]:
        scales = self.grid.scales[start : start + len(anchors)]
        return start, scan_block(self.grid.family, anchors, self.grid.gammas, scales, support)
