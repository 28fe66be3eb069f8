"""The scan of a grid of kernels by a crew: the best candidates, and a bound on q over the open set or a share of it.

The bound over the whole open set is what the certificate needs (F5). In single precision the best candidates are
evaluated again in double precision, and the bound on the rest is raised by more than the products can be off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mllkm_scale.block_grid import BlockGrid
from mllkm_scale.crew import Crew, Pass, Shared, ThreadCrew
from mllkm_scale.kernels.grid import KernelGrid
from mllkm_scale.scan.best import Best
from mllkm_scale.scan.support import Support
from mllkm_scale.scan.work import Scales, ScanWork, block_height, scan_flops

__all__ = ["ALL", "Scan", "ScanResult", "Scanner", "Share"]

Array = NDArray[Any]
Gather = Callable[[], tuple[Array, Array]]  # support rows (n_sv, d) and signed duals (n_sv, K)

_SINGLE_PRECISION_MARGIN = 1e-4


@dataclass(frozen=True)
class ScanResult:
    """Best kernel of each of the best anchors, best first, and a bound on q over all kernels that were scanned."""

    ids: Array
    values: Array
    maximum: float
    seconds: float
    n_kernels: int  # that were scanned
    complete: bool  # these were all of the grid


@dataclass(frozen=True)
class Share:
    """Every `step`-th block of anchors, from `first` on."""

    first: int = 0
    step: int = 1

    @property
    def complete(self) -> bool:
        return self.step == 1


ALL = Share()


class Scanner:
    """Scans the grid, or a share of it; the answer does not depend on who is in the crew."""

    def __init__(self, grid: KernelGrid, crew: Crew | None = None, dtype: DTypeLike = np.float32) -> None:
        self.grid, self.crew, self.dtype = grid, crew or ThreadCrew(), np.dtype(dtype)
        self.scales = self.crew.share("scales", Scales(grid.scales))

    def start(self, gather: Gather, count: int, share: Share = ALL) -> Scan:
        """Begin to look for the `count` best candidates; `gather` says for which support and duals."""
        return Scan(self, gather, count, share)

    def scan(self, X: Array, signed_duals: Array, count: int) -> ScanResult:
        """The `count` best candidates for support rows X (n_sv, d) with signed duals (n_sv, K)."""
        return self.start(lambda: (X, signed_duals), count).result()


class Scan:
    """A scan that was started. Dask workers are at it already; threads begin when the result is asked for."""

    def __init__(self, scanner: Scanner, gather: Gather, count: int, share: Share) -> None:
        self.scanner, self.gather, self.count, self.share = scanner, gather, count, share
        self._support: Shared[Support] | None = None
        self._pass: Pass[Best] | None = None
        self._result: ScanResult | None = None
        self._n_kernels = 0
        if scanner.crew.remote:
            self._begin()

    def _begin(self) -> Pass[Best]:
        grid, crew, dtype = self.scanner.grid, self.scanner.crew, self.scanner.dtype
        support = Support.of(*self.gather(), dtype)
        sizes = grid.anchors.n_features, support.signed_duals.shape[1], len(grid.gammas)
        height = block_height(*sizes, grid.family.componentwise)
        share = self.share
        blocks = BlockGrid(grid.anchors.n_rows, grid.anchors.chunk_rows, height, share.first, share.step)
        self._n_kernels = blocks.n_covered * len(grid.gammas)
        n_duals = int(np.count_nonzero(support.signed_duals))
        flops = scan_flops(grid.family, len(grid.gammas), grid.anchors.n_features, len(support.X), n_duals)
        self._support = crew.share("support", support)
        work = ScanWork(
            family=grid.family,
            anchors=grid.anchors,
            gammas=grid.gammas,
            scales=self.scanner.scales,
            support=self._support,
            blocks=blocks,
            count=self.count,
            unit_work=flops * min(height, grid.anchors.chunk_rows),
        )
        self._pass = crew.start(work, len(blocks))
        return self._pass

    def result(self) -> ScanResult:
        """Waits for it; asked for again, the same."""
        if self._result is None:
            self._result = self._finish()
        return self._result

    def _finish(self) -> ScanResult:
        under_way = self._pass or self._begin()
        best = Best.none()
        try:
            for part in under_way:
                best = best.joined(part, self.count)
        finally:
            self.close()
        seconds = under_way.work_s
        del under_way  # and with it the support, before its rows are gathered again
        ids, values, rest = best.ids, best.values, best.rest
        if self.scanner.dtype != np.float64 and len(ids):
            X, signed_duals = self.gather()
            values = self.scanner.grid.take(ids).quadratic_forms(X, signed_duals)
            order = np.argsort(-values, kind="stable")
            ids, values = ids[order], values[order]
            rest *= 1.0 + _SINGLE_PRECISION_MARGIN
        maximum = max(rest, float(values[0]) if len(values) else 0.0)
        return ScanResult(ids, values, maximum, seconds, self._n_kernels, self.share.complete)

    def close(self) -> None:
        """End it early; what was shared for it is dropped."""
        if self._pass is not None:
            self._pass.close()
        if self._support is not None:
            self._support.drop()
        self._pass = self._support = None
