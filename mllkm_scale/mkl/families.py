"""Families of kernels for Algorithm 2: any kernels that are identified by integer ids, such as those of a grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.gram.blocks import Block, make_block
from mllkm_scale.kernels.grid import KernelGrid
from mllkm_scale.scan.products import scan_block
from mllkm_scale.scan.support import Support

__all__ = ["ActiveKernels", "GridFamily", "KernelFamily"]


class ActiveKernels(Protocol):
    """The kernels of S on the training rows."""

    def gram(self, weights: Array) -> Array:
        """sum_m beta_m K_m, shape (n, n)."""

    def forms(self, signed_duals: Array) -> Array:
        """q_m summed over the classes, shape (s,)."""


class KernelFamily(Protocol):
    """All kernels {k_m}, identified by integer ids; `GenericFamily` and `GridFamily` implement it."""

    @property
    def scales(self) -> Array:
        """Factor of each kernel; 0 excludes it."""

    def __len__(self) -> int: ...

    def active(self, ids: Array, X: Array) -> ActiveKernels:
        """The kernels with these ids on these rows."""

    def combined_gram(self, ids: Array, weights: Array, X: Array, Z: Array) -> Array:
        """sum_m beta_m k_m(x, z)."""

    def quadratic_forms(self, X: Array, signed_duals: Array) -> Array:
        """q_m of ALL kernels, summed over the classes, for signed duals (n, K)."""

    def describe(self, id: int) -> str:
        """A description of the kernel."""


@dataclass(frozen=True)
class GridFamily:
    """The locally linear kernels of a grid, in double precision."""

    grid: KernelGrid

    @property
    def scales(self) -> Array:
        return self.grid.scales.ravel()

    def __len__(self) -> int:
        return len(self.grid)

    def active(self, ids: Array, X: Array) -> ActiveKernels:
        return _ActiveBlock(make_block(self.grid.take(ids), X, np.ones(len(X))))

    def combined_gram(self, ids: Array, weights: Array, X: Array, Z: Array) -> Array:
        return self.grid.take(ids).combined_gram(weights, X, Z)

    def quadratic_forms(self, X: Array, signed_duals: Array) -> Array:
        rows = np.flatnonzero(signed_duals.any(axis=1))
        support = Support.of(X[rows], signed_duals[rows], np.dtype(np.float64))
        grid = self.grid
        parts = [
            scan_block(grid.family, chunk, grid.gammas, grid.scales[start : start + len(chunk)], support)
            for start, chunk in grid.anchors.chunks()
        ]
        return np.concatenate(parts).ravel()

    def describe(self, id: int) -> str:
        anchor, gamma = divmod(int(id), len(self.grid.gammas))
        kind = "component-wise " if self.grid.family.componentwise else ""
        return f"{kind}{self.grid.family.map}, anchor {anchor}, gamma {self.grid.gammas[gamma]:.4g}"


@dataclass(frozen=True)
class _ActiveBlock:
    """A block whose signs are all one: it gives K instead of y y' o K."""

    block: Block

    def gram(self, weights: Array) -> Array:
        return self.block.gram(weights)

    def forms(self, signed_duals: Array) -> Array:
        return np.asarray(sum(self.block.forms(a) for a in signed_duals.T))
