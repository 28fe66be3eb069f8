from __future__ import annotations

import io
import json
import math
from collections.abc import Callable

import numpy as np
import pytest

from mllkm_scale.errors import ParameterError
from mllkm_scale.run.events import Event, Finished, Phase, Round
from mllkm_scale.run.progress import (
    JsonLines,
    PlainProgress,
    Quiet,
    RichProgress,
    broadcast,
    choose_listener,
    jsonable,
)

MakeRound = Callable[..., Round]


class Terminal(io.StringIO):
    """Text that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class ClosedPipe(io.StringIO):
    """A pipe whose reader has left."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.fixture
def events(round_event: MakeRound, finished: Finished) -> list[Event]:
    return [Phase("check", "X"), round_event(number=1, gap=math.inf, left_s=None), round_event(), finished]


def test_plain_progress_is_one_line_an_event_without_control_characters(events: list[Event]) -> None:
    stream = io.StringIO()
    show = PlainProgress(stream, tol=0.01)
    for event in events:
        show(event)
    lines = stream.getvalue().splitlines()
    assert len(lines) == len(events)
    assert all(line.isprintable() for line in lines)
    assert lines[0] == "check: X"
    for part in ("round 3", "1.19 % (tolerance 1 %)", "203 of 6,693", "873", "33.5k/s", "285.0 MB of 1.0 GB"):
        assert part in lines[2]
    assert lines[2].endswith("elapsed 1:05, left 0:12")
    assert "gap -" in lines[1]
    assert lines[1].endswith("left -")
    assert lines[3].startswith("converged: gap 0.12 % (tolerance 1 %)")
    assert lines[3].endswith("1:01:01")


def test_json_lines_hold_every_field_and_null_for_what_is_not_finite(events: list[Event]) -> None:
    stream = io.StringIO()
    tell = JsonLines(stream)
    for event in events:
        tell(event)
    told = [json.loads(line, parse_constant=pytest.fail) for line in stream.getvalue().splitlines()]
    assert [fields["event"] for fields in told] == ["phase", "round", "round", "finished"]
    for event, fields in zip(events, told, strict=True):
        assert fields.keys() == {"event", *vars(event)}
    assert told[1]["gap"] is None
    assert told[2]["gap"] == 0.0119


def test_rich_progress_leaves_one_line_a_round_below_a_heading(events: list[Event]) -> None:
    stream = Terminal()
    with RichProgress(stream, tol=0.01) as show:
        for event in events:
            show(event)
    text = stream.getvalue()
    assert "203/6693" in text
    assert text.count("elapsed     left") == 1
    assert "converged" in text
    assert "\x1b[?25h" in text  # the cursor is shown again


def test_the_live_line_names_gap_tolerance_memory_and_time_left(round_event: MakeRound) -> None:
    with RichProgress(Terminal(), tol=0.01) as show:
        show(Phase("prepare"))
        assert show._status().plain.startswith("prepare ...")
        show(round_event(gap=0.5))
        show(round_event(gap=0.02))
        status = show._status().plain
    for part in ("round 4", "2 % to 1 %", "of 1.0 GB", "left 0:1"):
        assert part in status
    assert status.startswith("━━━━━━━━╌╌")  # log(0.5 / 0.02) / log(0.5 / 0.01) = 0.82


def test_a_closed_rich_progress_shows_no_more(events: list[Event]) -> None:
    stream = Terminal()
    show = RichProgress(stream)
    show(events[0])
    show.close()
    before = stream.getvalue()
    show(events[2])
    assert stream.getvalue() == before


@pytest.mark.parametrize("kind", [PlainProgress, JsonLines, RichProgress])
def test_a_reader_who_leaves_does_not_end_the_training(
    kind: Callable[[io.StringIO], PlainProgress | JsonLines | RichProgress], events: list[Event]
) -> None:
    with kind(ClosedPipe()) as show:
        for event in events:
            show(event)


@pytest.mark.parametrize(
    ("mode", "stream", "kind"),
    [
        ("auto", Terminal(), RichProgress),
        ("auto", io.StringIO(), PlainProgress),
        ("plain", Terminal(), PlainProgress),
        ("json", io.StringIO(), JsonLines),
        ("quiet", io.StringIO(), Quiet),
    ],
)
def test_the_mode_and_the_stream_choose_the_listener(
    mode: str, stream: io.StringIO, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert type(choose_listener(mode, stream)) is kind


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert type(choose_listener("auto", Terminal())) is PlainProgress


def test_json_goes_to_stdout_and_plain_text_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    choose_listener("json")(Phase("check"))
    choose_listener("plain")(Phase("check"))
    captured = capsys.readouterr()
    assert json.loads(captured.out)["name"] == "check"
    assert captured.err == "check\n"


def test_an_unknown_mode_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ParameterError, match="auto, plain, json, quiet"):
        choose_listener("loud")


def test_broadcast_tells_all_listeners_in_order_and_leaves_out_none() -> None:
    heard: list[tuple[str, Event]] = []
    tell = broadcast(lambda event: heard.append(("a", event)), None, lambda event: heard.append(("b", event)))
    tell(Phase("check"))
    assert [name for name, _ in heard] == ["a", "b"]


def test_jsonable_unfolds_numpy_values_and_dataclasses() -> None:
    value = {
        "n": np.int64(3),
        "gaps": np.array([0.5, np.nan]),
        "phase": Phase("check"),
        5: (np.float32(np.inf),),
    }
    assert jsonable(value) == {
        "n": 3,
        "gaps": [0.5, None],
        "phase": {"name": "check", "detail": ""},
        "5": [None],
    }
