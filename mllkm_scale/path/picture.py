"""The picture of a path: validation error against what a row, and what the model file, costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mllkm_scale.path.points import PathPoint, front, knee_point
from mllkm_scale.report.style import BLUE, GREY, ORANGE, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["path_picture"]

LABELLED = 12  # points that have room for their names


@styled
def path_picture(points: Sequence[PathPoint]) -> Figure:
    """Error against microseconds a row, and against kilobytes of the model file; the knee is marked."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 3.0))
    left, right = figure.subplots(1, 2, sharey=True)
    _draw(left, points, lambda point: point.row_us)
    left.set_xlabel("microseconds a row (batch, one thread)")
    left.set_ylabel("validation error, %")
    _draw(right, points, lambda point: point.model_bytes / 1e3)
    right.set_xlabel("kilobytes of the model file")
    left.legend(loc="best")
    return figure


def _draw(axes: Axes, points: Sequence[PathPoint], cost: Callable[[PathPoint], float]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    edge, knee = front(points), knee_point(points)
    ordered = sorted(points, key=cost)
    axes.plot([cost(p) for p in ordered], [100 * p.error for p in ordered], color=GREY, linewidth=0.5, zorder=1)
    others = [point for point in points if point not in edge]
    axes.scatter([cost(p) for p in others], [100 * p.error for p in others], s=14, color=GREY, label="dearer and worse")
    axes.scatter([cost(p) for p in edge], [100 * p.error for p in edge], s=20, color=BLUE, zorder=2, label="front")
    axes.scatter(
        [cost(knee)], [100 * knee.error], s=90, facecolors="none", edgecolors=ORANGE, linewidths=1.4, label="knee"
    )
    axes.set_xscale("log")
    spread = max(cost(p) for p in points) / min(cost(p) for p in points)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if spread < 100 else (1.0,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.margins(x=0.12, y=0.15)
    axes.grid(True, linewidth=0.3, alpha=0.5)
    if len(points) <= LABELLED:
        for point in points:
            place = (cost(point), 100 * point.error)
            axes.annotate(f"{point.value:g}", place, xytext=(3, 4), textcoords="offset points", fontsize=6, color=GREY)
