"""Unit trace (F9): each kernel is divided by its mean diagonal over a sample of the training rows.

A kernel that reaches almost no sample would be blown up by the division; it is excluded instead (scale 0). Reach is the
effective number of samples in the diagonal, (sum u)^2 / sum u^2 with u_i = k_m(x_i, x_i).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.kernels.grid import Family, RowSource
from mllkm_scale.team import Team

__all__ = ["MIN_REACH", "REFERENCE_ROWS", "trace_scales"]

Array = NDArray[Any]

MIN_REACH = 10.0
_BLOCK_BYTES = 4 << 20
REFERENCE_ROWS = 4096
"""At most so many training rows are the sample over which the mean diagonal is taken."""


def trace_scales(
    family: Family,
    anchors: RowSource,
    gammas: Array,
    reference: Array,
    team: Team | None = None,
    poll: Callable[[], None] = lambda: None,
) -> Array:
    """1 / mean diagonal of every kernel of the grid, (anchors, gammas); 0 where its reach is below MIN_REACH."""
    least_reach = min(MIN_REACH, 0.5 * len(reference))
    reference = reference.astype(np.float64)
    width = reference.shape[1] + 1 if family.componentwise else 1
    height = max(1, _BLOCK_BYTES // (8 * len(reference) * width))

    def blocks() -> Iterator[Array]:
        for _, chunk in anchors.chunks():
            poll()
            for first in range(0, len(chunk), height):
                yield chunk[first : first + height]

    def scales(block: Array) -> Array:
        out = np.zeros((len(block), len(gammas)))
        for g, gamma in enumerate(gammas):
            kernels = family.kernels(block.astype(np.float64), np.full(len(block), gamma))
            diagonals = kernels.diagonals(reference)
            total, squares = diagonals.sum(axis=0), np.einsum("ij,ij->j", diagonals, diagonals)
            np.divide(len(reference), total, where=total * total > least_reach * squares, out=out[:, g])
        return out

    return np.concatenate((team or Team()).run(scales, blocks()))
