"""The points of a path: limits as people say them, the front, the knee, and the best within limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale.errors import ParameterError
from mllkm_scale.path.limits import Limits, parse_limits
from mllkm_scale.path.points import PathPoint, best_point, front, knee_point


def point(us: float, error: float, size: int = 1000) -> PathPoint:
    return PathPoint("C", us, 10, error, us, size, 100, 0.01, "converged", 1.0)


points = st.lists(
    st.builds(point, st.floats(0.1, 1e4), st.floats(0.0, 1.0), st.integers(100, 10**6)), min_size=1, max_size=12
)


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("20us", Limits(20.0)),
        ("20 µs", Limits(20.0)),
        ("0.5ms", Limits(500.0)),
        ("800ns", Limits(0.8)),
        ("100kB", Limits(None, 100_000)),
        ("1MiB", Limits(None, 2**20)),
        (["30us", "20us", "1MB", "2kB"], Limits(20.0, 2000)),
        (None, Limits()),
        ([], Limits()),
    ],
)
def test_limits_are_read_as_people_say_them(text, limits):
    assert parse_limits(text) == limits


@pytest.mark.parametrize("text", ["20", "fast", "us", "-3us", "20 lightyears", "0us", "", "12x kB"])
def test_what_is_no_limit_is_refused_with_examples(text):
    with pytest.raises(ParameterError, match=r"20us|positive"):
        parse_limits(text)


@given(points)
def test_no_point_is_cheaper_and_better_than_one_of_the_front(found):
    edge = front(found)
    assert edge
    for kept in edge:
        assert not any(
            p.row_us <= kept.row_us and p.error <= kept.error and (p.row_us, p.error) != (kept.row_us, kept.error)
            for p in found
        )
    for other in found:
        assert any(kept.row_us <= other.row_us and kept.error <= other.error for kept in edge)


@given(points)
def test_the_knee_is_a_point_of_the_front_below_its_chord(found):
    edge, knee = front(found), knee_point(found)
    assert knee in edge
    if knee is not edge[-1]:
        x = np.log([p.row_us for p in edge])
        chord = np.interp(np.log(knee.row_us), [x[0], x[-1]], [edge[0].error, edge[-1].error])
        assert knee.error <= chord + 1e-12


def test_the_knee_is_where_accuracy_begins_to_be_dear():
    assert knee_point([point(1, 0.4), point(2, 0.1), point(10, 0.09), point(100, 0.085)]).row_us == 2
    assert knee_point([point(1, 0.4), point(5, 0.1)]).row_us == 5  # two points have no knee between them
    assert knee_point([point(1, 0.5), point(10, 0.45), point(100, 0.1)]).row_us == 100  # nor has a front that bulges


@given(points, st.floats(0.1, 1e4), st.integers(100, 10**6))
def test_the_best_point_within_limits_is_what_brute_force_finds(found, us, size):
    within = [p for p in found if p.row_us <= us and p.model_bytes <= size]
    if not within:
        with pytest.raises(ParameterError, match="no model of the path is below"):
            best_point(found, Limits(us, size))
        return
    best = best_point(found, Limits(us, size))
    assert best in within
    assert best.error == min(p.error for p in within)


def test_a_limit_that_no_point_keeps_names_the_smallest_model():
    with pytest.raises(ParameterError, match=r"below 1 us a row and 500 B.* C=3, needs 3 us a row, 1\.0 kB"):
        best_point([point(3, 0.1), point(8, 0.1)], Limits(1.0, 500))
