"""The scan of a grid of kernels by an executor: the best candidates, and a bound on q over all or a share of them.

The certificate needs the bound over the whole open set (F5). After a scan in single precision, the best candidates are
evaluated again in double precision, and the bound on the others is raised by more than the error of the products.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.block_grid import BlockGrid
from mllkm_scale.base.executor import Executor, Pass, Shared, ThreadExecutor
from mllkm_scale.base.files.folders import new_scratch_file
from mllkm_scale.base.threads import Threads
from mllkm_scale.kernels.grid import KernelGrid
from mllkm_scale.kernels.picked_rows import Rows
from mllkm_scale.scan.component.sizes import component_bytes
from mllkm_scale.scan.support import Support
from mllkm_scale.scan.work import Best, Scales, ScanWork, block_height, blocks_of_unit, scan_flops

__all__ = ["ALL", "Scan", "ScanResult", "Scanner", "Share"]

Gather = Callable[[], tuple[Rows, Array]]  # support rows (n_sv, d) and signed duals (n_sv, K)

_SINGLE_PRECISION_MARGIN = 1e-4


@dataclass(frozen=True)
class ScanResult:
    """The best kernel of each of the best anchors, best first, and a bound on q over all scanned kernels."""

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
    """A scanner of the grid, or of a share of it; the result does not depend on the executor.

    Support rows (for component-wise kernels, rows and tables) of more than `support_bytes` go to a file in the
    executor's folder, or else in `scratch_dir`, and are read from there, with the same bits. With any executor,
    `threads` evaluate the best candidates again.
    """

    def __init__(
        self,
        grid: KernelGrid,
        executor: Executor | None = None,
        dtype: DTypeLike = np.float32,
        support_bytes: float = math.inf,
        scratch_dir: Path | None = None,
        threads: Threads | None = None,
    ) -> None:
        self.threads = threads or Threads()
        self.grid, self.executor, self.dtype = grid, executor or ThreadExecutor(), np.dtype(dtype)
        self.support_bytes, self.scratch_dir = support_bytes, scratch_dir
        self.scales = self.executor.share("scales", Scales(grid.scales))

    def start(self, gather: Gather, count: int, share: Share = ALL) -> Scan:
        """Start a scan for the `count` best candidates; `gather` returns the support and the duals."""
        return Scan(self, gather, count, share)

    def support_of(self, X: Rows, signed_duals: Array) -> Support:
        """The rows and duals in the form in which they are scanned."""
        family, d, K = self.grid.family, self.grid.anchors.n_features, signed_duals.shape[1]
        size_bytes = len(X) * d * self.dtype.itemsize
        if family.componentwise:
            size_bytes += component_bytes(len(X), d, K, family.map, len(self.grid.gammas))
        if size_bytes <= self.support_bytes:
            return Support.of(X, signed_duals, self.dtype)
        folder = self.executor.folder or self.scratch_dir or Path(tempfile.gettempdir())
        file = new_scratch_file(folder, "support", ".rows")
        try:
            return Support.of(X, signed_duals, self.dtype, file, by_column=family.componentwise)
        except BaseException:
            file.unlink(missing_ok=True)
            raise

    def scan(self, X: Rows, signed_duals: Array, count: int) -> ScanResult:
        """The `count` best candidates for support rows X (n_sv, d) with signed duals (n_sv, K)."""
        return self.start(lambda: (X, signed_duals), count).result()


class Scan:
    """A started scan. Dask workers begin at once; threads begin when the result is requested."""

    def __init__(self, scanner: Scanner, gather: Gather, count: int, share: Share) -> None:
        self.scanner, self.gather, self.count, self.share = scanner, gather, count, share
        self._support: Shared[Support] | None = None
        self._file: Path | None = None
        self._pass: Pass[Best] | None = None
        self._result: ScanResult | None = None
        self._n_kernels = 0
        if scanner.executor.remote:
            self._begin()

    def _begin(self) -> Pass[Best]:
        grid, executor = self.scanner.grid, self.scanner.executor
        support = self.scanner.support_of(*self.gather())
        self._file = support.file
        sizes = grid.anchors.n_features, support.signed_duals.shape[1], len(grid.gammas)
        height = block_height(*sizes, grid.family.componentwise)
        share = self.share
        blocks = BlockGrid(grid.anchors.n_rows, grid.anchors.chunk_rows, height, share.first, share.step)
        self._n_kernels = blocks.n_covered * len(grid.gammas)
        n_duals = int(np.count_nonzero(support.signed_duals))
        flops = scan_flops(grid.family, len(grid.gammas), grid.anchors.n_features, len(support), n_duals)
        from_file, componentwise = self._file is not None, grid.family.componentwise
        at_once = blocks_of_unit(len(blocks), *sizes, from_file=from_file, componentwise=componentwise)
        self._support = executor.share("support", support)
        work = ScanWork(
            family=grid.family,
            anchors=grid.anchors,
            gammas=grid.gammas,
            scales=self.scanner.scales,
            support=self._support,
            files=() if self._file is None else (self._file,),
            blocks=blocks,
            at_once=at_once,
            count=self.count,
            unit_work=flops * at_once * min(height, grid.anchors.chunk_rows),
        )
        self._pass = executor.start(work, len(work))
        return self._pass

    def result(self) -> ScanResult:
        """Wait for the result; later calls return the same result."""
        if self._result is None:
            self._result = self._finish()
        return self._result

    def _finish(self) -> ScanResult:
        best = Best.none()
        try:
            under_way = self._pass or self._begin()
            for part in under_way:
                best = best.joined(part, self.count)
        finally:
            self.close()
        seconds = under_way.work_s
        del under_way  # and with it the support, before its rows are gathered again
        grid, rest = self.scanner.grid, best.rest
        ids, values = best.ids + grid.n_listed, best.values
        single = self.scanner.dtype != np.float64
        if single:
            rest *= 1.0 + _SINGLE_PRECISION_MARGIN
        if grid.n_listed or (single and len(ids)):
            ids = np.concatenate([np.arange(grid.n_listed), ids])
            X, signed_duals = self.gather()
            values = grid.take(ids).quadratic_forms(X, signed_duals, self.scanner.threads)
            order = np.argsort(-values, kind="stable")
            ids, values = ids[order], values[order]
        maximum = max(rest, float(values[0]) if len(values) else 0.0)
        n_kernels = self._n_kernels + grid.n_listed
        return ScanResult(ids, values, maximum, seconds, n_kernels, self.share.complete)

    def close(self) -> None:
        """Stop the scan early, and release what was shared for it."""
        if self._pass is not None:
            self._pass.close()
        if self._support is not None:
            self._support.drop()
        if self._file is not None:
            self._file.unlink(missing_ok=True)
        self._pass = self._support = self._file = None
