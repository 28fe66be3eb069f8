"""The shape functions of a component-wise machine: f(x) = sum_l f_l(x_l), the most important l of them as curves.

The importance of a feature is the standard deviation of f_l over the values that the anchors have, by `QUANTILES` of
these; over several classes, the root of the mean square.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.arrays import Array
from mllkm_scale.model.model import Model
from mllkm_scale.model.tables.shapes import Shapes
from mllkm_scale.report.picture import Picture, canvas, embedded
from mllkm_scale.report.prepared_space import axis_name
from mllkm_scale.report.regions import class_colours
from mllkm_scale.report.style import BLUE, GREY, styled

__all__ = ["ShapeSection", "shape_section"]

MOST_FEATURES = 9
MOST_CLASSES = 10
QUANTILES = 64
POINTS = 240
RUG = 300


@dataclass(frozen=True)
class ShapeSection:
    """Curves of the most important features, the colours of their classes, and how much all others matter."""

    pictures: list[Picture]
    legend: list[tuple[str, str]]
    intro: str


def shape_section(model: Model, names: tuple[str, ...] | None) -> ShapeSection:
    """The shape functions of the features that matter most."""
    spread = _spread(model)
    importance = np.sqrt(np.mean(spread**2, axis=1))
    order = np.argsort(-importance, kind="stable")[:MOST_FEATURES]
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
    others = f" {left_out:,} more features hold {100 - shares[order].sum():.0f} %." if left_out else ""
    decides = (
        f"Above 0 speaks for {model.classes[1]}, below for {model.classes[0]}."
        if model.n_machines == 1
        else "The class with the largest sum wins."
    )
    intro = (
        "The machine adds up one function of each feature. Importance is the spread (standard deviation) of a function"
        " over the values of the anchors, which ticks below mark, as a share of that of all features."
        f"{others} {decides}"
    )
    return ShapeSection(shown, legend, intro)


def _spread(model: Model) -> NDArray[np.float64]:
    """Standard deviation of f_kl over quantiles of the anchors' values: (d, K)."""
    places = np.quantile(model.anchors, np.linspace(0, 1, QUANTILES), axis=0)
    found = [Shapes.of(model, l).values(places[:, l]).std(axis=0) for l in range(model.anchors.shape[1])]
    return np.array(found)


@dataclass(frozen=True)
class _Drawn:
    """A shape function on a grid, and the values that the anchors have."""

    feature: int
    ticks: Array
    anchors: Array
    values: Array  # (n, K)


def _drawn(model: Model, feature: int) -> _Drawn:
    anchors = np.unique(model.anchors[:, feature])
    reach = 0.05 * (anchors[-1] - anchors[0] or 1.0)
    ticks = np.linspace(anchors[0] - reach, anchors[-1] + reach, POINTS)
    return _Drawn(feature, ticks, anchors, Shapes.of(model, feature).values(ticks))


@styled
def _curves(
    model: Model,
    shape: _Drawn,
    names: tuple[str, ...] | None,
    machines: Array,
    share: float,
    limits: tuple[float, float],
) -> Picture:
    x = _units(model, shape.feature, shape.ticks)
    rug = _units(model, shape.feature, shape.anchors[:: max(1, len(shape.anchors) // RUG)])
    figure, axes = canvas(3.3, 2.3)
    axes.axhline(0, color=GREY, lw=0.6)
    if model.n_machines == 1:
        axes.fill_between(x, shape.values[:, 0], color=BLUE, alpha=0.1, lw=0)
        axes.plot(x, shape.values[:, 0], color=BLUE)
    else:
        colours = class_colours(model.n_machines)
        for k in machines:
            axes.plot(x, shape.values[:, k], color=colours[k], lw=1.0)
    below = axes.get_xaxis_transform()
    axes.plot(rug, np.zeros(len(rug)), "|", color=GREY, ms=5, mew=0.5, transform=below, clip_on=False)
    room = 0.06 * (limits[1] - limits[0] or 1.0)
    name = axis_name(model, names, shape.feature)
    axes.set(xlabel=name, ylabel="adds to f", ylim=(limits[0] - room, limits[1] + room))
    told = name.replace(r"\$", "$")
    return embedded(figure, f"Shape function of {told}", f"{told}: {share:.0f} % of the importance")


def _units(model: Model, feature: int, points: Array) -> Array:
    """Values of a feature in the units of the data, where it is one of the data's."""
    if model.preprocessor.projection is not None:
        return points
    return model.preprocessor.scaling.invert_column(feature, points)
