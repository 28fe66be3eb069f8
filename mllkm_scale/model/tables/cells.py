"""The cells of the table of one feature: intervals on which polynomials replace the shape functions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.maps import MapName

__all__ = ["DEGREES", "Cells", "NotTabulated", "require_edges", "require_finite_cells"]


DEGREES: dict[MapName, int] = {"linear": 2, "squared": 3, "exponential": 5, "gaussian": 5}
NARROWEST = 1e-50  # smallest width of a cell: its sixth power is still a normal number
TOO_MANY = "needs more cells than are left"
TOO_FINE = "has bumps too wide or too narrow for double precision"


class NotTabulated(ParameterError):
    """No tables can be made, or none within the bound; the message says why."""


@dataclass(frozen=True)
class Cells:
    """`edges` (cells + 1,), and polynomials (cells, degree + 1, K) between them, in x = -1 .. 1.

    `error` bounds the error of all polynomials, and of zero as the value of f beyond the edges, without rounding.
    """

    edges: Array
    coefficients: Array
    error: float


def require_edges(edges: Array, max_cells: int) -> Array:
    """Refuse too many cells, and edges that are equal in double precision."""
    if len(edges) - 1 > max_cells:
        raise NotTabulated(TOO_MANY)
    if not np.isfinite(edges).all() or (np.diff(edges) < NARROWEST).any():
        raise NotTabulated(TOO_FINE)
    return edges


def require_finite_cells(cells: Cells) -> Cells:
    """Refuse polynomials with overflow."""
    if not np.isfinite(cells.coefficients).all():
        raise NotTabulated(TOO_FINE)
    return cells
