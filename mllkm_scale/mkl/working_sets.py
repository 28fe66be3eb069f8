"""What the inner problem is about: the active kernels, the working samples of each class, and where to start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.kernels.locally_linear import LocallyLinearKernels
from mllkm_scale.mkl.restricted import Solution

__all__ = ["WorkingSets"]


@dataclass(frozen=True)
class WorkingSets:
    """Active kernels with weights, and rows of each class with duals from 0 to C: those of the problem before."""

    kernels: LocallyLinearKernels
    weights: Array
    rows: list[Array]
    duals: list[Array]
    C: float

    def only(self, free: Sequence[Array], weights: Array, duals: Sequence[Array]) -> WorkingSets:
        """The rows of these masks, to start from these weights and duals of all rows."""
        rows = [r[mask] for r, mask in zip(self.rows, free, strict=True)]
        starts = [a[mask] for a, mask in zip(duals, free, strict=True)]
        return replace(self, weights=weights, rows=rows, duals=starts)

    def near(self, solution: Solution) -> WorkingSets:
        """The same problem, to start from a solution of it."""
        return replace(self, weights=solution.weights, duals=self.split(solution.duals))

    def split(self, duals: Array) -> list[Array]:
        """Duals of all classes in a row, as those of each."""
        return np.split(duals, np.cumsum([len(r) for r in self.rows])[:-1])
