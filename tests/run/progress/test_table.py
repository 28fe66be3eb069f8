from __future__ import annotations

from collections.abc import Callable

import pytest

from mllkm_scale.base.events import Round
from mllkm_scale.run.progress.live import COLUMNS, LEAST_MISSED, choose_columns, heading, row

MakeRound = Callable[..., Round]


def test_without_workers_eighty_characters_hold_all_the_rest() -> None:
    columns = choose_columns(80, workers=False)
    assert " ".join(heading(columns).split()) == "round gap kernels support scan/s memory elapsed left"


def test_with_workers_a_wide_terminal_has_all_columns(round_event: MakeRound) -> None:
    columns = choose_columns(120, workers=True)
    assert columns == COLUMNS
    line = row(columns, round_event(n_workers=2, workers_idle=0.123, waited_s=0.31))
    assert " ".join(line.split()) == "3 1.19 % 203/6693 873 33.5k 2 12 % 0.3 s 285.0 MB/1.0 GB 1:05 0:12"


def test_with_workers_eighty_characters_leave_out_what_the_live_line_has(round_event: MakeRound) -> None:
    columns = choose_columns(80, workers=True)
    assert " ".join(heading(columns).split()) == "round gap kernels scan/s workers idle waited elapsed left"
    assert len(row(columns, round_event(n_workers=2, workers_idle=1.0, waited_s=99.9))) <= 80


@pytest.mark.parametrize("workers", [False, True])
@pytest.mark.parametrize("width", [30, 40, 50, 60, 80, 100, 200])
def test_heading_and_rows_fit_the_terminal_and_stand_below_each_other(
    width: int, workers: bool, round_event: MakeRound
) -> None:
    columns = choose_columns(width, workers)
    assert len(heading(columns)) == len(row(columns, round_event())) <= width


def test_a_terminal_too_narrow_for_all_keeps_round_gap_and_kernels() -> None:
    assert heading(choose_columns(1, workers=True)).split() == ["round", "gap", "kernels"]
    assert set(LEAST_MISSED) < {column.heading for column in COLUMNS}
