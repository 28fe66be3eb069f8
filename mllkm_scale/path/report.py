"""report.html and path.png of a path: error against time per row and size of the model, and the table of the models."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from mllkm_scale.base.files.folders import writing
from mllkm_scale.base.units import format_bytes
from mllkm_scale.base.version import __version__
from mllkm_scale.base.wording import percent, seconds
from mllkm_scale.path.folder import PATH, read_path
from mllkm_scale.path.points import PathPoint, front, knee_point
from mllkm_scale.report.picture import embedded, render, write_page
from mllkm_scale.report.style import BLUE, GREY, ORANGE, styled
from mllkm_scale.run.folder import REPORT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["HEADINGS", "PICTURE", "is_path", "path_picture", "table_rows", "write_path_page"]

LABELLED = 12  # points that have space for their names
HEADINGS = ("model", "kernels", "error", "time of a row", "model file", "multiply-adds", "gap", "trained in", "")
PICTURE = "path.png"


@styled
def path_picture(points: Sequence[PathPoint]) -> Figure:
    """Error against microseconds per row, and against kilobytes of the model file; the knee is marked."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 3.0))
    left, right = figure.subplots(1, 2, sharey=True)
    _draw(left, points, lambda point: point.row_us)
    left.set_xlabel("microseconds per row (batch, one thread)")
    left.set_ylabel("validation error, %")
    _draw(right, points, lambda point: point.model_bytes / 1e3)
    on_device = points[0].parameter == "max_bytes"
    right.set_xlabel("kilobytes of constants in integers" if on_device else "kilobytes of the model file")
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


def table_rows(points: Sequence[PathPoint], chosen: PathPoint | None = None) -> list[tuple[str, ...]]:
    """One row per point, under `HEADINGS`; the last column marks special points."""
    edge, knee = front(points), knee_point(points)
    rows: list[tuple[str, ...]] = []
    for point in points:
        said = ["front"] if point in edge else []
        said += ["knee"] if point == knee else []
        said += ["chosen"] if point == chosen else []
        rows.append(
            (
                point.name,
                f"{point.n_kernels:,}",
                percent(point.error),
                f"{point.row_us:.3g} us",
                format_bytes(point.model_bytes),
                f"{point.multiply_adds:,}",
                percent(point.gap),
                seconds(point.elapsed_s),
                ", ".join(said),
            )
        )
    return rows


def is_path(folder: Path) -> bool:
    """Whether a folder is a path folder."""
    return (folder / PATH).exists()


def write_path_page(folder: str | os.PathLike[str], *, out: str | os.PathLike[str] | None = None) -> Path:
    """Write report.html, or the page `out`, and path.png of a path from its path.json; returns the page."""
    where = Path(folder)
    points, facts = read_path(where)
    figure = path_picture(points)
    with writing(where):
        figure.savefig(where / PICTURE, dpi=150)
    caption = "Validation error against the cost of a model; the knee is circled, and the numbers are the values."
    parameter = {"C": "C", "max_kernels": "the number of kernels", "max_bytes": "bytes on a device"}[facts["parameter"]]
    page = render(
        "path.html",
        title=f"A path of {parameter}",
        subtitle=f"{len(points)} models trained on {facts['data']['name']}, measured on {facts['validation']}",
        pictures=[embedded(figure, "Validation error against time of a row and size of the file", caption, wide=True)],
        headings=HEADINGS,
        rows=zip(table_rows(points), (_report_of(where, point) for point in points), strict=True),
        version=__version__,
    )
    return write_page(where / REPORT if out is None else Path(out), page)


def _report_of(where: Path, point: PathPoint) -> str | None:
    """The link to the report of a model, from the page of the path."""
    return f"{quote(point.name)}/{REPORT}" if (where / point.name / REPORT).exists() else None
