"""How a training is shown: live on a terminal, as plain lines, as JSON lines, or not at all."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from mllkm_scale.base.as_json import jsonable
from mllkm_scale.base.events import PROGRESS_MODES
from mllkm_scale.errors import ParameterError
from mllkm_scale.run.progress.lines import JsonLines, PlainProgress
from mllkm_scale.run.progress.listeners import Progress, Quiet, broadcast

__all__ = ["JsonLines", "PlainProgress", "Progress", "Quiet", "broadcast", "choose_listener", "jsonable"]


def choose_listener(mode: str = "auto", stream: TextIO | None = None, *, tol: float | None = None) -> Progress:
    """The listener for a mode: "auto" is live on a terminal and plain elsewhere.

    Parameters
    ----------
    mode : {"auto", "plain", "json", "quiet"}
    stream : text stream, optional
        Default: stdout for "json", stderr for the others.
    tol : float, optional
        The gap at which training ends, to be shown beside the gap of each round.

    Examples
    --------
    >>> from mllkm_scale.base.events import Notice
    >>> with choose_listener("plain", sys.stdout) as listener:
    ...     listener(Notice("waiting for workers"))
    waiting for workers
    """
    if mode not in PROGRESS_MODES:
        raise ParameterError(f"progress={mode!r} is not known: choose one of {', '.join(PROGRESS_MODES)}")
    if mode == "quiet":
        return Quiet()
    if mode == "json":
        return JsonLines(stream)
    shown_on = stream or sys.stderr
    if mode == "auto" and shown_on.isatty() and os.environ.get("TERM") != "dumb":
        from mllkm_scale.run.progress.live import RichProgress  # only here: Rich takes time to import

        return RichProgress(shown_on, tol=tol)
    return PlainProgress(shown_on, tol=tol)
