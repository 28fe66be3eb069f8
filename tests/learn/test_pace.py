"""The pace of a descent: steps alone while the time is enough, and the clock where it is not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale.learn import pace as module
from mllkm_scale.learn.pace import Pace


class FakeClock:
    """A clock that is turned by hand."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = FakeClock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def shares(pace, clock, step_s, most=100_000):
    """The share of the cycle after each step, up to its end."""
    found = []
    for steps in range(most):
        found.append(pace.done(steps))
        if found[-1] >= 1:
            return np.array(found)
        clock.now += step_s
    raise AssertionError("it never ended")


def test_without_a_limit_steps_alone_count(clock):
    np.testing.assert_allclose(shares(Pace(50), clock, 1000.0), np.arange(51) / 50)


@given(n_steps=st.integers(1, 2000), spare=st.floats(1.01, 100.0))
def test_with_enough_time_steps_alone_count(n_steps, spare):
    with pytest.MonkeyPatch.context() as patch:
        clock = FakeClock()
        patch.setattr(module, "time", clock)
        pace = Pace(n_steps, seconds=spare * n_steps * 0.1)
        np.testing.assert_array_equal(shares(pace, clock, 0.1), np.arange(n_steps + 1) / n_steps)
        assert not pace.hurried


@given(n_steps=st.integers(2000, 50_000), part=st.floats(0.1, 0.9))
def test_with_too_little_time_the_cycle_ends_with_it_and_without_a_jump(n_steps, part):
    with pytest.MonkeyPatch.context() as patch:
        clock = FakeClock()
        patch.setattr(module, "time", clock)
        seconds = part * n_steps * 0.1
        pace = Pace(n_steps, seconds)
        found = shares(pace, clock, 0.1)
        assert pace.hurried
        assert clock.now == pytest.approx(max(seconds, 0.25 * seconds + 20.0), abs=0.2)  # 200 steps at the least
        assert (np.diff(found) >= 0).all()
        assert np.diff(found).max() <= 0.01


def test_time_that_is_over_before_the_first_step_leaves_a_short_cycle(clock):
    found = shares(Pace(10_000, seconds=0.0), clock, 1.0)
    assert len(found) == 201
    assert np.diff(found) == pytest.approx(1 / 200)


def test_a_clock_that_does_not_bind_changes_no_bit(descent_of, rings):
    plain, timed = descent_of(rings, epochs=3), descent_of(rings, epochs=3)
    assert len(list(plain.epochs(None))) == len(list(timed.epochs(None, seconds=3600.0))) == 3
    assert timed.best.values.tobytes() == plain.best.values.tobytes()


def test_a_hurried_descent_ends_early_with_short_steps_and_has_nothing_left_to_resume(monkeypatch, descent_of, rings):
    monkeypatch.setattr(module, "_LEAST_STEPS", 5)
    descent = descent_of(rings, epochs=50)
    epochs = list(descent.epochs(None, seconds=0.0))
    assert descent.pace.hurried
    assert descent.state.steps == 6 < descent.pace.n_steps  # the first tells that there is no time
    assert descent.settings.step_length(descent.pace.done(6)) == 0.01
    assert epochs[-1].number < 50
    again = descent_of(rings, epochs=50)
    again.resume(descent.state)
    assert list(again.epochs(None)) == []
