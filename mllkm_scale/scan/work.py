"""The scan as work on blocks of anchors, for threads or dask workers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.block_grid import BlockGrid
from mllkm_scale.crew import PlainArrays, Shared
from mllkm_scale.kernels.grid import Family, RowSource
from mllkm_scale.scan.best import Best
from mllkm_scale.scan.component_sizes import component_bytes
from mllkm_scale.scan.near import near_share
from mllkm_scale.scan.products import scan_block
from mllkm_scale.scan.support import PART_ROWS, Support

__all__ = [
    "COMPONENT_HEIGHT",
    "SUMS_BYTES",
    "Scales",
    "ScanWork",
    "block_bytes",
    "block_height",
    "component_block_bytes",
    "component_bytes",
    "scan_dtype",
    "scan_flops",
]

Array = NDArray[Any]

SUMS_BYTES = 16 << 20  # of the sums V of a block, for all its gammas and classes
COMPONENT_HEIGHT = 1024  # anchors per block of component-wise kernels
_LEAST_HEIGHT, _MOST_HEIGHT = 16, 128
_SINGLE_PRECISION_TOL = 1e-3
_BUMP_FLOPS = 10  # multiply-adds in the time of a bump
_SUM_FLOPS = 1500  # and of a one-dimensional sum
_CLASS_FLOPS = 200  # and of what another class adds to it


def block_height(n_features: int, n_classes: int, n_gammas: int, componentwise: bool = False) -> int:
    """Anchors per block: a function of the problem alone, so that the bits do not depend on the machine."""
    if componentwise:
        return COMPONENT_HEIGHT
    height = SUMS_BYTES // (4 * n_gammas * n_classes * (n_features + 1))
    return min(max(height, _LEAST_HEIGHT), _MOST_HEIGHT)


def block_bytes(n_features: int, n_classes: int, n_gammas: int, itemsize: int = 4) -> int:
    """Memory of a thread that scans: sums, distances, bumps and lists of a block, and rows times duals."""
    height = block_height(n_features, n_classes, n_gammas)
    sums = (n_classes + 2) * n_gammas * height * (n_features + 1)
    bumps = (2 * n_gammas + 1) * PART_ROWS * height
    lists = 2 * int(near_share(n_features) * PART_ROWS * height) + n_gammas * height
    factors = 3 * PART_ROWS * (n_features + 1) // 2
    return itemsize * (sums + bumps + lists + factors) + 8 * 4 * height * n_features


def scan_dtype(tol: float, componentwise: bool) -> np.dtype[Any]:
    """The precision of a scan for this tolerance; tighter ones are certified in double precision throughout."""
    # One-dimensional sums are made in double precision in any case: single saves nothing there.
    return np.dtype(np.float32 if tol >= _SINGLE_PRECISION_TOL and not componentwise else np.float64)


def component_block_bytes(n_features: int, n_classes: int, n_gammas: int = 5) -> int:
    """Likewise for component-wise kernels, beside the tables that all threads share: anchors, and sums of bumps."""
    return COMPONENT_HEIGHT * 8 * (4 * n_features + n_gammas * (n_classes + 6))


def scan_flops(family: Family, n_gammas: int, n_features: int, n_support: int, n_duals: int) -> float:
    """Multiply-adds for an anchor with all its gammas; `n_duals` counts the nonzero duals of all classes."""
    if family.componentwise:
        return n_gammas * n_features * (_SUM_FLOPS + _CLASS_FLOPS * n_duals / max(1, n_support))
    return float(n_support * n_features + n_gammas * (_BUMP_FLOPS * n_support + n_duals * (n_features + 3)))


@dataclass(frozen=True)
class Scales(PlainArrays):
    """The factors of all kernels of a grid, (anchors, gammas)."""

    values: Array


@dataclass(frozen=True)
class ScanWork:
    """The `count` best kernels of blocks of anchors."""

    family: Family
    anchors: RowSource
    gammas: Array
    scales: Shared[Scales]
    support: Shared[Support]
    blocks: BlockGrid
    count: int
    unit_work: float

    @property
    def paths(self) -> tuple[Path, ...]:
        return self.anchors.paths + self.scales.paths + self.support.paths

    def __call__(self, units: range) -> Best:
        support, scales = self.support.get(), self.scales.get().values
        best = Best.none()
        for unit in units:
            start, stop = self.blocks.bounds(unit)
            anchors = self.anchors.part(start, stop)
            q = scan_block(self.family, anchors, self.gammas, scales[start:stop], support)
            best = best.joined(Best.of(q, start), self.count)
        return best

    def describe(self, units: range) -> str:
        start, stop = self.blocks.span(units)
        n = len(self.gammas)
        return f"kernels {start * n} to {stop * n - 1} of the scan"
