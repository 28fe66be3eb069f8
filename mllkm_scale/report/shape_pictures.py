"""The shape functions of a component-wise machine: f(x) = sum_l f_l(x_l), with the most important l as curves.

The importance of a feature is the standard deviation of f_l over the training rows, computed from the quantiles in the
model; for several classes, it is the root of the mean square. A model without quantiles uses the values of its anchors.

Kernels are bumps, so a curve returns to zero beyond the last anchor. This does not mean that extreme values are
neutral: the model has no information about them. Where there are no training rows, the picture is shaded and the curve
is dashed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.arrays import Array
from mllkm_scale.model.model import Model
from mllkm_scale.model.profile import LEVELS
from mllkm_scale.model.tables.shapes import Shapes
from mllkm_scale.report.picture import Picture, canvas, embedded
from mllkm_scale.report.prepared_space import axis_name
from mllkm_scale.report.regions import class_colours
from mllkm_scale.report.style import BLUE, GREY, styled

__all__ = ["ShapeSection", "shape_section"]

MOST_FEATURES = 9
MOST_CLASSES = 10
POINTS = 240
BEYOND = 0.12  # of the range of the rows, shown on both sides of it
BARS = 40  # of the density
HEIGHT = 0.16  # of the density bars, as a share of the picture


@dataclass(frozen=True)
class ShapeSection:
    """Curves of the most important features, the colours of the classes, and the importance of all others."""

    pictures: list[Picture]
    legend: list[tuple[str, str]]
    intro: str


def shape_section(model: Model, names: tuple[str, ...] | None, every: bool = False) -> ShapeSection:
    """The shape functions of the most important features, or of all features with an effect."""
    spread = _spread(model)
    importance = np.sqrt(np.mean(spread**2, axis=1))
    order = np.argsort(-importance, kind="stable")[: None if every else MOST_FEATURES]
    order = order[importance[order] > 0]
    machines = np.sort(np.argsort(-np.sqrt(np.mean(spread**2, axis=0)), kind="stable")[:MOST_CLASSES])
    colours = class_colours(model.n_machines)
    legend = [(colours[k], str(model.classes[k])) for k in machines] if model.n_machines > 1 else []
    drawn = [_drawn(model, int(feature)) for feature in order]
    limits = (
        min(shape.values[:, machines].min() for shape in drawn),
        max(shape.values[:, machines].max() for shape in drawn),
    )
    shares = 100 * importance / (importance.sum() or 1.0)
    shown = [_curves(model, shape, names, machines, float(shares[shape.feature]), limits) for shape in drawn]
    left_out = model.anchors.shape[1] - len(order)
    rest = 100 - shares[order].sum()
    others = f" {left_out:,} more features have {max(0.0, rest):.0f} %." if left_out else ""
    decides = (
        f"Values above 0 favour {model.classes[1]}, and values below 0 favour {model.classes[0]}."
        if model.n_machines == 1
        else "The class with the largest sum wins."
    )
    rows = "training rows" if model.profile is not None else "anchors"
    intro = (
        "The score is a sum of one function per feature. Importance is the spread (standard deviation) of a function"
        f" over the {rows}, as a share of that of all features. Bars below show the distribution of the {rows}. Shaded"
        " parts have hardly any of them: there the curve is dashed, and returns to 0 because no kernel is near, not"
        f" because such values are neutral.{others} {decides}"
    )
    return ShapeSection(shown, legend, intro)


def _spread(model: Model) -> NDArray[np.float64]:
    """Standard deviation of f_kl over quantiles of the rows: (d, K)."""
    quantiles = _quantiles(model)
    middles = 0.5 * (quantiles[:, 1:] + quantiles[:, :-1])  # each represents the same share of the rows
    return np.array([Shapes.of(model, l).values(places).std(axis=0) for l, places in enumerate(middles)])


def _quantiles(model: Model) -> Array:
    """(d, `LEVELS`) of the training rows, or of the anchors."""
    if model.profile is not None:
        return model.profile.quantiles
    return np.quantile(model.anchors, np.linspace(0, 1, LEVELS), axis=0).T


@dataclass(frozen=True)
class _Drawn:
    """A shape function on a grid that includes the smallest and the largest value of the rows, and the density of the
    rows."""

    feature: int
    ticks: Array
    seen: slice  # of the grid: from the smallest to the largest value
    values: Array  # (n, K)
    edges: Array
    shares: Array  # of the rows, between the edges


def _drawn(model: Model, feature: int) -> _Drawn:
    quantiles = _quantiles(model)[feature]
    low, high = quantiles[0], quantiles[-1]
    reach = BEYOND * (high - low or 1.0)
    within = np.linspace(low, high, POINTS)
    sides = np.linspace(0.0, reach, POINTS // 8)
    ticks = np.concatenate([low - sides[:0:-1], within, high + sides[1:]])
    edges = np.linspace(low, high, BARS + 1)
    below = np.interp(edges, quantiles, np.linspace(0.0, 1.0, LEVELS))
    below[0], below[-1] = 0.0, 1.0  # many rows may have the smallest or the largest value
    shares = np.diff(below) if high > low else np.zeros(BARS)
    first = len(sides) - 1
    seen = slice(first, first + POINTS)
    return _Drawn(feature, ticks, seen, Shapes.of(model, feature).values(ticks), edges, shares)


@styled
def _curves(
    model: Model,
    shape: _Drawn,
    names: tuple[str, ...] | None,
    machines: Array,
    share: float,
    limits: tuple[float, float],
) -> Picture:
    x, edges = (_units(model, shape.feature, values) for values in (shape.ticks, shape.edges))
    figure, axes = canvas(3.3, 2.3)
    axes.axhline(0, color=GREY, lw=0.6)
    if model.n_machines == 1:
        axes.fill_between(x[shape.seen], shape.values[shape.seen, 0], color=BLUE, alpha=0.1, lw=0)
    colours = class_colours(model.n_machines) if model.n_machines > 1 else [BLUE]
    for k in machines:
        axes.plot(x[shape.seen], shape.values[shape.seen, k], color=colours[k], lw=1.2 if len(machines) == 1 else 1.0)
        for side in (slice(0, shape.seen.start + 1), slice(shape.seen.stop - 1, None)):
            axes.plot(x[side], shape.values[side, k], "--", color=colours[k], lw=0.8, alpha=0.7)
    for ends in ((x[0], x[shape.seen.start]), (x[shape.seen.stop - 1], x[-1])):
        axes.axvspan(*ends, color="#ececec", lw=0, zorder=0)
    widths = np.diff(edges)
    density = np.divide(shape.shares, widths, out=np.zeros(len(widths)), where=widths > 0)
    if density.any():
        axes.stairs(
            HEIGHT * density / density.max(),
            edges,
            fill=True,
            color=GREY,
            alpha=0.35,
            transform=axes.get_xaxis_transform(),
        )
    room = limits[1] - limits[0] or 1.0
    name = axis_name(model, names, shape.feature)
    axes.set(xlabel=name, ylabel="adds to f", xlim=(x[0], x[-1]))
    axes.set_ylim(limits[0] - (0.06 + HEIGHT) * room, limits[1] + 0.06 * room)
    told = name.replace(r"\$", "$")
    return embedded(figure, f"Shape function of {told}", f"{told}: {share:.0f} % of the importance")


def _units(model: Model, feature: int, points: Array) -> Array:
    """Values of a feature in the units of the data, if it is a feature of the data."""
    if model.preprocessor.projection is not None:
        return points
    return model.preprocessor.scaling.invert_column(feature, points)
