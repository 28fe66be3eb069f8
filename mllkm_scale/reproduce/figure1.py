"""The paper's Figure 1: synthetic data, and their images h(x) (x - c) under the eight maps, around one anchor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.kernels.maps import MapName, bumps, gamma_of_half_width
from mllkm_scale.report.style import BLUE, ORANGE, styled
from mllkm_scale.reproduce.methods import FAMILIES
from mllkm_scale.reproduce.synthetic import boundary, draw_samples

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_figure1", "image"]

N_SAMPLES, SEED = 600, 1
ANCHOR = np.array([-0.1, -0.2])
HALF_WIDTH = 0.45  # distance at which the bumps are one half
REACH = 0.27  # of the axes of the images


def image(X: Array, anchor: Array, map: MapName, componentwise: bool, gamma: float) -> tuple[Array, Array]:
    """phi(x) = h(x) (x - c), with one h for all components or one for each; and h, or the least of them, of every x."""
    offsets = X - anchor
    squares = offsets**2 if componentwise else np.sum(offsets**2, axis=1, keepdims=True)
    h = bumps(map, squares, gamma)
    return h * offsets, h.min(axis=1)


@styled
def draw_figure1() -> Figure:
    """Nine panels: the data, then the images under four global and four component-wise maps.

    The fainter a sample, the smaller its h: what is far from the anchor.
    """
    from matplotlib.figure import Figure

    X, y = draw_samples(N_SAMPLES, SEED)
    x = np.linspace(-1.0, 1.0, 801)
    line = np.column_stack([x, boundary(x)])
    figure = Figure(figsize=(6.6, 6.9))
    panels = figure.subplots(3, 3)
    first = panels[0, 0]
    _cloud(first, X, y, np.ones(len(X)))
    _curve(first, line, np.ones(len(line)))
    first.plot(*ANCHOR, "k*", ms=10, mec="white", mew=0.8, zorder=5)
    first.annotate(
        "anchor $a$",
        ANCHOR,
        xytext=(8, -3),
        textcoords="offset points",
        bbox={"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.8},
        zorder=6,
    )
    first.set_title("(a) original space")
    first.set(xlim=(-1.05, 1.05), ylim=(-1.05, 1.05))
    for letter, axes, (name, (map, componentwise)) in zip("bcdefghi", panels.flat[1:], FAMILIES.items(), strict=True):
        gamma = gamma_of_half_width(map, HALF_WIDTH)
        points, nearness = image(X, ANCHOR, map, componentwise, gamma)
        _cloud(axes, points, y, nearness)
        _curve(axes, *image(line, ANCHOR, map, componentwise, gamma))
        axes.plot(0.0, 0.0, "k*", ms=10, mec="white", mew=0.8, zorder=5)
        axes.set_title(f"({letter}) {name} map")
        axes.set(xlim=(-REACH, REACH), ylim=(-REACH, REACH))
    for axes in panels.flat:
        axes.set_aspect("equal")
        axes.locator_params(nbins=4)
    return figure


def _cloud(axes: Axes, points: Array, labels: Array, nearness: Array) -> None:
    """Samples of both classes."""
    for label, colour, marker in ((1, ORANGE, "o"), (-1, BLUE, "s")):
        chosen = labels == label
        x, y = points[chosen].T
        axes.scatter(x, y, s=7, color=colour, marker=marker, lw=0, alpha=0.12 + 0.78 * nearness[chosen])


def _curve(axes: Axes, line: Array, nearness: Array) -> None:
    """The line between the classes."""
    from matplotlib.collections import LineCollection

    pieces = LineCollection(list(np.stack([line[:-1], line[1:]], axis=1)), lw=1.1, capstyle="round")
    pieces.set_color([(0.0, 0.0, 0.0, near) for near in nearness[1:]])
    axes.add_collection(pieces)
