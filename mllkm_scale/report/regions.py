"""Anchors and class regions on the plane of largest variance of the anchors, or the decision along one feature.

    z = o + a u + b v        u, v the principal directions of the anchors, weighted by the kernel weights, o their mean

Global kernels are evaluated there as a machine with three features, for any d: with c = o + c_a u + c_b v + r, r at
right angles to the plane,

    |z - c|^2 = (a - c_a)^2 + (b - c_b)^2 + |r|^2
    <z - c, w> = (a - c_a) <u, w> + (b - c_b) <v, w> - <r, w>
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.model.model import Model
from mllkm_scale.report.picture import CLASS_COLOURS, Picture, canvas, embedded
from mllkm_scale.report.prepared_space import axis_name, codes_at, heaviest, in_prepared_space, plain
from mllkm_scale.report.style import GREY, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

import math
from dataclasses import dataclass, replace

from numpy.typing import NDArray

from mllkm_scale.report.prepared_space import unprepared

__all__ = ["Plane", "anchor_regions", "class_codes", "class_colours", "pixels_that_pay", "plane_of"]

MOST_ANCHORS = 1000  # for computing the plane
MOST_PIXELS, LEAST_PIXELS = 220, 40  # of a side of the picture
KERNELS_AT_ONCE = 256
LOOKUPS, BUMPS = 2e7, 1e8  # limits for a picture of a component-wise machine
DRAWN_ANCHORS = 400
MOST_LEGEND = 20
MARGIN = 0.12  # of the picture beyond the anchors, on each side


@dataclass(frozen=True)
class Plane:
    """An origin (d,), two orthonormal directions (2, d), and the share of the variance of the anchors in the plane."""

    origin: Array
    directions: Array
    share: float

    def coordinates(self, rows: Array) -> Array:
        """The coordinates (n, 2) of the projections of rows (n, d)."""
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
    """Two orthonormal rows near the given ones, which may be zero; the largest entries are positive."""
    rows: list[Array] = []
    for row in (*directions, *np.eye(3, d)):
        rest = row - sum((np.dot(row, other) * other for other in rows), np.zeros(d))
        norm = np.linalg.norm(rest)
        if norm > 1e-9 * max(1.0, float(np.abs(row).max())) and len(rows) < 2:
            rows.append(rest / norm * (1.0 if rest[np.argmax(np.abs(rest))] > 0 else -1.0))
    return np.array(rows)


def pixels_that_pay(model: Model) -> int:
    """Pixels per side that can be evaluated quickly; 0 if they are too few for a picture."""
    if not model.family.componentwise:
        return MOST_PIXELS
    d, tables = model.anchors.shape[1], model.form.tables
    rows = LOOKUPS / (d * model.n_machines) if tables is not None else BUMPS / (model.n_kernels * d)
    pixels = min(MOST_PIXELS, math.isqrt(int(rows)))
    return pixels if pixels >= LEAST_PIXELS else 0


def class_codes(model: Model, plane: Plane, coordinates: Array) -> NDArray[np.int64]:
    """Position among the classes of the prediction at points of the plane (n, 2)."""
    if not model.family.componentwise:
        flat = np.column_stack([coordinates, np.zeros(len(coordinates))])
        return model.codes(_on_plane(model, plane).decision_function(flat))
    return codes_at(model, plane.points(coordinates))


def _on_plane(model: Model, plane: Plane) -> Model:
    """The machine over (a, b, 0) with the values of a global machine at the points of the plane."""
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
        profile=None,
    )


def class_colours(count: int) -> list[str]:
    """A colour for each class, as different as possible."""
    if count <= len(CLASS_COLOURS):
        return list(CLASS_COLOURS[:count])
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colormaps["gist_rainbow"](k / count)) for k in range(count)]


def anchor_regions(model: Model, names: tuple[str, ...] | None) -> Picture:
    """Anchors as marks over the class regions; with one feature, the outputs along it."""
    return _along_one_feature(model, names) if model.anchors.shape[1] == 1 else _on_the_plane(model, names)


@styled
def _on_the_plane(model: Model, names: tuple[str, ...] | None) -> Picture:
    plane = plane_of(model)
    chosen, shares = heaviest(model, DRAWN_ANCHORS)
    places = plane.coordinates(model.anchors[chosen])
    positions = codes_at(model, model.anchors[chosen])
    low, high = places.min(axis=0), places.max(axis=0)
    reach = np.where(high > low, high - low, 1.0)
    low, high = low - MARGIN * reach, high + MARGIN * reach
    figure, axes = canvas(6.6, 4.8, fitted=True)
    axes.grid(False)
    colours = class_colours(len(model.classes))
    pixels = pixels_that_pay(model)
    to_axes = _units(model, plane)
    (left, bottom), (right, top) = to_axes(low), to_axes(high)
    if pixels:
        _draw_regions(axes, model, plane, (low, high), pixels, colours, (left, right, bottom, top))
    drawn = to_axes(places)
    axes.scatter(
        drawn[:, 0],
        drawn[:, 1],
        s=8 + 110 * np.sqrt(shares / shares.max()),
        c=[colours[k] for k in positions],
        edgecolors="black",
        linewidths=0.5,
        zorder=3,
    )
    axes.set(xlim=sorted((left, right)), ylim=sorted((bottom, top)))
    whole = model.anchors.shape[1] == 2
    axes.set_xlabel(axis_name(model, names, 0) if whole else "first principal direction of the anchors")
    axes.set_ylabel(axis_name(model, names, 1) if whole else "second")
    _legend(axes, model, colours)
    alt = f"{len(chosen)} anchors over the regions of {len(model.classes)} classes"
    return embedded(figure, alt, _caption(model, plane, len(chosen), whole, bool(pixels)), dpi=150, wide=True)


def _draw_regions(
    axes: Axes,
    model: Model,
    plane: Plane,
    corners: tuple[Array, Array],
    pixels: int,
    colours: list[str],
    extent: tuple[float, float, float, float],
) -> None:
    from matplotlib.colors import to_rgb

    across, up = (np.linspace(low, high, 2 * pixels + 1)[1::2] for low, high in zip(*corners, strict=True))
    grid = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
    codes = class_codes(model, plane, grid).reshape(pixels, pixels)
    pale = np.array([0.72 + 0.28 * np.array(to_rgb(colour)) for colour in colours])
    axes.imshow(pale[codes], extent=extent, origin="lower", aspect="auto", interpolation="nearest")


def _units(model: Model, plane: Plane) -> Any:
    """The map from coordinates of the plane to those of the axes: the units of the data, if the axes are features.

    Quantile columns are not converted, because their units are not linear along an axis.
    """
    scaling, projection = model.preprocessor.scaling, model.preprocessor.projection
    if plane.share < 1.0 or len(plane.origin) != 2 or projection is not None or scaling.mapped.any():
        return lambda places: places
    return lambda places: places / scaling.factor + scaling.offset


def _legend(axes: Axes, model: Model, colours: list[str]) -> None:
    from matplotlib.lines import Line2D

    if len(model.classes) > MOST_LEGEND:
        return
    handles = [
        Line2D([], [], ls="", marker="o", mfc=colour, mec="black", mew=0.5, ms=5, label=plain(label, 24))
        for label, colour in zip(model.classes.tolist(), colours, strict=True)
    ]
    axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _caption(model: Model, plane: Plane, count: int, whole: bool, regions: bool) -> str:
    which = "All" if count == model.n_kernels else f"The {count} heaviest of {model.n_kernels:,}"
    marks = f"{which} anchors, sized by their weight, in the colour of their predicted class."
    if not regions:
        return f"{marks} They are projected to the plane that holds {100 * plane.share:.0f} % of their variance."
    if whole:
        return f"{marks} The background shows the prediction at each point."
    return (
        f"{marks} They are projected to the plane that holds {100 * plane.share:.0f} % of their variance. The"
        " background shows the prediction at the points of this plane, so an anchor far from the plane may have"
        " another colour."
    )


@styled
def _along_one_feature(model: Model, names: tuple[str, ...] | None) -> Picture:
    anchors = model.anchors[:, 0]
    low, high = anchors.min(), anchors.max()
    reach = (high - low or 1.0) * MARGIN
    ticks = np.linspace(low - reach, high + reach, 400)[:, None]
    outputs = in_prepared_space(model).decision_function(ticks)
    curves = outputs[:, None] if outputs.ndim == 1 else outputs
    figure, axes = canvas(fitted=True)
    known = model.preprocessor.projection is None
    x = model.preprocessor.scaling.invert_column(0, ticks[:, 0]) if known else ticks[:, 0]
    labels, colours = _outputs(model)
    for curve, label, colour in zip(curves.T[: len(labels)], labels, colours, strict=False):
        axes.plot(x, curve, color=colour, label=label)
    axes.axhline(0, color=GREY, lw=0.6)
    axes.set(xlabel=axis_name(model, names, 0), ylabel="output f")
    axes.legend()
    caption = "The output of the machine along its one feature."
    return embedded(figure, caption, caption)


def _outputs(model: Model) -> tuple[list[str], list[str]]:
    if model.n_machines == 1:
        return [f"above 0: {plain(model.classes[1], 24)}"], [CLASS_COLOURS[0]]
    return [plain(label, 24) for label in model.classes[:10].tolist()], class_colours(len(model.classes))
