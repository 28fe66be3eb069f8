"""The scan as work on blocks of anchors, for threads or dask workers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.block_grid import BlockGrid
from mllkm_scale.base.executor import PlainArrays, Shared
from mllkm_scale.kernels.grid import Family, RowSource
from mllkm_scale.kernels.maps import MapName
from mllkm_scale.scan.best import Best
from mllkm_scale.scan.component.sizes import component_bytes
from mllkm_scale.scan.near import near_share
from mllkm_scale.scan.products import scan_blocks
from mllkm_scale.scan.support import PART_ROWS, Support

__all__ = [
    "COMPONENT_HEIGHT",
    "SUMS_BYTES",
    "Scales",
    "ScanWork",
    "block_bytes",
    "block_height",
    "blocks_at_once",
    "blocks_of_unit",
    "component_block_bytes",
    "component_blocks_at_once",
    "component_bytes",
    "component_walk_bytes",
    "scan_dtype",
    "scan_flops",
]


SUMS_BYTES = 16 << 20  # of the sums V of a block, or of several, for all gammas and classes
COMPONENT_HEIGHT = 1024  # anchors per block of component-wise kernels
COMPONENT_UNIT_BYTES = 32 << 20  # of the blocks for which columns in a file are walked over
_LEAST_HEIGHT, _MOST_HEIGHT = 16, 128
_MOST_BLOCKS = 8  # that walk over the support together
_LEAST_UNITS = 8  # into which the blocks are divided, if they are few, so that threads have something to share
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


def blocks_at_once(n_features: int, n_classes: int, n_gammas: int) -> int:
    """Blocks of global kernels that walk over the support together: their sums, and a part times the duals, fit."""
    a_sum = 4 * (n_features + 1) * n_classes
    room = SUMS_BYTES - PART_ROWS * a_sum
    height = block_height(n_features, n_classes, n_gammas)
    return min(max(room // (n_gammas * height * a_sum), 1), _MOST_BLOCKS)


def block_bytes(n_features: int, n_classes: int, n_gammas: int, itemsize: int = 4, n_support: int = PART_ROWS) -> int:
    """Memory of a thread that scans: sums of its blocks, distances, bumps and lists of one, and rows times duals.

    A part of the support has no more rows than there are support vectors.
    """
    part_rows = min(PART_ROWS, n_support)
    height, width = block_height(n_features, n_classes, n_gammas), n_features + 1
    at_once = blocks_at_once(n_features, n_classes, n_gammas)
    sums = (at_once * n_classes + 2) * n_gammas * height * width
    bumps = (2 * n_gammas + 2) * part_rows * height
    lists = 2 * int(near_share(n_features) * part_rows * height) + n_gammas * height
    factors = (n_classes if at_once > 1 else 1) * part_rows * width
    rows = 2 * part_rows * width  # as read from a file, and those of a class
    anchors = at_once * height * n_features * (8 + itemsize) + 8 * 2 * height * n_features
    return itemsize * (sums + bumps + lists + factors + rows) + anchors


def scan_dtype(tol: float, componentwise: bool) -> np.dtype[Any]:
    """The precision of a scan for this tolerance; tighter ones are certified in double precision throughout."""
    # One-dimensional sums are made in double precision in any case: single saves nothing there.
    return np.dtype(np.float32 if tol >= _SINGLE_PRECISION_TOL and not componentwise else np.float64)


def component_block_bytes(n_features: int, n_classes: int, n_gammas: int = 5) -> int:
    """Likewise for component-wise kernels, beside the tables that all threads share: anchors, and sums of bumps."""
    return COMPONENT_HEIGHT * 8 * (4 * n_features + n_gammas * (n_classes + 6))


def component_blocks_at_once(n_features: int, n_classes: int, n_gammas: int) -> int:
    """Blocks for which the tables of columns in a file are made: many, so that evaluating them costs more."""
    return max(1, COMPONENT_UNIT_BYTES // component_block_bytes(n_features, n_classes, n_gammas))


def component_walk_bytes(
    n_anchors: int, n_support: int, n_features: int, n_classes: int, map: MapName, n_gammas: int
) -> int:
    """Memory of a thread that walks over columns in a file: its blocks, a column as read and sorted, and its tables."""
    blocks = min(component_blocks_at_once(n_features, n_classes, n_gammas), -(-n_anchors // COMPONENT_HEIGHT))
    column = n_support * (1 + n_classes) * 48 + component_bytes(n_support, 1, n_classes, map, n_gammas)
    return blocks * component_block_bytes(n_features, n_classes, n_gammas) + column


def scan_flops(family: Family, n_gammas: int, n_features: int, n_support: int, n_duals: int) -> float:
    """Multiply-adds for an anchor with all its gammas; `n_duals` counts the nonzero duals of all classes."""
    if family.componentwise:
        return n_gammas * n_features * (_SUM_FLOPS + _CLASS_FLOPS * n_duals / max(1, n_support))
    return float(n_support * n_features + n_gammas * (_BUMP_FLOPS * n_support + n_duals * (n_features + 3)))


def blocks_of_unit(
    n_blocks: int, n_features: int, n_classes: int, n_gammas: int, *, from_file: bool, componentwise: bool
) -> int:
    """Of a support in a file, as many blocks as may be share a reading; otherwise some less, if there are few."""
    if componentwise:
        return component_blocks_at_once(n_features, n_classes, n_gammas) if from_file else 1
    most = blocks_at_once(n_features, n_classes, n_gammas)
    return most if from_file else max(1, min(most, n_blocks // _LEAST_UNITS))


@dataclass(frozen=True)
class Scales(PlainArrays):
    """The factors of all kernels of a grid, (anchors, gammas)."""

    values: Array


@dataclass(frozen=True)
class ScanWork:
    """The `count` best kernels of blocks of anchors; the `at_once` blocks of a unit share a walk over the support."""

    family: Family
    anchors: RowSource
    gammas: Array
    scales: Shared[Scales]
    support: Shared[Support]
    files: tuple[Path, ...]  # of its rows, if they are not in memory
    blocks: BlockGrid
    at_once: int
    count: int
    unit_work: float

    @property
    def paths(self) -> tuple[Path, ...]:
        return self.anchors.paths + self.scales.paths + self.support.paths + self.files

    def __call__(self, units: range) -> Best:
        support, scales = self.support.get(), self.scales.get().values
        best = Best.none()
        for unit in units:
            bounds = [self.blocks.bounds(block) for block in self._blocks_of(range(unit, unit + 1))]
            anchors = [self.anchors.part(*rows) for rows in bounds]
            factors = [scales[start:stop] for start, stop in bounds]
            forms = scan_blocks(self.family, anchors, self.gammas, factors, support)
            for (start, _), q in zip(bounds, forms, strict=True):
                best = best.joined(Best.of(q, start), self.count)
        return best

    def __len__(self) -> int:
        """Units."""
        return -(-len(self.blocks) // self.at_once)

    def _blocks_of(self, units: range) -> range:
        return range(units[0] * self.at_once, min((units[-1] + 1) * self.at_once, len(self.blocks)))

    def describe(self, units: range) -> str:
        start, stop = self.blocks.span(self._blocks_of(units))
        n = len(self.gammas)
        return f"kernels {start * n} to {stop * n - 1} of the scan"
