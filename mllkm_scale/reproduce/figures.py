"""The paper's Figures 1 and 2, on synthetic data: two classes, uniform on a square, separated by a piecewise linear
line.

Figure 1 shows the data, and their images h(x) (x - c) under the eight maps, around one anchor. Figure 2 shows machines
of the eight families with C = 1000: the output f(x) as a heat map, the true boundary in a continuous line and the
learned one dashed, support vectors as circles and the anchors of active kernels as squares.

The paper does not define the line; this one bends four times, and is a function of the first feature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.kernels.maps import MapName, bumps, gamma_of_half_width
from mllkm_scale.report.style import BLUE, ORANGE, styled
from mllkm_scale.reproduce.methods import FAMILIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


from mllkm_scale.kernels.gammas import logspace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from mllkm_scale import MLLKMClassifier

__all__ = ["KNOTS", "C", "boundary", "draw_figure1", "draw_figure2", "draw_samples", "image", "train_family"]

KNOTS = np.array([[-1.0, -0.45], [-0.55, 0.5], [-0.1, -0.45], [0.35, 0.55], [0.7, -0.3], [1.0, 0.2]])
"""Corners of the line, from left to right."""

MAPPED_SAMPLES, SEED = 600, 1
ANCHOR = np.array([-0.1, -0.2])
HALF_WIDTH = 0.45  # distance at which the bumps are one half
REACH = 0.27  # of the axes of the images
C = 1000.0
N_SAMPLES, N_TEST = 400, 20_000
PIXELS = 240
LIMIT = 10.0  # of the colours, which are linear within the margin and logarithmic beyond it


def boundary(x: Array) -> Array:
    """Height of the line at x.

    >>> boundary(np.array([-1.0, 0.35])).tolist()
    [-0.45, 0.55]
    """
    return np.interp(x, *KNOTS.T)


def draw_samples(n: int, seed: int) -> tuple[Array, Array]:
    """n samples, uniform on [-1, 1]^2, and their labels: +1 above the line, -1 below it."""
    X = np.random.default_rng(seed).uniform(-1.0, 1.0, (n, 2))
    return X, np.where(X[:, 1] > boundary(X[:, 0]), 1, -1)


def image(X: Array, anchor: Array, map: MapName, componentwise: bool, gamma: float) -> tuple[Array, Array]:
    """phi(x) = h(x) (x - c), with one h for all components or one for each; and h, or the smallest of them, for every
    x."""
    offsets = X - anchor
    squares = offsets**2 if componentwise else np.sum(offsets**2, axis=1, keepdims=True)
    h = bumps(map, squares, gamma)
    return h * offsets, h.min(axis=1)


@styled
def draw_figure1() -> Figure:
    """Nine panels: the data, then the images under four global and four component-wise maps.

    Fainter samples have a smaller h: they are far from the anchor.
    """
    from matplotlib.figure import Figure

    X, y = draw_samples(MAPPED_SAMPLES, SEED)
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


def train_family(map: str, componentwise: bool) -> MLLKMClassifier:
    """A machine of one family, with the paper's gammas, without normalisation of kernels or features."""
    from mllkm_scale import MLLKMClassifier

    machine = MLLKMClassifier(
        C=C,
        map=map,
        componentwise=componentwise,
        gammas=logspace().tolist(),
        normalize=None,
        local_bias=0.0,
        scaling="none",
        tol=1e-3,
        n_jobs=1,
    )
    return machine.fit(*draw_samples(N_SAMPLES, SEED))


@styled
def draw_figure2() -> Figure:
    """Two rows of four panels: the global maps, and below each the component-wise one."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(7.2, 4.25))
    panels = figure.subplots(2, 4, sharex=True, sharey=True)
    for letter, axes, (name, family) in zip("abcdefgh", panels.flat, FAMILIES.items(), strict=True):
        heat = _panel(axes, train_family(*family))
        axes.set_title(f"({letter}) {name}", fontsize=7.5, pad=13)
    bar = figure.colorbar(heat, ax=panels, shrink=0.75, aspect=30, pad=0.012, ticks=(-10, -3, -1, 0, 1, 3, 10))
    bar.ax.set_yticklabels(["-10", "-3", "-1", "0", "1", "3", "10"])
    bar.ax.minorticks_off()
    bar.set_label("output $f(x)$")
    handles = [
        Line2D([], [], color="black", lw=1.3, label="true boundary"),
        Line2D([], [], color="black", lw=1.3, ls=(0, (3, 1.5)), label="learned boundary"),
        Line2D([], [], ls="", marker="o", mfc="none", mec="black", mew=0.6, ms=4, label="support vector"),
        Line2D([], [], ls="", marker="s", mfc="#fee08b", mec="black", mew=0.7, ms=4.5, label="active kernel"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


def _panel(axes: Axes, machine: MLLKMClassifier) -> AxesImage:
    """Heat map, boundaries, support vectors and anchors of one machine."""
    from matplotlib.colors import AsinhNorm

    X, _ = draw_samples(N_SAMPLES, SEED)
    X_test, y_test = draw_samples(N_TEST, SEED + 1)
    ticks = np.linspace(-1.0, 1.0, PIXELS)
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    f = machine.decision_function(grid).reshape(PIXELS, PIXELS)
    heat = axes.imshow(
        f,
        extent=(-1, 1, -1, 1),
        origin="lower",
        cmap="RdBu_r",
        norm=AsinhNorm(linear_width=1.0, vmin=-LIMIT, vmax=LIMIT),
        interpolation="bilinear",
    )
    axes.contour(ticks, ticks, f, levels=[0.0], colors="black", linewidths=1.2, linestyles=[(0, (3, 1.5))])
    axes.plot(*KNOTS.T, color="black", lw=1.2)
    support = X[machine.duals_[:, 0] > 1e-6 * C]
    axes.plot(*support.T, "o", mfc="none", mec="black", mew=0.5, ms=3.0)
    axes.plot(*machine.anchors_.T, "s", mfc="#fee08b", mec="black", mew=0.6, ms=3.8)
    accuracy = 100.0 * machine.score(X_test, y_test)
    text = f"{len(machine.weights_)} kernels, {len(support)} SV, {accuracy:.1f} %"
    axes.text(0.5, 1.025, text, transform=axes.transAxes, fontsize=6.2, ha="center")
    axes.set(xlim=(-1, 1), ylim=(-1, 1), xticks=(-1, 0, 1), yticks=(-1, 0, 1), aspect="equal")
    return heat
