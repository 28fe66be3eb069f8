"""What a stream tells: in words, live on a terminal, as JSON, and in stream.jsonl."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from mllkm_scale.base.events import Event, Notice, Phase, Streamed, StreamEnded
from mllkm_scale.base.wording import describe
from mllkm_scale.run.history import History
from mllkm_scale.run.progress.listeners import JsonLines, PlainProgress
from mllkm_scale.run.progress.live import RichProgress

REPORT = Streamed(
    number=12_800,
    error=0.0312,
    recent_error=0.0186,
    n_kernels=203,
    n_kept=4_096,
    n_support=873,
    inserted=400,
    dropped=197,
    forgotten=12,
    samples_per_s=2_345.6,
    rss_bytes=285_000_000,
    budget_bytes=1_000_000_000,
    elapsed_s=65.4,
)
ENDED = StreamEnded(
    status="ended",
    n_samples=20_000,
    error=0.03,
    recent_error=0.01,
    n_kernels=210,
    n_kept=5_000,
    gap=0.4,
    samples_per_s=2_000.0,
    peak_bytes=300_000_000,
    budget_bytes=1_000_000_000,
    elapsed_s=3_661.0,
)
BEFORE_THE_FIRST = replace(REPORT, number=1_024, error=math.nan, recent_error=math.nan)
EVENTS: list[Event] = [Phase("stream", "a.h5:X"), BEFORE_THE_FIRST, REPORT, Notice("a bad line was skipped"), ENDED]


def test_a_report_and_the_end_are_one_line_each() -> None:
    assert describe(REPORT) == (
        "samples 12,800: error 3.12 %, recently 1.86 %, kernels 203, kept 4,096 (873 support vectors), 2.3k/s,"
        " memory 285.0 MB of 1.0 GB, elapsed 1:05"
    )
    assert "error -, recently -, kernels" in describe(BEFORE_THE_FIRST)
    assert describe(ENDED) == (
        "ended: samples 20,000, error 3 %, recently 1 %, kernels 210, kept 5,000, 2.0k/s,"
        " peak memory 300.0 MB of 1.0 GB, elapsed 1:01:01"
    )


def test_plain_lines_are_the_words() -> None:
    stream = io.StringIO()
    with PlainProgress(stream) as show:
        for event in EVENTS:
            show(event)
    assert stream.getvalue().splitlines() == [describe(event) for event in EVENTS]


def test_json_lines_hold_every_field_and_null_for_an_error_that_is_not_known() -> None:
    stream = io.StringIO()
    with JsonLines(stream) as tell:
        for event in EVENTS:
            tell(event)
    told = [json.loads(line, parse_constant=pytest.fail) for line in stream.getvalue().splitlines()]
    assert [fields["event"] for fields in told] == ["phase", "streamed", "streamed", "notice", "streamended"]
    for event, fields in zip(EVENTS, told, strict=True):
        assert fields.keys() == {"event", *vars(event)}
    assert told[1]["error"] is None
    assert told[2]["error"] == 0.0312


@pytest.mark.parametrize("width", [40, 80])
def test_on_a_terminal_the_latest_report_is_the_live_line(
    terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    with RichProgress(terminal) as show:
        show(EVENTS[0])
        assert show._status().plain.startswith("stream ...")
        show(REPORT)
        assert show._status().plain == describe(REPORT)
        assert show._status().no_wrap
        show(replace(REPORT, number=12_928))
        assert show._status().plain.startswith("samples 12,928: ")
        show(ENDED)
    text = terminal.getvalue()
    assert "stream: a.h5:X" in text
    assert "ended: samples 20,000" in text
    assert "\x1b[?25h" in text  # the cursor is shown again


def test_reports_come_back_as_they_were_appended_and_are_cut_after_a_sample(tmp_path: Path) -> None:
    history = History(tmp_path / "stream.jsonl", Streamed)
    for event in (BEFORE_THE_FIRST, REPORT, replace(REPORT, number=13_312)):
        history.append(event)
    first, *others = history.read()
    assert math.isnan(first.error)
    assert others == [REPORT, replace(REPORT, number=13_312)]
    assert [event.number for event in history.cut(13_000)] == [1_024, 12_800]
    history.append(replace(REPORT, number=14_000))
    history.close()
    assert [event.number for event in history.read()] == [1_024, 12_800, 14_000]
