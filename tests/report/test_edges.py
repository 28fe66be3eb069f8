"""Pictures at the edges of what can come: one round, gaps of nothing, very many classes, gammas and reports."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from mllkm_scale.base.events import Round, Streamed
from mllkm_scale.model import Evaluation
from mllkm_scale.report.curves import stream_pictures, training_pictures
from mllkm_scale.report.measured import measured
from mllkm_scale.report.regions import class_colours

ROUND = Round(
    number=1, primal=2.0, dual=1.0, gap=0.5, n_active=3, n_open=900, n_support=10, n_working=20, n_violating_samples=0,
    n_violating_kernels=5, inner_gap=0.1, inner_steps=3, solve_s=0.1, margins_s=0.0, scan_s=0.0, kernels_per_s=1e5,
    rss_bytes=10**8, budget_bytes=10**9, elapsed_s=1.0, left_s=None,
)  # fmt: skip
REPORT = Streamed(
    number=100, error=math.nan, recent_error=math.nan, n_kernels=3, n_kept=50, n_support=10, inserted=3, dropped=0,
    forgotten=0, samples_per_s=1e3, rss_bytes=10**8, budget_bytes=10**9, elapsed_s=0.1,
)  # fmt: skip


@pytest.mark.parametrize(
    "rounds",
    [
        [replace(ROUND, gap=0.0, dual=2.0, kernels_per_s=0.0, elapsed_s=0.0)],
        [replace(ROUND, gap=math.nan, primal=math.nan, dual=math.nan)],
        [replace(ROUND, gap=math.inf, primal=math.inf, dual=-math.inf), replace(ROUND, number=2, elapsed_s=9e4)],
        [replace(ROUND, primal=1e9), replace(ROUND, number=2, likely_gap=0.3, lagged=True)],
        [replace(ROUND, number=k + 1, elapsed_s=k, gap=0.9**k + 1e-3) for k in range(3000)],
    ],
    ids=["no gap", "not finite", "infinite first", "far off", "very many"],
)
def test_a_course_of_any_kind_can_be_drawn(rounds):
    pictures = training_pictures(rounds, 0.01, in_turn=False)
    assert len(pictures) == 6
    assert all(len(picture.source) < 200_000 for picture in pictures)


def test_a_stream_whose_errors_are_not_known_yet_can_be_drawn():
    assert len(stream_pictures([REPORT])) == 4


def test_of_very_many_classes_those_with_mistakes_are_shown():
    confusion = np.diag(np.full(200, 50))
    confusion[7, 150] = confusion[150, 7] = 20
    found = measured(Evaluation(np.arange(200), confusion))
    assert found.left_out == 140
    assert {(m.truth, m.predicted) for m in found.mistakes} == {("7", "150"), ("150", "7")}
    assert {"7", "150"} <= {score.name for score in found.scores}
    assert "30 of 200 classes" in found.picture.caption
    assert len(found.picture.source) < 200_000


def test_a_model_without_mistakes_has_none_listed():
    found = measured(Evaluation(np.array(["no", "yes"]), np.array([[3, 0], [0, 4]])))
    assert found.mistakes == []
    assert [score.f1 for score in found.scores] == [100.0, 100.0]


def test_every_class_has_a_colour_of_its_own():
    for count in (2, 10, 11, 60):
        assert len(set(class_colours(count))) == count
