"""How the events of a training are shown: live on a terminal, as plain lines, or as JSON lines.

A listener is a callable that takes an event. One that cannot write any more, because the reader of its pipe
has left or the disk is full, falls silent: progress never ends a training.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from mllkm_scale.errors import ParameterError
from mllkm_scale.run.events import Event, Finished, Listener, Phase, Round
from mllkm_scale.run.memory import rss_bytes
from mllkm_scale.units import format_bytes

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

__all__ = [
    "MODES",
    "JsonLines",
    "PlainProgress",
    "Progress",
    "Quiet",
    "RichProgress",
    "broadcast",
    "choose_listener",
    "describe",
    "event_fields",
    "jsonable",
]

MODES = ("auto", "plain", "json", "quiet")
REFRESH_PER_S = 2
BAR_WIDTH = 10


class Progress(ABC):
    """A listener that may hold something open: use it in a `with` block, so that it is closed at the end."""

    @abstractmethod
    def __call__(self, event: Event) -> None:
        """Show an event."""

    def close(self) -> None:  # noqa: B027 - a listener that holds nothing open has nothing to do
        """Free what is open; further events are not shown."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Quiet(Progress):
    """Shows nothing."""

    def __call__(self, event: Event) -> None:
        """Do nothing."""


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

    Examples
    --------
    >>> show = PlainProgress(sys.stdout)
    >>> show(Phase("prepare", "1,797 rows"))
    prepare: 1,797 rows
    """

    def __init__(self, stream: TextIO | None = None, *, tol: float | None = None) -> None:
        super().__init__(stream or sys.stderr)
        self._tol = tol

    def line(self, event: Event) -> str:
        """The event in words."""
        return describe(event, self._tol)


class JsonLines(_Lines):
    """One JSON object an event (default: stdout); numbers that are not finite become null.

    Examples
    --------
    >>> tell = JsonLines(sys.stdout)
    >>> tell(Phase("check"))
    {"event": "phase", "name": "check", "detail": ""}
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream or sys.stdout)

    def line(self, event: Event) -> str:
        """The event as JSON."""
        return json.dumps(event_fields(event), allow_nan=False)


class RichProgress(Progress):
    """A table that grows by one line a round, and a live line of what is under way (default: stderr)."""

    def __init__(self, stream: TextIO | None = None, *, tol: float | None = None) -> None:
        from rich.console import Console

        class SilentAfterBrokenPipe(Console):
            """Rich's own console ends the program."""

            def on_broken_pipe(self) -> None:
                self.quiet = True

        self._console = SilentAfterBrokenPipe(file=stream or sys.stderr, highlight=False)
        self._tol = tol
        self._live: Live | None = None
        self._silent = False
        self._started_s = time.monotonic()
        self._phase = "starting"
        self._first_gap = math.inf
        self._round: Round | None = None
        self._round_ended_s = self._started_s

    def __call__(self, event: Event) -> None:
        """Print the event's line above the live one."""
        if self._silent:
            return
        try:
            if isinstance(event, Finished):
                self._stop()
                self._console.print(describe(event), style="bold")
                return
            self._start()
            if isinstance(event, Phase):
                self._phase = event.name
                self._console.print(describe(event), style="dim")
            else:
                self._add_row(event)
        except (OSError, ValueError):
            self.close()

    def close(self) -> None:
        """Take the live line away and show no more; the lines of the rounds stay."""
        self._silent = True
        with suppress(OSError, ValueError):
            self._stop()

    def _add_row(self, event: Round) -> None:
        if self._round is None:
            self._first_gap = event.gap
            self._console.print(_heading(), style="bold", no_wrap=True, crop=True)
        self._round, self._round_ended_s = event, time.monotonic()
        self._console.print(_row(event), no_wrap=True, crop=True)
        if self._live is not None:
            self._live.refresh()

    def _start(self) -> None:
        from rich.live import Live

        if self._live is None:
            self._live = Live(
                get_renderable=self._status,
                console=self._console,
                refresh_per_second=REFRESH_PER_S,
                transient=True,
                # What is printed to stdout is a result and must not move to stderr.
                redirect_stdout=False,
            )
            self._live.start()

    def _stop(self) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            live.stop()

    def _status(self) -> Text:
        from rich.text import Text

        now_s = time.monotonic()
        elapsed = _clock(now_s - self._started_s)
        last = self._round
        if last is None:
            memory = format_bytes(rss_bytes())
            return Text(f"{self._phase} ...  {memory}, {elapsed}", no_wrap=True, overflow="ellipsis")
        left_s = None if last.left_s is None else max(0.0, last.left_s - (now_s - self._round_ended_s))
        against = "" if self._tol is None else f" to {_percent(self._tol)}"
        signs = "━╌" if self._console.encoding.startswith("utf") else "#-"
        return Text.assemble(
            (_bar(last.gap, self._first_gap, self._tol, signs), "cyan"),
            f" round {last.number + 1}: {_percent(last.gap)}{against},"
            f" {format_bytes(rss_bytes())} of {format_bytes(last.budget_bytes)},"
            f" {elapsed}, left {_clock(left_s)}",
            no_wrap=True,
            overflow="ellipsis",
        )


