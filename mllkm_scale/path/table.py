"""The points of a path as a table: on the page, on the terminal, as text."""

from __future__ import annotations

from collections.abc import Sequence

from mllkm_scale.base.units import format_bytes
from mllkm_scale.base.wording import percent, seconds
from mllkm_scale.path.points import PathPoint, front, knee_point

__all__ = ["HEADINGS", "table_rows"]

HEADINGS = ("model", "kernels", "error", "time of a row", "model file", "multiply-adds", "gap", "trained in", "")


def table_rows(points: Sequence[PathPoint], chosen: PathPoint | None = None) -> list[tuple[str, ...]]:
    """A row a point, under `HEADINGS`; the last column says what it is."""
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
