from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from mllkm_scale.base.events import Round
from mllkm_scale.errors import ScratchError
from mllkm_scale.run.history import History

MakeRound = Callable[..., Round]
FORMATS = Path(__file__).parents[2] / "docs" / "formats.md"
BEFORE_WORKERS = (
    '{"event": "round", "number": 1, "primal": 712.5, "dual": 704.0, "gap": 0.0119, "n_active": 203, "n_open": 6693,'
    ' "n_support": 873, "n_working": 4000, "n_violating_samples": 2, "n_violating_kernels": 1, "inner_gap": 0.001,'
    ' "inner_steps": 14, "solve_s": 0.5, "margins_s": 0.1, "scan_s": 0.2, "kernels_per_s": 33465.0,'
    ' "rss_bytes": 285000000, "budget_bytes": 1000000000, "elapsed_s": 65.4, "left_s": 12.0}'
)
"""A line of a version whose rounds ended with `left_s`."""


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    rounds = History(tmp_path / "history.jsonl", Round)
    yield rounds
    rounds.close()


def test_rounds_come_back_as_they_were_appended(history: History, round_event: MakeRound) -> None:
    rounds = (
        round_event(number=1, left_s=None),
        round_event(number=2, lagged=True, waited_s=0.3, n_workers=2, workers_idle=0.12, lost_workers=1),
    )
    assert history.read() == ()
    for event in rounds:
        history.append(event)
        assert history.read()[-1] == event  # before the file is closed
    assert history.read() == rounds


def test_a_gap_that_is_not_finite_is_null_in_the_file_and_nan_when_read(
    history: History, round_event: MakeRound
) -> None:
    history.append(round_event(gap=math.inf, workers_idle=None))
    assert json.loads(history.path.read_text(), parse_constant=pytest.fail)["gap"] is None
    assert math.isnan(history.read()[0].gap)
    assert history.read()[0].workers_idle is None


def test_a_round_of_a_version_without_workers_is_read_with_defaults(history: History, round_event: MakeRound) -> None:
    history.path.write_text(BEFORE_WORKERS + "\n")
    assert history.read() == (round_event(number=1),)
    history.append(round_event(number=2, n_workers=2))
    assert [event.n_workers for event in history.read()] == [0, 2]


def test_fields_of_a_later_version_are_not_read_but_stay_in_the_file(history: History, round_event: MakeRound) -> None:
    line = BEFORE_WORKERS.replace("}", ', "n_accelerators": 4}')
    history.path.write_text(f"{line}\n")
    history.append(round_event(number=2))
    assert history.cut(1) == (round_event(number=1),)
    assert history.path.read_text() == f"{line}\n"


@pytest.mark.parametrize("line", ['{"event": "round", "numb', "7", "[]", '"number"', "null", "{}", '{"number": 2}'])
def test_reading_ends_at_a_line_that_is_damaged(line: str, history: History) -> None:
    history.path.write_text(f"{BEFORE_WORKERS}\n{line}\n{BEFORE_WORKERS}\n")
    assert len(history.read()) == 1


def test_a_line_that_a_crash_cut_short_is_dropped(history: History, round_event: MakeRound) -> None:
    history.append(round_event(number=1))
    with history.path.open("a") as file:
        file.write('{"event": "round", "numb')
    assert len(history.cut(10)) == 1
    history.append(round_event(number=2))
    assert [event.number for event in history.read()] == [1, 2]


def test_a_history_that_cannot_be_read_names_the_folder(history: History) -> None:
    history.path.mkdir()
    with pytest.raises(ScratchError, match=f"{history.path.parent} cannot be read"):
        history.cut(1)


def test_every_field_is_documented() -> None:
    section = FORMATS.read_text(encoding="utf-8").split("## History")[1].split("\n## ")[0]
    for field in fields(Round):
        assert f"`{field.name}`" in section, field.name
