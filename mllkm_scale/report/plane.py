"""The plane that shows the anchors best, and what the model decides on it.

    z = o + a u + b v        u, v the principal directions of the anchors, weighted as their kernels are, o their mean

Global kernels are evaluated there as a machine over three features, whatever their number d: with
c = o + c_a u + c_b v + r, r at right angles to the plane,

    |z - c|^2 = (a - c_a)^2 + (b - c_b)^2 + |r|^2
    <z - c, w> = (a - c_a) <u, w> + (b - c_b) <v, w> - <r, w>
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.arrays import Array
from mllkm_scale.model.model import Model
from mllkm_scale.report.prepared_space import codes_at, heaviest, unprepared

__all__ = ["Plane", "class_codes", "pixels_that_pay", "plane_of"]

MOST_ANCHORS = 1000  # that the plane is found from
MOST_PIXELS, LEAST_PIXELS = 220, 40  # of a side of the picture
KERNELS_AT_ONCE = 256
LOOKUPS, BUMPS = 2e7, 1e8  # that a picture of a component-wise machine may take


@dataclass(frozen=True)
class Plane:
    """An origin (d,), two orthonormal directions (2, d), and the share of the anchors' variance that lies in it."""

    origin: Array
    directions: Array
    share: float

    def coordinates(self, rows: Array) -> Array:
        """Where rows (n, d) are projected to: (n, 2)."""
        return (rows - self.origin) @ self.directions.T

    def points(self, coordinates: Array) -> Array:
        """The rows (n, d) at these coordinates (n, 2)."""
        return self.origin + coordinates @ self.directions


def plane_of(model: Model) -> Plane:
    """The plane of the two principal directions of the anchors; the whole space if it has two features."""
    d = model.anchors.shape[1]
    if d == 2:
        return Plane(np.zeros(2), np.eye(2), 1.0)
    chosen, shares = heaviest(model, MOST_ANCHORS)
    origin = shares @ model.anchors[chosen] / shares.sum()
    offsets = (model.anchors[chosen] - origin) * np.sqrt(shares)[:, None]
    # The smaller of the two products has the same eigenvalues.
    by_feature = d <= len(chosen)
    values, vectors = np.linalg.eigh(offsets.T @ offsets if by_feature else offsets @ offsets.T)
    leading = vectors[:, ::-1][:, :2].T
    directions = leading if by_feature else leading @ offsets
    share = float(values[-2:].sum() / values.sum()) if values.sum() > 0 else 1.0
    return Plane(origin, _orthonormal(directions, d), share)


def _orthonormal(directions: Array, d: int) -> Array:
    """Two orthonormal rows near those given, of which one or both may vanish; the largest entries are positive."""
    rows: list[Array] = []
    for row in (*directions, *np.eye(d)[:3]):
        rest = row - sum((np.dot(row, other) * other for other in rows), np.zeros(d))
        norm = np.linalg.norm(rest)
        if norm > 1e-9 * max(1.0, float(np.abs(row).max())) and len(rows) < 2:
            rows.append(rest / norm * (1.0 if rest[np.argmax(np.abs(rest))] > 0 else -1.0))
    return np.array(rows)


def pixels_that_pay(model: Model) -> int:
    """Pixels of a side that can be evaluated in a moment; 0 if too few could to make a picture."""
    if not model.family.componentwise:
        return MOST_PIXELS
    d, tables = model.anchors.shape[1], model.form.tables
    rows = LOOKUPS / (d * model.n_machines) if tables is not None else BUMPS / (model.n_kernels * d)
    pixels = min(MOST_PIXELS, math.isqrt(int(rows)))
    return pixels if pixels >= LEAST_PIXELS else 0


def class_codes(model: Model, plane: Plane, coordinates: Array) -> NDArray[np.int64]:
    """Position among the classes that the model decides for at points of the plane (n, 2)."""
    if not model.family.componentwise:
        flat = np.column_stack([coordinates, np.zeros(len(coordinates))])
        return model.codes(_on_plane(model, plane).decision_function(flat))
    return codes_at(model, plane.points(coordinates))


def _on_plane(model: Model, plane: Plane) -> Model:
    """The machine over (a, b, 0) that has the values of a global one at the points of the plane."""
    places = plane.coordinates(model.anchors)
    distance, across = np.zeros(model.n_kernels), np.zeros(model.local_coef.shape)
    for start in range(0, model.n_kernels, KERNELS_AT_ONCE):
        part = slice(start, start + KERNELS_AT_ONCE)
        apart = model.anchors[part] - plane.points(places[part])
        distance[part] = np.linalg.norm(apart, axis=1)
        apart /= np.where(distance[part] > 0, distance[part], 1.0)[:, None]
        across[:, part] = np.einsum("ksd,sd->ks", model.coef[:, part], apart)
    return replace(
        model,
        anchors=np.column_stack([places, distance]),
        coef=np.concatenate([model.coef @ plane.directions.T, across[:, :, None]], axis=2),
        preprocessor=unprepared(3),
        feature_names=None,
    )
