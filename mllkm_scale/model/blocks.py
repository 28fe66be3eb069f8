"""In which blocks a model is evaluated: arithmetic over its sizes, and of nothing else.

The sizes of a block decide the last bits of a product. They do not depend on how many rows are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BlockPlan", "plan_blocks"]

BLOCK_BYTES = 2 << 20  # what stays in the caches of a core is evaluated fastest
GROUP_BYTES = 32 << 20  # bound on a block of the fewest rows, held by taking few kernels at a time
MIN_ROWS, MAX_ROWS = 16, 256


@dataclass(frozen=True)
class BlockPlan:
    """`rows` rows, a power of two, are evaluated at once on `kernels` kernels at a time.

    `block_bytes` is about the memory that it takes beside the model: for each thread that evaluates.
    """

    rows: int
    kernels: int
    block_bytes: int


def plan_blocks(n_kernels: int, n_features_in: int, n_features: int, componentwise: bool) -> BlockPlan:
    """The blocks of a model with so many kernels, features of a row as given, and features of an anchor.

    Examples
    --------
    >>> plan_blocks(1000, 784, 50, componentwise=False)
    BlockPlan(rows=64, kernels=1000, block_bytes=2765824)
    >>> plan_blocks(5000, 784, 50, componentwise=True)
    BlockPlan(rows=16, kernels=1285, block_bytes=33861376)
    """
    # Distances, bumps and inner products; component-wise: offsets, their squares, bumps and features.
    cell_bytes = 8 * 4 * (n_features + 1) if componentwise else 8 * 3
    kernels = min(n_kernels, max(1, GROUP_BYTES // (MIN_ROWS * cell_bytes)))
    rows = MAX_ROWS
    while rows > MIN_ROWS and rows * kernels * cell_bytes > BLOCK_BYTES:
        rows //= 2
    # Rows as given, scaled and centred, and as projected.
    row_bytes = 8 * (3 * n_features_in + n_features)
    return BlockPlan(rows, kernels, rows * (kernels * cell_bytes + row_bytes))
