"""Events, shares, rates and times in words, for plain lines, the live display and run.log."""

from __future__ import annotations

import math

from mllkm_scale.base.events import Epoch, Event, Finished, Notice, Phase, Round, Streamed, StreamEnded
from mllkm_scale.base.units import format_bytes
from mllkm_scale.printable import printable

__all__ = ["clock", "describe", "idle_percent", "percent", "rate", "seconds"]


def describe(event: Event, tol: float | None = None) -> str:
    """An event on one line, in words.

    Parameters
    ----------
    event : Event
    tol : float, optional
        The gap at which training stops, to print with the gap of a round.

    Examples
    --------
    >>> describe(Phase("prepare", "scaling standard"))
    'prepare: scaling standard'
    """
    return printable(_described(event, tol))


def _described(event: Event, tol: float | None) -> str:
    match event:
        case Phase():
            return f"{event.name}: {event.detail}" if event.detail else event.name
        case Notice():
            return " ".join(event.text.split())
        case Finished():
            return _finished(event)
        case Epoch():
            return _epoch(event)
        case Round():
            return _round(event, tol)
        case Streamed():
            return _streamed(event)
        case StreamEnded():
            return _stream_ended(event)


def percent(share: float) -> str:
    """A share (0 to 1) in percent, with three digits.

    >>> percent(0.02094), percent(math.inf)
    ('2.09 %', '-')
    """
    return f"{100 * share:.3g} %" if math.isfinite(share) else "-"


def idle_percent(event: Round) -> str:
    """The share of time in which the workers of a round were idle, in whole percent."""
    return "-" if event.workers_idle is None else f"{100 * event.workers_idle:.0f} %"


def rate(per_s: float) -> str:
    """A number per second, in thousands or millions if it is large.

    >>> rate(12.3), rate(33_465), rate(2.5e6)
    ('12', '33.5k', '2.5M')
    """
    if not math.isfinite(per_s):
        return "-"
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if per_s >= size:
            return f"{per_s / size:.1f}{unit}"
    return f"{per_s:.0f}"


def clock(duration_s: float | None) -> str:
    """A time as minutes and seconds, with hours if necessary.

    >>> clock(65.4), clock(3661), clock(None)
    ('1:05', '1:01:01', '-')
    """
    if duration_s is None or not math.isfinite(duration_s):
        return "-"
    minutes, rest = divmod(round(duration_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def seconds(duration_s: float) -> str:
    """A short time in tenths of a second, and a long one as `clock` formats it.

    >>> seconds(0.31), seconds(125.0)
    ('0.3 s', '2:05')
    """
    return f"{duration_s:.1f} s" if duration_s < 99.95 else clock(duration_s)


def _epoch(event: Epoch) -> str:
    held = "" if event.held_error is None else f"error on held-out rows {percent(event.held_error)}, "
    return (
        f"epoch {event.number} of {event.n_epochs}: loss {event.loss:.4f}, {held}"
        f"{percent(event.within)} within the margin, {rate(event.rows_per_s)} rows/s, "
        f"elapsed {clock(event.elapsed_s)}, left {clock(event.left_s)}"
    )


def _finished(event: Finished) -> str:
    why = f" ({event.reason})" if event.reason else ""
    return (
        f"{event.status}{why}: gap {percent(event.gap)} (tolerance {percent(event.tol)}), "
        f"rounds {event.n_rounds}, kernels {event.n_kernels:,}, "
        f"peak memory {format_bytes(event.peak_bytes)} of {format_bytes(event.budget_bytes)}, "
        f"elapsed {clock(event.elapsed_s)}"
    )


def _streamed(event: Streamed) -> str:
    return (
        f"samples {event.number:,}: error {percent(event.error)}, recently {percent(event.recent_error)}, "
        f"kernels {event.n_kernels:,}, kept {event.n_kept:,} ({event.n_support:,} support vectors), "
        f"{rate(event.samples_per_s)}/s, "
        f"memory {format_bytes(event.rss_bytes)} of {format_bytes(event.budget_bytes)}, "
        f"elapsed {clock(event.elapsed_s)}"
    )


def _stream_ended(event: StreamEnded) -> str:
    return (
        f"{event.status}: samples {event.n_samples:,}, error {percent(event.error)}, "
        f"recently {percent(event.recent_error)}, kernels {event.n_kernels:,}, kept {event.n_kept:,}, "
        f"{rate(event.samples_per_s)}/s, "
        f"peak memory {format_bytes(event.peak_bytes)} of {format_bytes(event.budget_bytes)}, "
        f"elapsed {clock(event.elapsed_s)}"
    )


def _round(event: Round, tol: float | None) -> str:
    against = "" if tol is None else f" (tolerance {percent(tol)})"
    lag = f"{percent(event.gap)} by the dual bound of an earlier round, " if event.lagged else ""
    return (
        f"round {event.number}: gap {current_gap(event)}{against}, {lag}"
        f"kernels {event.n_active:,} of {event.n_open:,}, support vectors {event.n_support:,}, "
        f"scan {rate(event.kernels_per_s)}/s, {_workers(event)}"
        f"memory {format_bytes(event.rss_bytes)} of {format_bytes(event.budget_bytes)}, "
        f"elapsed {clock(event.elapsed_s)}, left {clock(event.left_s)}"
    )


def current_gap(event: Round) -> str:
    """The gap that a round has proved; with a tilde if it is only likely, because not all kernels were scanned."""
    return percent(event.gap) if event.likely_gap is None else f"~{percent(event.likely_gap)}"


def _workers(event: Round) -> str:
    if not event.n_workers:
        return ""
    lost = f"lost {event.lost_workers:,}, " if event.lost_workers else ""
    return f"workers {event.n_workers:,} (idle {idle_percent(event)}), waited {seconds(event.waited_s)}, {lost}"
