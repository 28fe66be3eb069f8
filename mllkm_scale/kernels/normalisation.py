"""Unit trace (F9): each kernel is divided by its mean diagonal over a sample of the training rows.

The division would inflate a kernel that reaches almost no sample, so such a kernel is excluded (scale 0). Reach is the
effective number of samples in the diagonal, (sum u)^2 / sum u^2 with u_i = k_m(x_i, x_i). A kernel far from all samples
may reach many of them equally little, so sum u must also be at least that of one sample at the largest u.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.block_grid import BlockGrid
from mllkm_scale.base.executor import Executor, PlainArrays, Shared, ThreadExecutor
from mllkm_scale.kernels.grid import Family, RowSource
from mllkm_scale.kernels.locally_linear import LocallyLinearKernels
from mllkm_scale.kernels.maps import bumps, falls_exponentially, uses_plain_distance

__all__ = [
    "MIN_REACH",
    "REFERENCE_ROWS",
    "TraceWork",
    "largest_diagonal",
    "list_scales",
    "trace_block_bytes",
    "trace_scales",
]


MIN_REACH = 10.0
_LEAST_DIAGONAL = 1e-12  # mean diagonal of a listed kernel, as a share of its largest possible value
_BLOCK_BYTES = 4 << 20
_FAR, _DISTANCES = 10.0, 1001  # gamma t, or gamma t^2, up to which the largest diagonal is looked for, and where
REFERENCE_ROWS = 4096
"""Largest number of training rows in the sample for the mean diagonal."""


@dataclass(frozen=True)
class Reference(PlainArrays):
    """The sample for the mean diagonal."""

    rows: Array


@dataclass(frozen=True)
class TraceWork:
    """The scales of blocks of anchors."""

    family: Family
    anchors: RowSource
    gammas: Array
    reference: Shared[Reference]
    blocks: BlockGrid
    unit_work: float

    @property
    def paths(self) -> tuple[Path, ...]:
        return self.anchors.paths + self.reference.paths

    def __call__(self, units: range) -> Array:
        reference = self.reference.get().rows
        return np.concatenate([self._scales(self.anchors.part(*self.blocks.bounds(i)), reference) for i in units])

    def _scales(self, anchors: Array, reference: Array) -> Array:
        out = np.zeros((len(anchors), len(self.gammas)))
        for g, gamma in enumerate(self.gammas):
            kernels = self.family.kernels(anchors.astype(np.float64), np.full(len(anchors), gamma))
            out[:, g] = _scales_of(kernels, reference, largest_diagonal(self.family, gamma))
        return out

    def describe(self, units: range) -> str:
        start, stop = self.blocks.span(units)
        return f"the normalisation of anchors {start} to {stop - 1}"


def _scales_of(kernels: LocallyLinearKernels, reference: Array, largest: float) -> Array:
    """1 / mean diagonal, or 0; `largest` is the largest diagonal that these kernels can have."""
    diagonals = kernels.diagonals(reference)
    total, squares = diagonals.sum(axis=0), np.einsum("ij,ij->j", diagonals, diagonals)
    n = len(reference)
    reaches = (total * total > min(MIN_REACH, 0.5 * n) * squares) & (total > min(1.0, 0.01 * n) * largest)
    return np.divide(n, total, where=reaches, out=np.zeros(len(kernels)))


def list_scales(family: Family, anchors: Array, gammas: Array, reference: Array) -> Array:
    """1 / mean diagonal of kernels with their own anchors (s, d) and gammas (s,).

    These kernels are not excluded. If one reaches few samples, its mean diagonal is that of its largest value on
    `MIN_REACH` samples, and at least `_LEAST_DIAGONAL` of the largest possible value: otherwise, scales would overflow
    for a kernel that reaches samples only with the end of its tail. A kernel that reaches no sample has the scale 0.
    """
    largest = np.array([largest_diagonal(family, gamma) for gamma in gammas])
    width = reference.shape[1] + 1 if family.componentwise else 1
    step, n = max(1, _BLOCK_BYTES // (8 * len(reference) * width)), len(reference)
    rows, scales = reference.astype(np.float64), []
    for start in range(0, len(gammas), step):
        at = slice(start, start + step)
        diagonals = family.kernels(anchors[at], gammas[at]).diagonals(rows)
        total = np.maximum(diagonals.sum(axis=0), min(MIN_REACH, 0.5 * n) * diagonals.max(axis=0))
        bounded = np.maximum(total, _LEAST_DIAGONAL * n * largest[at])
        scales.append(np.divide(n, bounded, where=total > 0, out=np.zeros(len(total))))
    return np.concatenate(scales)


def largest_diagonal(family: Family, gamma: float) -> float:
    """The largest k(x, x) = h(t)^2 (t^2 + b) at any distance t from the anchor, of one component if component-wise.

    >>> round(largest_diagonal(Family("gaussian"), 0.5) * np.e, 4)
    1.0
    """
    farthest = (_FAR if falls_exponentially(family.map) else 1.0) / gamma
    t = np.linspace(0.0, farthest if uses_plain_distance(family.map) else farthest**0.5, _DISTANCES)
    h = bumps(family.map, t * t, gamma)
    return float((h * h * (t * t + family.local_bias)).max())


def trace_block_bytes(n_anchors: int, n_reference: int, n_features: int, componentwise: bool) -> int:
    """Memory of a thread for the mean diagonals of a block of anchors, without the reference rows."""
    width = n_features + 1 if componentwise else 1
    block = 8 * n_reference * width * min(n_anchors, max(1, _BLOCK_BYTES // (8 * n_reference * width)))
    return 6 * block + 8 * n_reference


def trace_scales(
    family: Family, anchors: RowSource, gammas: Array, reference: Array, executor: Executor | None = None
) -> Array:
    """1 / mean diagonal of every kernel of the grid, (anchors, gammas); 0 if its reach is too small."""
    doers: Executor = executor or ThreadExecutor()
    width = reference.shape[1] + 1 if family.componentwise else 1
    height = max(1, _BLOCK_BYTES // (8 * len(reference) * width))
    blocks = BlockGrid(anchors.n_rows, anchors.chunk_rows, height)
    shared = doers.share("reference", Reference(reference.astype(np.float64)))
    flops = float(height * len(gammas) * len(reference) * (20 * width + anchors.n_features))
    try:
        return np.concatenate(list(doers.start(TraceWork(family, anchors, gammas, shared, blocks, flops), len(blocks))))
    finally:
        shared.drop()
