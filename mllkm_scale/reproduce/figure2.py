"""The paper's Figure 2: machines of the eight families on the synthetic data, C = 1000.

The output f(x) as a heat map, the true boundary in a continuous line and the learned one dashed, support vectors as
circles and the anchors of active kernels as squares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mllkm_scale.kernels.gammas import logspace
from mllkm_scale.report.style import styled
from mllkm_scale.reproduce.methods import FAMILIES
from mllkm_scale.reproduce.synthetic import KNOTS, draw_samples

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from mllkm_scale import MLLKMClassifier

__all__ = ["C", "draw_figure2", "train_family"]

C = 1000.0
N_SAMPLES, N_TEST, SEED = 400, 20_000, 1
PIXELS = 240
LIMIT = 10.0  # of the colours, which are linear within the margin and logarithmic beyond it


def train_family(map: str, componentwise: bool) -> MLLKMClassifier:
    """A machine of one family, with the paper's gammas; kernels and features stay as they are."""
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
