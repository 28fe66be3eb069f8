from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from mllkm_scale.base.events import Event, Phase
from mllkm_scale.errors import ParameterError
from mllkm_scale.run.progress.listeners import JsonLines, PlainProgress, Progress, Quiet, broadcast, choose_listener
from mllkm_scale.run.progress.live import RichProgress


@pytest.mark.parametrize(("mode", "kind"), [("auto", RichProgress), ("plain", PlainProgress), ("json", JsonLines)])
def test_a_terminal_is_live_unless_another_mode_is_asked_for(mode: str, kind: type, terminal: io.StringIO) -> None:
    assert type(choose_listener(mode, terminal)) is kind


@pytest.mark.parametrize(("mode", "kind"), [("auto", PlainProgress), ("json", JsonLines), ("quiet", Quiet)])
def test_the_mode_chooses_the_listener_of_a_pipe(mode: str, kind: type) -> None:
    assert type(choose_listener(mode, io.StringIO())) is kind


def test_a_dumb_terminal_gets_plain_lines(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert type(choose_listener("auto", terminal)) is PlainProgress


def test_json_goes_to_stdout_and_plain_text_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    choose_listener("json")(Phase("check"))
    choose_listener("plain")(Phase("check"))
    captured = capsys.readouterr()
    assert json.loads(captured.out)["name"] == "check"
    assert captured.err == "check\n"


def test_an_unknown_mode_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ParameterError, match="auto, plain, json, quiet"):
        choose_listener("loud")


@pytest.mark.parametrize("kind", [PlainProgress, JsonLines, RichProgress, lambda stream: Quiet()])
def test_a_reader_who_leaves_does_not_end_the_training(
    kind: Callable[[io.StringIO], Progress], events: list[Event], closed_pipe: io.StringIO
) -> None:
    with kind(closed_pipe) as show:
        for event in events:
            show(event)


def test_broadcast_tells_all_listeners_in_order_and_leaves_out_none() -> None:
    heard: list[tuple[str, Event]] = []
    tell = broadcast(lambda event: heard.append(("a", event)), None, lambda event: heard.append(("b", event)))
    tell(Phase("check"))
    assert [name for name, _ in heard] == ["a", "b"]


def test_only_the_live_display_imports_rich() -> None:
    script = "import sys, mllkm_scale.run.progress.listeners, mllkm_scale.run.folder; sys.exit('rich' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
