from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest

from mllkm_scale.base.events import Event, Notice, Phase, Round
from mllkm_scale.run.progress.live import RichProgress

MakeRound = Callable[..., Round]
ERASED = re.compile(r"\r(\x1b\[\d*[AK])+")
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


def shown(stream: io.StringIO) -> str:
    """The lines that were written, also those that were erased later, without colours."""
    return CONTROL.sub("", ERASED.sub("\n", stream.getvalue()))


def test_rich_progress_leaves_one_line_a_round_below_a_heading(events: list[Event], terminal: io.StringIO) -> None:
    with RichProgress(terminal, tol=0.01) as show:
        for event in events:
            show(event)
    text = terminal.getvalue()
    assert "203/6693" in text
    assert text.count("elapsed     left") == 1
    assert "workers " not in text.replace("for workers", "")
    assert "converged" in text
    assert "\x1b[?25h" in text  # the cursor is shown again


def test_a_notice_is_a_line_of_its_own(terminal: io.StringIO) -> None:
    with RichProgress(terminal) as show:
        show(Phase("train"))
        show(Notice("worker tcp://10.0.0.2:4321 was lost; its tasks are done again"))
    assert "worker tcp://10.0.0.2:4321 was lost; its tasks are done again\n" in shown(terminal)


def test_columns_about_workers_appear_with_the_first_and_stay(terminal: io.StringIO, round_event: MakeRound) -> None:
    with RichProgress(terminal) as show:
        show(round_event(number=1))
        assert "workers" not in shown(terminal)
        show(round_event(number=2, n_workers=2, workers_idle=0.123, waited_s=0.3))
        show(round_event(number=3, n_workers=0))
    headings = [line for line in shown(terminal).splitlines() if line.startswith("round ")]
    assert len(headings) == 2
    assert "workers  idle  waited" in headings[1]
    assert re.search(r"203/6693 +33\.5k +2 +12 % +0\.3 s", shown(terminal))


def test_names_are_shown_as_they_are(terminal: io.StringIO) -> None:
    with RichProgress(terminal) as show:
        show(Phase("check", "[/b]/x[bold].h5:on:X"))
        show(Notice("[red]lost"))
    assert "check: [/b]/x[bold].h5:on:X" in shown(terminal)
    assert "[red]lost" in shown(terminal)


@pytest.mark.parametrize("width", ["40", "80"])
def test_no_line_is_wider_than_the_terminal(
    width: str, terminal: io.StringIO, events: list[Event], round_event: MakeRound, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    with RichProgress(terminal, tol=0.01) as show:
        for event in [*events[:-1], round_event(n_workers=12, workers_idle=0.5), events[-1]]:
            show(event)
    assert max(map(len, shown(terminal).splitlines())) <= int(width)


def test_the_live_line_names_gap_tolerance_memory_and_time_left(terminal: io.StringIO, round_event: MakeRound) -> None:
    with RichProgress(terminal, tol=0.01) as show:
        show(Phase("prepare"))
        assert show._status().plain.startswith("prepare ...")
        show(round_event(gap=0.5))
        show(round_event(gap=0.02))
        status = show._status().plain
    for part in ("round 4", "2 % to 1 %", "of 1.0 GB", "left 0:1"):
        assert part in status
    assert status.startswith("━━━━━━━━╌╌")  # log(0.5 / 0.02) / log(0.5 / 0.01) = 0.82


def test_a_closed_rich_progress_shows_no_more(events: list[Event], terminal: io.StringIO) -> None:
    show = RichProgress(terminal)
    show(events[0])
    show.close()
    before = terminal.getvalue()
    for event in events:
        show(event)
    assert terminal.getvalue() == before
