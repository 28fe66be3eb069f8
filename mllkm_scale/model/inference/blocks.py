"""The blocks in which a model is evaluated, computed from its sizes only.

The sizes of a block determine the last bits of a product, so they do not depend on the number of rows to evaluate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mllkm_scale.base.threads import Threads, n_threads, one_blas_thread
from mllkm_scale.data.checks import require_finite
from mllkm_scale.errors import DataError

__all__ = ["BlockPlan", "Rows", "plan_blocks"]

BLOCK_BYTES = 2 << 20  # a block that stays in the caches of a core is evaluated fastest
GROUP_BYTES = 32 << 20  # bound on a block of the fewest rows, kept by evaluating few kernels at a time
MIN_ROWS, MAX_ROWS = 16, 256
TASK_ROWS = 4096  # largest number of rows of a task
THREAD_WORK = 3e6  # multiply-adds of a block from which threads help: in smaller blocks they wait for the interpreter


@dataclass(frozen=True)
class BlockPlan:
    """`rows` rows, a power of two, are evaluated at once on `kernels` kernels at a time.

    `block_bytes` is approximately the additional memory of each thread that evaluates.
    """

    rows: int
    kernels: int
    block_bytes: int


@dataclass(frozen=True)
class Rows:
    """Rows to evaluate; their name and the number of the first one are for messages."""

    X: NDArray[Any]
    first_row: int = 0
    name: str = "X"
    index: NDArray[Any] | None = None  # numbers of these rows, counted from the first one; None for all

    @classmethod
    def of(cls, X: ArrayLike) -> Rows:
        """All rows of X, which must be a matrix of real numbers."""
        if hasattr(X, "toarray"):
            raise DataError("X is sparse, which is not supported: give a dense array, such as X.toarray()")
        values = np.asarray(X)
        if values.ndim != 2:
            raise DataError(f"X has shape {values.shape}: it must have two axes, one row per sample")
        if values.dtype.kind not in "fiub":
            raise DataError(f"X has type {values.dtype}: features must be real numbers; encode text as numbers")
        return cls(values)

    def __len__(self) -> int:
        return len(self.X)

    def take(self, index: NDArray[Any]) -> Rows:
        """Some of the rows, which keep their numbers."""
        return Rows(self.X[index], self.first_row, self.name, index)

    def number(self, i: int) -> int:
        """The number of row `i` in the data."""
        return self.first_row + int(i if self.index is None else self.index[i])

    def in_blocks(
        self, height: int, n_jobs: int | None, row_work: float, evaluate: Callable[[slice, NDArray[Any]], None]
    ) -> None:
        """Call `evaluate(rows, block)` for every block, in `n_jobs` threads with one BLAS thread each.

        A block always has `height` rows in double precision; the last one is filled with zeros. `row_work` is the
        approximate cost of a row in multiply-adds of double precision; small blocks are evaluated without threads.
        """
        n_blocks = -(-len(self) // height)
        size = min(n_threads(n_jobs) if height * row_work >= THREAD_WORK else 1, n_blocks or 1)
        # The overhead of a task with one small block exceeds its work.
        in_task = height * max(1, min(TASK_ROWS // height, n_blocks // (4 * size)))

        def work(first: int) -> None:
            for start in range(first, min(first + in_task, len(self)), height):
                rows = slice(start, min(start + height, len(self)))
                block = np.zeros((height, self.X.shape[1]))
                block[: rows.stop - start] = self.X[rows]
                require_finite(block, self.first_row + start, self.name, "predict")
                evaluate(rows, block)

        with one_blas_thread(), Threads(size) as threads:
            threads.run(work, range(0, len(self), in_task))


def plan_blocks(
    n_kernels: int, n_features_in: int, n_features: int, componentwise: bool, itemsize: int = 8
) -> BlockPlan:
    """The blocks of a model with these numbers of kernels, input features, and features of an anchor.

    `itemsize` is the bytes of a number: 4 in single precision.

    Examples
    --------
    >>> plan_blocks(1000, 784, 50, componentwise=False)
    BlockPlan(rows=64, kernels=1000, block_bytes=2765824)
    >>> plan_blocks(5000, 784, 50, componentwise=True)
    BlockPlan(rows=16, kernels=1285, block_bytes=33861376)
    """
    # Distances, bumps and inner products; component-wise: offsets, their squares, bumps and features.
    cell_bytes = itemsize * (4 * (n_features + 1) if componentwise else 3)
    kernels = min(n_kernels, max(1, GROUP_BYTES // (MIN_ROWS * cell_bytes)))
    rows = MAX_ROWS
    while rows > MIN_ROWS and rows * kernels * cell_bytes > BLOCK_BYTES:
        rows //= 2
    # Rows as given, scaled and centred, and projected.
    row_bytes = 8 * (3 * n_features_in + n_features)
    return BlockPlan(rows, kernels, rows * (kernels * cell_bytes + row_bytes))
