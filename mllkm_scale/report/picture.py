"""Pages of the report: pictures embedded in the page, each with an alternative text, and HTML from templates.

All texts of the user are escaped, and a page appears completely or not at all.
"""

from __future__ import annotations

import base64
import io
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mllkm_scale.report.style import styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

from pathlib import Path
from typing import Any

from mllkm_scale.base.files.whole import write_whole
from mllkm_scale.errors import ParameterError, ScratchError
from mllkm_scale.printable import printable

__all__ = [
    "CLASS_COLOURS",
    "Picture",
    "canvas",
    "count_axis",
    "embedded",
    "log_axis",
    "render",
    "require_page",
    "thinned",
    "time_axis",
    "write_page",
]

CLASS_COLOURS = (
    "#3b76af", "#ef8636", "#519e3e", "#c53a32", "#8d69b8",
    "#84584e", "#d57dbe", "#7f7f7f", "#a8a532", "#4fadbb",
)  # fmt: skip
MOST_POINTS = 300  # of a curve: more cannot be distinguished on the page
WIDTH, HEIGHT = 5.0, 3.0  # inches
MARGINS = 0.66, 0.45, 0.14, 0.12  # left, below, right, above


def render(template: str, **values: Any) -> str:
    """A page from one of the templates of this package."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("mllkm_scale.report"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)


def _shown(value: Any) -> Any:
    """A value for a template: text without control characters; HTML is unchanged."""
    return printable(value, keep="\n\t") if type(value) is str else value


def require_page(target: Path) -> None:
    """Refuse an impossible target before pictures are drawn."""
    if target.is_dir():
        raise ParameterError(f"{target} is a folder: name a file such as {target / 'report.html'}")
    if not target.parent.is_dir():
        raise ScratchError(f"{target} cannot be written: the folder {target.parent} does not exist; make it first")


def write_page(target: Path, text: str) -> Path:
    """Write a page, and return its path."""
    try:
        write_whole(target, text.encode("utf-8", "replace").decode("utf-8"))  # names of files may not be valid text
    except OSError as error:
        raise ScratchError(
            f"{target} cannot be written ({error.strerror or error}): free space, change permissions, or name another"
            " file with --out"
        ) from error
    return target


@dataclass(frozen=True)
class Picture:
    """An image in the page: its source as a data URI, its size, its alternative text, and its caption."""

    source: str
    width: int
    height: int
    alt: str
    caption: str
    wide: bool = False


def canvas(width: float = WIDTH, height: float = HEIGHT, *, fitted: bool = False) -> tuple[Figure, Axes]:
    """A new figure, without the global state of pyplot, and its axes.

    Margins have space for numbers and a label on either axis; `fitted` margins are found by drawing twice, which is
    slower.
    """
    from matplotlib.figure import Figure

    # "none", independent of the user's configuration; it is missing in the types of matplotlib
    figure = Figure(figsize=(width, height), layout="constrained" if fitted else "none")  # type: ignore[arg-type]
    if not fitted:
        left, below, right, above = MARGINS
        figure.subplots_adjust(left / width, below / height, 1 - right / width, 1 - above / height)
    axes = figure.subplots()
    axes.grid(True, linewidth=0.4, alpha=0.4)
    axes.set_axisbelow(True)
    return figure, axes


@styled
def embedded(figure: Figure, alt: str, caption: str, *, dpi: int | None = None, wide: bool = False) -> Picture:
    """The figure as SVG, or as PNG with `dpi` dots per inch; its memory is freed."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # for a name in a script that few fonts have
        if dpi is None:
            from matplotlib.backends.backend_svg import FigureCanvasSVG

            printed = FigureCanvasSVG(figure).print_svg  # savefig draws everything twice
            printed(buffer, metadata={"Date": None})  # type: ignore[no-untyped-call]
        else:
            figure.savefig(buffer, format="png", dpi=dpi)
    width, height = (round(96 * size) for size in figure.get_size_inches())
    figure.clear()
    kind = "svg+xml" if dpi is None else "png"
    source = f"data:image/{kind};base64,{base64.b64encode(buffer.getbuffer()).decode()}"
    return Picture(source, width, height, alt, caption, wide)


def thinned(count: int, most: int = MOST_POINTS) -> list[int]:
    """Indices of at most `most` points of a curve, including the first and the last one.

    >>> thinned(3), thinned(10, most=4)
    ([0, 1, 2], [0, 3, 6, 9])
    """
    if count <= most:
        return list(range(count))
    return [round(i * (count - 1) / (most - 1)) for i in range(most)]


def log_axis(axes: Axes, which: str) -> None:
    """A logarithmic axis with plain numbers, several per decade if there are few decades; call it after drawing."""
    from matplotlib.ticker import LogLocator

    axes.set(**{f"{which}scale": "log"})
    axis = getattr(axes, f"{which}axis")
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 50 * low else (1.0,)))
    _plain_numbers(axis)


def count_axis(axes: Axes, most: float) -> None:
    """A vertical axis for counts of any size, including 0."""
    from matplotlib.ticker import FixedLocator

    axes.set_yscale("symlog", linthresh=1.0)
    axes.set_ylim(0.0, 2.5 * max(1.0, most))
    axes.yaxis.set_major_locator(FixedLocator([0.0, *(10.0**k for k in range(19) if 10.0**k < 2.5 * max(1.0, most))]))
    _plain_numbers(axes.yaxis)


def _plain_numbers(axis: Axis) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:.3g}"))
    axis.set_minor_formatter(NullFormatter())


def time_axis(axes: Axes, last_s: float) -> float:
    """Label the time axis in a suitable unit; return the seconds of the unit."""
    unit, size = next(((u, s) for u, s in (("hours", 3600.0), ("minutes", 60.0)) if last_s > 3 * s), ("seconds", 1.0))
    axes.set_xlabel(unit)
    axes.set_xlim(0, 1.02 * max(last_s, 1e-3) / size)
    return size
