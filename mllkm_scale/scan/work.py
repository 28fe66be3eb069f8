"""The scan as work on blocks of anchors, for threads or dask workers.

Each range of blocks gives the best kernels of its anchors, and `Best` puts those of neighbouring ranges together.
"""

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
from mllkm_scale.scan.component.sizes import component_bytes
from mllkm_scale.scan.near import near_share
from mllkm_scale.scan.products import scan_blocks
from mllkm_scale.scan.support import PART_ROWS, Support

__all__ = [
    "COMPONENT_HEIGHT",
    "SUMS_BYTES",
    "Best",
    "Scales",
    "ScanWork",
    "block_bytes",
    "block_height",
    "blocks_at_once",
    "blocks_of_unit",
    "component_block_bytes",
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


@dataclass(frozen=True)
class Best:
    """The best kernel of each of the best anchors, best first, and the largest q of all the others.

    For equal values, the smaller id comes first. So the result of `joined` depends on the anchors, not on how they were
    divided into ranges.
    """

    ids: Array
    values: Array
    rest: float = 0.0

    @classmethod
    def none(cls) -> Best:
        return cls(np.empty(0, np.int64), np.empty(0))

    @classmethod
    def of(cls, q: Array, first_anchor: int) -> Best:
        """Build from the forms q (anchors, gammas) of neighbouring anchors; q is overwritten."""
        rows, gamma = np.arange(len(q)), q.argmax(axis=1)
        values = q[rows, gamma]
        q[rows, gamma] = 0.0
        order = np.argsort(-values, kind="stable")
        ids = (first_anchor + rows) * q.shape[1] + gamma
        return cls(ids[order], values[order], float(q.max(initial=0.0)))

    def joined(self, following: Best, count: int) -> Best:
        """Merge with the anchors that follow, and keep the `count` best."""
        ids = np.concatenate([self.ids, following.ids])
        values = np.concatenate([self.values, following.values])
        order = np.argsort(-values, kind="stable")
        left_out = float(values[order[count]]) if len(order) > count else 0.0
        order = order[:count]
        return Best(ids[order], values[order], max(self.rest, following.rest, left_out))


def block_height(n_features: int, n_classes: int, n_gammas: int, componentwise: bool = False) -> int:
    """Anchors per block. It depends on the problem alone, so the bits do not depend on the machine."""
    if componentwise:
        return COMPONENT_HEIGHT
    height = SUMS_BYTES // (4 * n_gammas * n_classes * (n_features + 1))
    return min(max(height, _LEAST_HEIGHT), _MOST_HEIGHT)


def blocks_at_once(n_features: int, n_classes: int, n_gammas: int) -> int:
    """Blocks of global kernels that share a pass over the support: their sums, and a part times the duals, must fit."""
    a_sum = 4 * (n_features + 1) * n_classes
    room = SUMS_BYTES - PART_ROWS * a_sum
    height = block_height(n_features, n_classes, n_gammas)
    return min(max(room // (n_gammas * height * a_sum), 1), _MOST_BLOCKS)


def block_bytes(
    n_features: int,
    n_classes: int,
    n_gammas: int,
    itemsize: int = 4,
    n_support: int = PART_ROWS,
    n_anchors: int = 2**62,
) -> int:
    """Memory of a scanning thread: sums of its blocks, distances, bumps and lists of one, and rows times duals.

    A part of the support has no more rows than there are support vectors, and the blocks no more than all anchors.
    """
    part_rows = min(PART_ROWS, n_support)
    height, width = min(block_height(n_features, n_classes, n_gammas), n_anchors), n_features + 1
    at_once = min(blocks_at_once(n_features, n_classes, n_gammas), -(-n_anchors // height))
    sums = (at_once * n_classes + 2) * n_gammas * height * width
    bumps = (2 * n_gammas + 2) * part_rows * height
    lists = 2 * int(near_share(n_features) * part_rows * height) + n_gammas * height
    factors = (n_classes if at_once > 1 else 1) * part_rows * width
    rows = 2 * part_rows * width  # as read from a file, and those of a class
    anchors = at_once * height * n_features * (8 + itemsize) + 8 * 2 * height * n_features
    return itemsize * (sums + bumps + lists + factors + rows) + anchors


def scan_dtype(tol: float, componentwise: bool) -> np.dtype[Any]:
    """The precision of a scan for this tolerance; tight tolerances use double precision throughout."""
    # One-dimensional sums are made in double precision in any case: single saves nothing there.
    return np.dtype(np.float32 if tol >= _SINGLE_PRECISION_TOL and not componentwise else np.float64)


def component_block_bytes(n_features: int, n_classes: int, n_gammas: int = 5) -> int:
    """Likewise for component-wise kernels, without the tables that all threads share: anchors, and sums of bumps."""
    return COMPONENT_HEIGHT * 8 * (4 * n_features + n_gammas * (n_classes + 6))


def _component_blocks_at_once(n_features: int, n_classes: int, n_gammas: int) -> int:
    """Blocks per construction of the tables of columns in a file: many, so that evaluation costs more than this."""
    return max(1, COMPONENT_UNIT_BYTES // component_block_bytes(n_features, n_classes, n_gammas))


def component_walk_bytes(
    n_anchors: int, n_support: int, n_features: int, n_classes: int, map: MapName, n_gammas: int
) -> int:
    """Memory of a thread that passes over columns in a file: its blocks, a column as read and sorted, its tables."""
    blocks = min(_component_blocks_at_once(n_features, n_classes, n_gammas), -(-n_anchors // COMPONENT_HEIGHT))
    column = n_support * (1 + n_classes) * 48 + component_bytes(n_support, 1, n_classes, map, n_gammas)
    return blocks * component_block_bytes(n_features, n_classes, n_gammas) + column


def scan_flops(family: Family, n_gammas: int, n_features: int, n_support: int, n_duals: int) -> float:
    """Multiply-adds of an anchor with all its gammas; `n_duals` counts the nonzero duals of all classes."""
    if family.componentwise:
        return n_gammas * n_features * (_SUM_FLOPS + _CLASS_FLOPS * n_duals / max(1, n_support))
    return float(n_support * n_features + n_gammas * (_BUMP_FLOPS * n_support + n_duals * (n_features + 3)))


def blocks_of_unit(
    n_blocks: int, n_features: int, n_classes: int, n_gammas: int, *, from_file: bool, componentwise: bool
) -> int:
    """Blocks per unit: many that share a reading if the support is in a file, otherwise fewer, if there are few."""
    if componentwise:
        return _component_blocks_at_once(n_features, n_classes, n_gammas) if from_file else 1
    most = blocks_at_once(n_features, n_classes, n_gammas)
    return most if from_file else max(1, min(most, n_blocks // _LEAST_UNITS))


@dataclass(frozen=True)
class Scales(PlainArrays):
    """The factors of all kernels of a grid, (anchors, gammas)."""

    values: Array


@dataclass(frozen=True)
class ScanWork:
    """The `count` best kernels of blocks of anchors; the `at_once` blocks of a unit share a pass over the support."""

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
        """Number of units."""
        return -(-len(self.blocks) // self.at_once)

    def _blocks_of(self, units: range) -> range:
        return range(units[0] * self.at_once, min((units[-1] + 1) * self.at_once, len(self.blocks)))

    def describe(self, units: range) -> str:
        start, stop = self.blocks.span(self._blocks_of(units))
        n = len(self.gammas)
        return f"kernels {start * n} to {stop * n - 1} of the scan"
