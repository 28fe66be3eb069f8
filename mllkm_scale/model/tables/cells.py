"""The cells of one feature's table: edges between which polynomials stand for the shape functions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.maps import MapName

__all__ = ["DEGREES", "Cells", "NotTabulated", "require_edges", "require_finite_cells"]


DEGREES: dict[MapName, int] = {"linear": 2, "squared": 3, "exponential": 5, "gaussian": 5}
NARROWEST = 1e-50  # width of a cell whose sixth power is a normal number yet
TOO_MANY = "needs more cells than are left"
TOO_FINE = "has bumps too wide or too narrow for double precision"


class NotTabulated(ParameterError):
    """No tables can be made, or none within the bound; the message says why."""


@dataclass(frozen=True)
class Cells:
    """`edges` (cells + 1,), and in between polynomials (cells, degree + 1, K) in x = -1 .. 1.

    `error` bounds by how much any of them is off, or zero is that stands for f beyond the edges; rounding aside.
    """

    edges: Array
    coefficients: Array
    error: float


def require_edges(edges: Array, max_cells: int) -> Array:
    """Refuse edges of more cells than there may be, and those that double precision cannot tell apart."""
    if len(edges) - 1 > max_cells:
        raise NotTabulated(TOO_MANY)
    if not np.isfinite(edges).all() or (np.diff(edges) < NARROWEST).any():
        raise NotTabulated(TOO_FINE)
    return edges


def require_finite_cells(cells: Cells) -> Cells:
    """Refuse polynomials in which a number has overflowed."""
    if not np.isfinite(cells.coefficients).all():
        raise NotTabulated(TOO_FINE)
    return cells
