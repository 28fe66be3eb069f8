"""One-dimensional sums of the map `gaussian`, by expansions that serve all anchors of an interval.

    h(t) = e^(-gamma t^2),   psi(t) = t h(t)

The line is divided into boxes of a width w of about gamma^(-1/2); w has 8 binary digits, so the borders j w are exact.
With the position s of x in its box and u of c in its own, both from -1 to 1, and Chebyshev polynomials T,

    h(x - c) = sum_pq  M_pq T_p(s) T_q(u),   p, q < N_TERMS,   M a function of (box of x) - (box of c)

Interpolation in u or s is off by at most 2.2 sqrt(2^N / N!) 4^-N = 3e-14 with N = N_TERMS = 16 (Cramér's inequality for
the derivatives of h), and by 1e-13 in both. The moments W_p = sum_i a_i T_p(s_i) of the entries of a box give the
expansion sum_p M_pq W_p of their contribution to another box; boxes more than REACH apart add less than 1e-20 |a_i|.
The same products, applied to a_i (x_i - x*) with x* amid the entries, give psi, even if a column is narrow against w:

    sum_i a_i psi(x_i - c) = sum_i a_i (x_i - x*) h(x_i - c) - (c - x*) sum_i a_i h(x_i - c)

So sums of h are off by less than 1e-12 sum |a_i|, and sums of psi by less than 1e-12 w sum |a_i|, over the entries
within reach. Boxes that see few entries have no expansion; anchors in them add the entries in reach one by one. At
most MOST_BOXES boxes, those that see most entries, have an expansion, which bounds memory and time for any column.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.scan.component.expansions import add_gaussian, fill_coefficients, fill_moments
from mllkm_scale.scan.component.sizes import DIRECT_ENTRIES, MOST_BOXES, N_TERMS, REACH, Entries

__all__ = ["BoxShape", "Boxes", "GaussianColumn"]

_OFFSETS = np.arange(-REACH, REACH + 1.0)
_EXACT_IDS = 2.0**45


@dataclass(frozen=True)
class BoxShape:
    """The width of the boxes of a gamma, and the products M (offset, p, q)."""

    gamma: float
    width: float
    products: Array

    @classmethod
    def of(cls, gamma: float) -> BoxShape:
        mantissa, exponent = np.frexp(gamma**-0.5)
        width = float(np.ldexp(np.floor(mantissa * 256) / 256, exponent))
        nodes = np.cos(np.pi * (np.arange(N_TERMS) + 0.5) / N_TERMS)
        transform = np.cos(np.arange(N_TERMS)[:, None] * np.arccos(nodes)) * (2.0 / N_TERMS)
        transform[0] *= 0.5
        t = width * (_OFFSETS[:, None, None] + 0.5 * (nodes[:, None] - nodes))
        products = np.einsum("pa,dab->dpb", transform, np.exp(-gamma * t * t))
        return cls(float(gamma), width, np.einsum("qb,dpb->dpq", transform, products))


@dataclass(frozen=True)
class Boxes:
    """The boxes of a column that have an expansion: ids, ascending; x*; and coefficients (boxes, q, 2 K).

    The coefficients are those of sum_i a_i (x_i - x*) h(x_i - c) and of sum_i a_i h(x_i - c). Which boxes have them
    depends on the entries, not on the anchors.
    """

    ids: Array
    centres: Array
    coefficients: Array

    @classmethod
    def of(cls, entries: Entries, shape: BoxShape) -> Boxes:
        points = entries.points
        box_of = np.floor(points / shape.width)
        sources, starts = np.unique(box_of, return_index=True)
        ids = _expanded(box_of, sources)
        seen = np.searchsorted(ids, sources - REACH) < np.searchsorted(ids, sources + REACH, "right")
        sources, starts, stops = sources[seen], starts[seen], np.append(starts[1:], len(points))[seen]
        middles = points[starts] + 0.5 * (points[stops - 1] - points[starts])
        centres = middles[_nearest(sources, ids)]
        moments = np.zeros((len(sources), entries.n_classes, 2, N_TERMS))
        coefficients = np.zeros((len(ids), N_TERMS, 2 * entries.n_classes))
        fill_moments(
            points, entries.classes, entries.duals, sources, starts, stops, middles, shape.width, moments
        )  # fmt: skip
        fill_coefficients(sources, middles, moments, shape.products, ids, centres, coefficients)
        return cls(ids, centres, coefficients)


def _expanded(box_of: Array, sources: Array) -> Array:
    """Ids of the boxes that see more than DIRECT_ENTRIES, at most MOST_BOXES of them; box_of is ascending."""
    ids = np.unique(sources[:, None] + _OFFSETS)
    ids = ids[np.abs(ids) < _EXACT_IDS]
    counts = np.searchsorted(box_of, ids + REACH, "right") - np.searchsorted(box_of, ids - REACH)
    fullest = np.argsort(-counts, kind="stable")[:MOST_BOXES]
    return np.sort(ids[fullest[counts[fullest] > DIRECT_ENTRIES]])


def _nearest(sources: Array, ids: Array) -> Array:
    """For each id, the position of the nearest source."""
    after = np.searchsorted(sources, ids)
    before = np.maximum(after - 1, 0)
    after = np.minimum(after, len(sources) - 1)
    return np.where(np.abs(ids - sources[before]) <= np.abs(sources[after] - ids), before, after)


@dataclass(frozen=True)
class GaussianColumn:
    """A sorted column, and its boxes for each gamma."""

    entries: Entries
    boxes: tuple[Boxes, ...]
    shapes: tuple[BoxShape, ...]

    @classmethod
    def of(cls, entries: Entries, shapes: tuple[BoxShape, ...]) -> GaussianColumn:
        return cls(entries, tuple(Boxes.of(entries, shape) for shape in shapes), shapes)

    def add(self, anchors: Array, order: Array, q: Array, r: Array) -> None:
        """Add |v_l|^2 of the anchors to q (gammas, anchors), and their sums of bumps to r (gammas, anchors, K)."""
        of = self.entries
        for g, (at, shape) in enumerate(zip(self.boxes, self.shapes, strict=True)):
            add_gaussian(
                of.points,
                of.classes,
                of.duals,
                at.ids,
                at.centres,
                at.coefficients,
                shape.gamma,
                shape.width,
                REACH * shape.width,
                anchors,
                order,
                g,
                q,
                r,
            )
