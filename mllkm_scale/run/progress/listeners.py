"""Listeners of a training run: silent, a line of text per event for logs and pipes, or JSON lines for programs.

`choose_listener` picks one, or the live display on a terminal.
"""

from __future__ import annotations

import json
import os
import sys
from abc import abstractmethod
from typing import TextIO

from mllkm_scale.base.closing import Closing
from mllkm_scale.base.events import PROGRESS_MODES, Epoch, Event, Listener, event_fields, jsonable
from mllkm_scale.base.wording import describe
from mllkm_scale.errors import ParameterError

__all__ = ["JsonLines", "PlainProgress", "Progress", "Quiet", "broadcast", "choose_listener", "jsonable"]


class Progress(Closing):
    """A listener that must be closed: use it in a `with` block.

    If it cannot write any more, because the pipe is closed or the disk is full, it stops writing, and training
    continues.
    """

    @abstractmethod
    def __call__(self, event: Event) -> None:
        """Show an event."""

    def close(self) -> None:
        """Release resources; further events are not shown."""


class Quiet(Progress):
    """Shows nothing."""

    def __call__(self, event: Event) -> None:
        """Do nothing."""


def broadcast(*listeners: Listener | None) -> Listener:
    """One listener that passes each event to all listeners, in order; None is left out.

    >>> from mllkm_scale.base.events import Phase
    >>> heard = []
    >>> broadcast(heard.append, None, heard.append)(Phase("check"))
    >>> [event.name for event in heard]
    ['check', 'check']
    """
    wanted = [listener for listener in listeners if listener is not None]

    def tell(event: Event) -> None:
        for listener in wanted:
            listener(event)

    return tell


class _Lines(Progress):
    """One line of text per event."""

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO | None = stream

    def __call__(self, event: Event) -> None:
        """Write the event's line."""
        if self._stream is None:
            return
        text = self.line(event) + "\n"
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._stream = None

    @abstractmethod
    def line(self, event: Event) -> str:
        """The event as text."""

    def close(self) -> None:
        """Stop writing; the stream itself stays open."""
        self._stream = None


class PlainProgress(_Lines):
    """One line of plain text per event, without control characters, for logs and pipes (default: stderr).

    If there are many epochs, about twenty are shown.

    Examples
    --------
    >>> from mllkm_scale.base.events import Phase
    >>> show = PlainProgress(sys.stdout)
    >>> show(Phase("prepare", "1,797 rows"))
    prepare: 1,797 rows
    """

    def __init__(self, stream: TextIO | None = None, *, tol: float | None = None) -> None:
        super().__init__(stream or sys.stderr)
        self._tol = tol

    def __call__(self, event: Event) -> None:
        """Write the event, unless it is an epoch that is left out."""
        if not isinstance(event, Epoch) or _is_shown(event):
            super().__call__(event)

    def line(self, event: Event) -> str:
        """The event in words."""
        return describe(event, self._tol)


def _is_shown(epoch: Epoch) -> bool:
    """Whether it is the first or last epoch, or one of about twenty between them."""
    return epoch.number in (1, epoch.n_epochs) or epoch.number % max(1, epoch.n_epochs // 20) == 0


class JsonLines(_Lines):
    """One JSON object per event (default: stdout); numbers that are not finite become null.

    Examples
    --------
    >>> from mllkm_scale.base.events import Phase
    >>> tell = JsonLines(sys.stdout)
    >>> tell(Phase("check"))
    {"event": "phase", "name": "check", "detail": ""}
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream or sys.stdout)

    def line(self, event: Event) -> str:
        """The event as JSON."""
        return json.dumps(event_fields(event), allow_nan=False)


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
        from mllkm_scale.run.progress.live import RichProgress  # imported here because Rich is slow to import

        return RichProgress(shown_on, tol=tol)
    return PlainProgress(shown_on, tol=tol)
