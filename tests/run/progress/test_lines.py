from __future__ import annotations

import io
import json

import pytest

from mllkm_scale.base.events import Event
from mllkm_scale.run.progress.listeners import JsonLines, PlainProgress


def test_plain_progress_is_one_line_an_event_without_control_characters(events: list[Event]) -> None:
    stream = io.StringIO()
    show = PlainProgress(stream, tol=0.01)
    for event in events:
        show(event)
    lines = stream.getvalue().splitlines()
    assert [line.split(":")[0] for line in lines] == ["check", "round 1", "waiting for workers", "round 3", "converged"]
    assert all(line.isprintable() for line in lines)
    assert "1.19 % (tolerance 1 %)" in lines[3]


def test_json_lines_hold_every_field_and_null_for_what_is_not_finite(events: list[Event]) -> None:
    stream = io.StringIO()
    tell = JsonLines(stream)
    for event in events:
        tell(event)
    told = [json.loads(line, parse_constant=pytest.fail) for line in stream.getvalue().splitlines()]
    assert [fields["event"] for fields in told] == ["phase", "round", "notice", "round", "finished"]
    for event, fields in zip(events, told, strict=True):
        assert fields.keys() == {"event", *vars(event)}
    assert told[1]["gap"] is None
    assert told[2]["text"] == "waiting for workers"
    assert told[3]["gap"] == 0.0119


@pytest.mark.parametrize("kind", [PlainProgress, JsonLines])
def test_closing_leaves_the_stream_open_and_writes_no_more(
    kind: type[PlainProgress | JsonLines], events: list[Event]
) -> None:
    stream = io.StringIO()
    with kind(stream) as show:
        pass
    show(events[0])
    assert stream.getvalue() == ""