def choose_listener(mode: str = "auto", stream: TextIO | None = None, *, tol: float | None = None) -> Progress:
    """The listener for a mode: "auto" is live on a terminal and plain elsewhere.

    Parameters
    ----------
    mode : {"auto", "plain", "json", "quiet"}
    stream : text stream, optional
        Default: stdout for "json", stderr for the others.
    tol : float, optional
        The gap at which training ends, to be shown beside the gap of each round.
    """
    if mode not in MODES:
        raise ParameterError(f"progress={mode!r} is not known: choose one of {', '.join(MODES)}")
    if mode == "quiet":
        return Quiet()
    if mode == "json":
        return JsonLines(stream)
    shown_on = stream or sys.stderr
    if mode == "auto" and shown_on.isatty() and os.environ.get("TERM") != "dumb":
        return RichProgress(shown_on, tol=tol)
    return PlainProgress(shown_on, tol=tol)


def broadcast(*listeners: Listener | None) -> Listener:
    """One listener that passes each event on to all, in order; None is left out.

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


def describe(event: Event, tol: float | None = None) -> str:
    """An event on one line, in words."""
    if isinstance(event, Phase):
        return f"{event.name}: {event.detail}" if event.detail else event.name
    if isinstance(event, Finished):
        return (
            f"{event.status}: gap {_percent(event.gap)} (tolerance {_percent(event.tol)}), "
            f"rounds {event.n_rounds}, kernels {event.n_kernels:,}, "
            f"peak memory {format_bytes(event.peak_bytes)} of {format_bytes(event.budget_bytes)}, "
            f"elapsed {_clock(event.elapsed_s)}"
        )
    against = "" if tol is None else f" (tolerance {_percent(tol)})"
    return (
        f"round {event.number}: gap {_percent(event.gap)}{against}, "
        f"kernels {event.n_active:,} of {event.n_open:,}, support vectors {event.n_support:,}, "
        f"scan {_rate(event.kernels_per_s)}/s, "
        f"memory {format_bytes(event.rss_bytes)} of {format_bytes(event.budget_bytes)}, "
        f"elapsed {_clock(event.elapsed_s)}, left {_clock(event.left_s)}"
    )


def event_fields(event: Event) -> dict[str, Any]:
    """An event as a dictionary for JSON; "event" says which."""
    fields: dict[str, Any] = jsonable(event)
    return {"event": type(event).__name__.lower()} | fields


def jsonable(value: Any) -> Any:
    """A value as JSON can hold it: dataclasses and arrays unfolded, numbers that are not finite as None.

    >>> jsonable({"gap": math.inf, "shape": (2, 3)})
    {'gap': None, 'shape': [2, 3]}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: jsonable(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy's arrays and scalars
        return jsonable(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)


COLUMNS = (5, 8, 14, 8, 7, 15, 8, 8)


def _aligned(*cells: str) -> str:
    return " ".join(cell.rjust(width) for cell, width in zip(cells, COLUMNS, strict=True))


def _heading() -> str:
    return _aligned("round", "gap", "kernels", "support", "scan/s", "memory", "elapsed", "left")


def _row(event: Round) -> str:
    return _aligned(
        str(event.number),
        _percent(event.gap),
        f"{event.n_active}/{event.n_open}",
        str(event.n_support),
        _rate(event.kernels_per_s),
        f"{format_bytes(event.rss_bytes)}/{format_bytes(event.budget_bytes)}",
        _clock(event.elapsed_s),
        _clock(event.left_s),
    )


def _bar(gap: float, first: float, tol: float | None, signs: str) -> str:
    """How far the gap has come from the first round's to the tolerance, on a logarithmic scale."""
    if tol is None or not (math.isfinite(gap) and math.isfinite(first)):
        done = 0.0
    elif gap <= tol or first <= tol:
        done = 1.0
    else:
        done = min(1.0, max(0.0, math.log(first / gap) / math.log(first / tol)))
    full = round(done * BAR_WIDTH)
    return signs[0] * full + signs[1] * (BAR_WIDTH - full)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %" if math.isfinite(share) else "-"


def _rate(per_s: float) -> str:
    if not math.isfinite(per_s):
        return "-"
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if per_s >= size:
            return f"{per_s / size:.1f}{unit}"
    return f"{per_s:.0f}"


def _clock(seconds: float | None) -> str:
    if seconds is None or not math.isfinite(seconds):
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
