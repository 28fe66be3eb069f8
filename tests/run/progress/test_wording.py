from __future__ import annotations

import math
from collections.abc import Callable

from mllkm_scale.base.events import Finished, Notice, Phase, Round
from mllkm_scale.base.wording import describe, seconds

MakeRound = Callable[..., Round]


def test_a_round_in_this_process_says_nothing_of_workers(round_event: MakeRound) -> None:
    assert describe(round_event(), 0.01) == (
        "round 3: gap 1.19 % (tolerance 1 %), kernels 203 of 6,693, support vectors 873, scan 33.5k/s,"
        " memory 285.0 MB of 1.0 GB, elapsed 1:05, left 0:12"
    )


def test_a_round_with_workers_says_how_many_how_idle_and_how_long_the_master_waited(round_event: MakeRound) -> None:
    event = round_event(n_workers=2, workers_idle=0.123, waited_s=0.31)
    assert "scan 33.5k/s, workers 2 (idle 12 %), waited 0.3 s, memory" in describe(event)


def test_tasks_done_again_are_told_where_there_were_any(round_event: MakeRound) -> None:
    event = round_event(n_workers=1, workers_idle=None, lost_workers=3)
    assert "workers 1 (idle -), waited 0.0 s, lost 3, memory" in describe(event)


def test_a_gap_that_is_only_likely_says_so(round_event: MakeRound) -> None:
    event = round_event(gap=0.5, lagged=True, likely_gap=0.0119)
    assert "gap ~1.19 % (tolerance 1 %), 50 % by the dual bound of an earlier round, kernels" in describe(event, 0.01)


def test_what_is_not_known_is_a_dash(round_event: MakeRound) -> None:
    text = describe(round_event(gap=math.inf, left_s=None, kernels_per_s=math.nan))
    assert "gap -," in text
    assert "scan -/s," in text
    assert text.endswith("left -")


def test_a_phase_has_a_detail_or_none() -> None:
    assert describe(Phase("check", "X")) == "check: X"
    assert describe(Phase("check")) == "check"


def test_a_notice_is_one_line_also_where_its_text_has_several() -> None:
    assert describe(Notice("worker tcp://a:1 was lost;\n  its tasks are done again\n")) == (
        "worker tcp://a:1 was lost; its tasks are done again"
    )


def test_the_end_names_its_rule_and_the_gap(finished: Finished) -> None:
    assert describe(finished) == (
        "converged: gap 0.12 % (tolerance 1 %), rounds 6, kernels 203, peak memory 285.0 MB of 1.0 GB, elapsed 1:01:01"
    )


def test_seconds_turn_to_minutes_where_tenths_do_not_matter() -> None:
    assert [seconds(value) for value in (0.0, 99.94, 99.96, math.nan)] == ["0.0 s", "99.9 s", "1:40", "-"]
