"""The live display on a terminal: a table with a line per round, and a line about the current work.

The table has as many columns as fit on the terminal.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from mllkm_scale.base.events import Epoch, Event, Finished, Notice, Phase, Round, Streamed, StreamEnded
from mllkm_scale.base.memory import rss_bytes
from mllkm_scale.base.units import format_bytes
from mllkm_scale.base.wording import clock, current_gap, describe, idle_percent, percent, rate, seconds
from mllkm_scale.run.progress.listeners import Progress

__all__ = ["Column", "RichProgress", "choose_columns", "heading", "row"]

LEAST_MISSED = ("memory", "support", "waited", "left", "elapsed", "idle", "workers", "scan/s")
REFRESH_PER_S = 2
BAR_WIDTH = 10


@dataclass(frozen=True)
class Column:
    """A heading, a width in characters, and the text for a round."""

    heading: str
    width: int
    cell: Callable[[Round], str]
    of_workers: bool = False


COLUMNS = (
    Column("round", 5, lambda event: str(event.number)),
    Column("gap", 8, current_gap),
    Column("kernels", 14, lambda event: f"{event.n_active}/{event.n_open}"),
    Column("support", 8, lambda event: str(event.n_support)),
    Column("scan/s", 7, lambda event: rate(event.kernels_per_s)),
    Column("workers", 7, lambda event: str(event.n_workers), of_workers=True),
    Column("idle", 5, idle_percent, of_workers=True),
    Column("waited", 7, lambda event: seconds(event.waited_s), of_workers=True),
    Column("memory", 15, lambda event: f"{format_bytes(event.rss_bytes)}/{format_bytes(event.budget_bytes)}"),
    Column("elapsed", 8, lambda event: clock(event.elapsed_s)),
    Column("left", 8, lambda event: clock(event.left_s)),
)
# The live line below the table also has memory and times.


def choose_columns(width: int, workers: bool) -> tuple[Column, ...]:
    """The columns for a terminal of this width, with or without those about workers.

    >>> [column.heading for column in choose_columns(50, workers=False)]
    ['round', 'gap', 'kernels', 'scan/s', 'elapsed']
    """
    chosen = [column for column in COLUMNS if workers or not column.of_workers]
    for name in LEAST_MISSED:
        if len(heading(chosen)) <= width:
            break
        chosen = [column for column in chosen if column.heading != name]
    return tuple(chosen)


def heading(columns: Sequence[Column]) -> str:
    """The first line of the table."""
    return " ".join(column.heading.rjust(column.width) for column in columns)


def row(columns: Sequence[Column], event: Round) -> str:
    """The line of a round."""
    return " ".join(column.cell(event).rjust(column.width) for column in columns)


class SilentAfterBrokenPipe(Console):
    """A console that ignores a closed pipe; that of Rich ends the program."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


class RichProgress(Progress):
    """A table with a line per round, and a live line about the current work (default: stderr)."""

    def __init__(self, stream: TextIO | None = None, *, tol: float | None = None) -> None:
        # Names of files and workers are shown literally: "[a]" is no markup, and ":on:" no emoji.
        self._console = SilentAfterBrokenPipe(file=stream or sys.stderr, highlight=False, markup=False, emoji=False)
        self._tol = tol
        self._live: Live | None = None
        self._silent = False
        self._started_s = time.monotonic()
        self._phase = "starting"
        self._columns: tuple[Column, ...] = ()
        self._workers_seen = False
        self._first_gap = math.inf
        self._epoch: Epoch | None = None
        self._round: Round | None = None
        self._streamed: Streamed | None = None
        self._round_ended_s = self._started_s

    def __call__(self, event: Event) -> None:
        """Print the event's line above the live one."""
        if self._silent:
            return
        try:
            match event:
                case Finished() | StreamEnded():
                    self._stop()
                    self._console.print(describe(event), style="bold")
                case Notice():
                    self._console.print(describe(event), style="yellow")
                case Phase():
                    self._start()
                    self._phase = event.name
                    self._console.print(describe(event), style="dim")
                case Epoch():
                    self._start()
                    self._epoch = event
                case Round():
                    self._start()
                    self._add_row(event)
                case Streamed():
                    self._start()
                    self._phase, self._streamed = "stream", event
        except (OSError, ValueError):
            self.close()

    def close(self) -> None:
        """Remove the live line and stop; the lines of the rounds stay."""
        self._silent = True
        with suppress(OSError, ValueError):
            self._stop()

    def _add_row(self, event: Round) -> None:
        if self._round is None:
            self._first_gap = event.current_gap
        self._round, self._round_ended_s = event, time.monotonic()
        self._workers_seen = self._workers_seen or event.n_workers > 0
        columns = choose_columns(self._console.width, self._workers_seen)
        if columns != self._columns:  # at the start, when workers join, and when the terminal is resized
            self._columns = columns
            self._console.print(heading(columns), style="bold", no_wrap=True, crop=True)
        self._console.print(row(columns, event), no_wrap=True, crop=True)
        if self._live is not None:
            self._live.refresh()

    def _start(self) -> None:
        if self._live is None:
            self._live = Live(
                get_renderable=self._status,
                console=self._console,
                refresh_per_second=REFRESH_PER_S,
                transient=True,
                # Results are printed to stdout and must not move to stderr.
                redirect_stdout=False,
            )
            self._live.start()

    def _stop(self) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            live.stop()

    def _status(self) -> Text:
        now_s = time.monotonic()
        elapsed = clock(now_s - self._started_s)
        last = self._round
        if self._streamed is not None:
            return Text(describe(self._streamed), no_wrap=True, overflow="ellipsis")
        if last is None and self._epoch is not None and self._phase == "learn":
            return Text(describe(self._epoch), no_wrap=True, overflow="ellipsis")
        if last is None:
            memory = format_bytes(rss_bytes())
            return Text(f"{self._phase} ...  {memory}, {elapsed}", no_wrap=True, overflow="ellipsis")
        left_s = None if last.left_s is None else max(0.0, last.left_s - (now_s - self._round_ended_s))
        against = "" if self._tol is None else f" to {percent(self._tol)}"
        signs = "━╌" if self._console.encoding.startswith("utf") else "#-"
        return Text.assemble(
            (_bar(last.current_gap, self._first_gap, self._tol, signs), "cyan"),
            f" round {last.number + 1}: {current_gap(last)}{against},"
            f" {format_bytes(rss_bytes())} of {format_bytes(last.budget_bytes)},"
            f" {elapsed}, left {clock(left_s)}",
            no_wrap=True,
            overflow="ellipsis",
        )


def _bar(gap: float, first: float, tol: float | None, signs: str) -> str:
    """Progress of the gap from the first round to the tolerance, on a logarithmic scale."""
    if tol is None or not (math.isfinite(gap) and math.isfinite(first)):
        done = 0.0
    elif gap <= tol or first <= tol:
        done = 1.0
    else:
        done = min(1.0, max(0.0, math.log(first / gap) / math.log(first / tol)))
    full = round(done * BAR_WIDTH)
    return signs[0] * full + signs[1] * (BAR_WIDTH - full)
