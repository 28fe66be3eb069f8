"""Events that the tests of the run folder and of progress tell, and streams to show them on."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mllkm_scale.base.events import Event, Finished, Notice, Phase, Round

ROUND = Round(
    number=3,
    primal=712.5,
    dual=704.0,
    gap=0.0119,
    n_active=203,
    n_open=6693,
    n_support=873,
    n_working=4000,
    n_violating_samples=2,
    n_violating_kernels=1,
    inner_gap=0.001,
    inner_steps=14,
    solve_s=0.5,
    margins_s=0.1,
    scan_s=0.2,
    kernels_per_s=33_465.0,
    rss_bytes=285_000_000,
    budget_bytes=1_000_000_000,
    elapsed_s=65.4,
    left_s=12.0,
)


@pytest.fixture
def round_event() -> Callable[..., Round]:
    """A plausible round, with fields replaced."""
    return lambda **changes: replace(ROUND, **changes)


@pytest.fixture
def finished() -> Finished:
    """The end of a training that converged."""
    fields: dict[str, Any] = {"gap": 0.0012, "tol": 0.01, "n_kernels": 203, "n_rounds": 6}
    return Finished("converged", **fields, peak_bytes=285_000_000, budget_bytes=10**9, elapsed_s=3661.0)


@pytest.fixture
def events(round_event: Callable[..., Round], finished: Finished) -> list[Event]:
    """A training from beginning to end, with an event of every kind."""
    first = round_event(number=1, gap=math.inf, left_s=None)
    return [Phase("check", "X"), first, Notice("waiting for workers"), round_event(), finished]


class Terminal(io.StringIO):
    """Text that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal of 80 columns."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return Terminal()


class ClosedPipe(io.StringIO):
    """A pipe whose reader has left."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.fixture
def closed_pipe() -> io.StringIO:
    """A stream that nothing can be written to any more."""
    return ClosedPipe()
