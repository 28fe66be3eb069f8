"""report.html and path.png of a path: error against cost, and the table of its models."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from mllkm_scale.base.access import writing
from mllkm_scale.base.version import __version__
from mllkm_scale.path.folder import PATH, read_path
from mllkm_scale.path.picture import path_picture
from mllkm_scale.path.points import PathPoint
from mllkm_scale.path.table import HEADINGS, table_rows
from mllkm_scale.report.picture import embedded, render, write_page
from mllkm_scale.run.folder import REPORT

__all__ = ["PICTURE", "is_path", "write_path_page"]

PICTURE = "path.png"


def is_path(folder: Path) -> bool:
    """Whether a folder is that of a path."""
    return (folder / PATH).exists()


def write_path_page(folder: str | os.PathLike[str], *, out: str | os.PathLike[str] | None = None) -> Path:
    """Write report.html, or the page `out`, and path.png of a path from its path.json; returns the page."""
    where = Path(folder)
    points, facts = read_path(where)
    figure = path_picture(points)
    with writing(where):
        figure.savefig(where / PICTURE, dpi=150)
    caption = "Validation error against what a model costs; the knee is circled, and the numbers are the values."
    parameter = "C" if facts["parameter"] == "C" else "the number of kernels"
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
    """The address of a model's own report, from the page of the path."""
    return f"{quote(point.name)}/{REPORT}" if (where / point.name / REPORT).exists() else None
