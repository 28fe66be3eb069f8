"""Style of the pictures: sizes and colours that print well, without a display."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["BLUE", "GREY", "ORANGE", "save", "styled"]

BLUE, ORANGE, GREY = "#2166ac", "#b2182b", "#5a5a5a"
_RC: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8.0,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.fontsize": 7.0,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "figure.constrained_layout.use": True,
    "svg.hashsalt": "mllkm",  # equal pictures have equal bytes
    "svg.fonttype": "none",
}
_settings = threading.RLock()  # matplotlib's settings are those of the process
_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")


def styled(draw: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
    """Decorator: draw in the style of this package, independent of the user's settings."""

    @wraps(draw)
    def drawing(*args: _Given.args, **kwargs: _Given.kwargs) -> _Made:
        from matplotlib import style

        with _settings, style.context(["default", _RC]):
            return draw(*args, **kwargs)

    return drawing


@styled
def save(figure: Figure, path: Path) -> list[Path]:
    """Write a picture as PNG and SVG; `path` has no suffix."""
    from mllkm_scale.base.files.folders import writing

    paths = [path.with_name(f"{path.name}.{kind}") for kind in ("png", "svg")]
    with writing(path.parent):
        for target in paths:
            figure.savefig(target, dpi=200, metadata={"Date": None} if target.suffix == ".svg" else None)
    return paths
