"""Tables of `linear` and `squared`: between the edges c_m and c_m +- reach, f_kl is a polynomial.

The only error is rounding, and beyond the first and the last edge f_kl is zero. A bump that was removed from the
running polynomial of the sweep leaves a rounding error, in pairs of doubles (106 bits), of

    |slope| (V + gamma V^(p + 1)) + |level| (1 + gamma V^p),      V = |t| + |c|, p = 1 for `linear`, 2 for `squared`

which is negligible unless the gammas of a machine differ by about fifteen orders of magnitude.
"""

from __future__ import annotations

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.kernels.maps import uses_plain_distance
from mllkm_scale.model.tables.cells import DEGREES, TOO_FINE, Cells, NotTabulated, require_edges
from mllkm_scale.model.tables.shapes import Shapes
from mllkm_scale.model.tables.sweeps import piece_polynomials

__all__ = ["piece_cells"]


_PAIR_UNIT = 2.0**-100  # rounding unit of a pair of doubles, with a margin


def piece_cells(shapes: Shapes, tolerance: float, max_cells: int) -> Cells:
    """The cells of a feature: one between each two neighbouring edges."""
    plain = uses_plain_distance(shapes.map)
    anchors, gammas = shapes.anchors, shapes.gammas
    reach = 1.0 / (gammas if plain else np.sqrt(gammas))
    low, high = anchors - reach, anchors + reach
    # Position, bend, and whether each side joins or leaves.
    events = [(low, gammas, 1.0), (anchors, gammas, -1.0), (anchors, -gammas, 1.0), (high, -gammas, -1.0)]
    if not plain:
        events = [(low, -gammas, 1.0), (high, -gammas, -1.0)]
    edges = require_edges(np.unique(np.concatenate([at for at, _, _ in events])), max_cells)
    left_behind = _left_behind(shapes, edges, len(events))
    if not left_behind <= tolerance:
        raise NotTabulated(TOO_FINE)
    places = np.searchsorted(edges, np.concatenate([at for at, _, _ in events]))
    order = np.argsort(places, kind="stable")
    degree, n_machines = DEGREES[shapes.map], shapes.slopes.shape[1]
    coefficients = np.empty((len(edges) - 1, degree + 1, n_machines))
    piece_polynomials(
        edges,
        places[order],
        np.tile(np.arange(len(shapes)), len(events))[order],
        np.concatenate([bend for _, bend, _ in events])[order],
        np.repeat([sign for _, _, sign in events], len(shapes))[order],
        anchors,
        np.ascontiguousarray(shapes.slopes),
        np.ascontiguousarray(shapes.levels),
        np.zeros((2, degree + 1, 2)),
        np.zeros((n_machines, degree + 1, 2)),
        coefficients,
    )
    return Cells(edges, coefficients, left_behind)


def _left_behind(shapes: Shapes, edges: Array, n_events: int) -> float:
    slopes, levels = shapes.heights
    power = DEGREES[shapes.map] - 1
    V = np.abs(edges).max() + np.abs(shapes.anchors)
    terms = slopes * (V + shapes.gammas * V ** (power + 1)) + levels * (1.0 + shapes.gammas * V**power)
    return float(_PAIR_UNIT * n_events * len(shapes) * terms.sum())
