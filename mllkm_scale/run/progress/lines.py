"""One line an event: in words, for logs and pipes, or as JSON, for programs."""

from __future__ import annotations

import json
import sys
from abc import abstractmethod
from typing import TextIO

from mllkm_scale.base.as_json import event_fields
from mllkm_scale.base.events import Epoch, Event
from mllkm_scale.base.wording import describe
from mllkm_scale.run.progress.listeners import Progress

__all__ = ["JsonLines", "PlainProgress"]


class _Lines(Progress):
    """One line of text an event."""

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
        """Write no more; the stream itself stays open."""
        self._stream = None


class PlainProgress(_Lines):
    """One line of plain text an event, without control characters, for logs and pipes (default: stderr).

    Of many epochs, about twenty are shown.

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
        """Write the event, unless it is one of many."""
        if not isinstance(event, Epoch) or _is_shown(event):
            super().__call__(event)

    def line(self, event: Event) -> str:
        """The event in words."""
        return describe(event, self._tol)


def _is_shown(epoch: Epoch) -> bool:
    """Whether it is the first or last epoch, or one of about twenty between them."""
    return epoch.number in (1, epoch.n_epochs) or epoch.number % max(1, epoch.n_epochs // 20) == 0


class JsonLines(_Lines):
    """One JSON object an event (default: stdout); numbers that are not finite become null.

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
