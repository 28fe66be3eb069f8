"""Events of a training run or a stream, and their form as JSON.

A training run calls its listener with them, and the listener shows them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = [
    "PROGRESS_MODES",
    "Advice",
    "Epoch",
    "Event",
    "Finished",
    "Listener",
    "Notice",
    "Phase",
    "Round",
    "StreamEnded",
    "Streamed",
    "event_fields",
    "jsonable",
]

PROGRESS_MODES = ("auto", "plain", "json", "quiet")
"""How events can be shown."""


@dataclass(frozen=True)
class Phase:
    """A stage begins, such as "check", "prepare", "margins" or "train"."""

    name: str
    detail: str = ""


@dataclass(frozen=True)
class Notice:
    """A message that is not a stage, such as "waiting for workers", or that a worker was lost."""

    text: str


@dataclass(frozen=True)
class Advice(Notice):
    """A message about a very likely mistake, with the remedy; the estimator turns it into a warning."""

    about: str  # "data", "memory" or "end"


@dataclass(frozen=True)
class Epoch:
    """The descent that learns kernels has completed an epoch."""

    number: int
    n_epochs: int
    loss: float  # mean over the rows of the hinge, each before its step
    within: float  # share of rows that were within the margin of some class
    held_error: float | None  # share of the held-out rows that are predicted wrongly
    rows_per_s: float
    elapsed_s: float
    left_s: float


@dataclass(frozen=True)
class Round:
    """A round of the outer loop has ended with a certificate.

    Fields from `lagged` on have defaults, so that rounds of versions without them can be read.
    """

    number: int
    primal: float
    dual: float
    gap: float
    n_active: int  # kernels with a positive weight
    n_open: int  # candidate kernels that the certificate covers
    n_support: int  # samples with a nonzero dual
    n_working: int  # working samples, summed over the classes
    n_violating_samples: int
    n_violating_kernels: int
    inner_gap: float
    inner_steps: int
    solve_s: float
    margins_s: float
    scan_s: float
    kernels_per_s: float
    rss_bytes: int
    budget_bytes: int
    elapsed_s: float
    left_s: float | None  # estimate of the time to the tolerance
    lagged: bool = False  # the dual bound is that of an earlier round: not all kernels were scanned in this one
    waited_s: float = 0.0  # in which the master waited for scans and passes
    n_workers: int = 0  # dask workers that took part; 0: all was done in this process
    workers_idle: float | None = None  # share of the workers' time without work, 0 to 1; None without workers
    lost_workers: int = 0  # whose tasks were done again by others
    likely_gap: float | None = None  # gap as far as kernels were scanned; None: they all were
    held_error: float | None = None  # share of test rows predicted wrongly, where it was measured

    @property
    def current_gap(self) -> float:
        """The gap of the round: the proved one, or the likely one."""
        return self.gap if self.likely_gap is None else self.likely_gap


@dataclass(frozen=True)
class Finished:
    """Training has ended; `status` names the rule that stopped it."""

    status: str  # "learned", "converged", "max_rounds", "max_kernels", "time_limit", "precision" or "interrupted"
    gap: float
    tol: float
    n_kernels: int
    n_rounds: int
    peak_bytes: int
    budget_bytes: int
    elapsed_s: float
    reason: str = ""  # why the machine is as it was learned, or was weighed by MKL; nothing if none was learned


@dataclass(frozen=True)
class Streamed:
    """More samples of a stream were learned; the counts begin at the start of the stream."""

    number: int  # samples that have come
    error: float  # share of samples that were predicted wrongly before they were learned
    recent_error: float  # likewise of the latest ones
    n_kernels: int
    n_kept: int  # samples
    n_support: int  # of these, with a nonzero dual
    inserted: int  # kernels
    dropped: int  # kernels
    forgotten: int  # samples
    samples_per_s: float
    rss_bytes: int
    budget_bytes: int
    elapsed_s: float


@dataclass(frozen=True)
class StreamEnded:
    """A stream has ended or was interrupted; the gap is that of the kept samples and the active kernels."""

    status: str  # "ended"
    n_samples: int
    error: float
    recent_error: float
    n_kernels: int
    n_kept: int
    gap: float
    samples_per_s: float
    peak_bytes: int
    budget_bytes: int
    elapsed_s: float


Event = Phase | Notice | Epoch | Round | Finished | Streamed | StreamEnded

Listener = Callable[[Event], None]
"""A function that is called with one event at a time, from the thread that trains."""


def event_fields(event: Event) -> dict[str, Any]:
    """An event as a dictionary for JSON; "event" names its type.

    >>> from mllkm_scale.base.events import Notice
    >>> event_fields(Notice("waiting for workers"))
    {'event': 'notice', 'text': 'waiting for workers'}
    """
    fields: dict[str, Any] = jsonable(event)
    return {"event": type(event).__name__.lower()} | fields


def jsonable(value: Any) -> Any:
    """A value in a form that JSON can hold: dataclasses and arrays unfolded, numbers that are not finite as None.

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
