"""How a pass is cut into ranges."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale.cluster.task import LONGEST_S, MANY, TASK_S, Pace

works = st.floats(1.0, 1e13)


@given(st.integers(0, 3000), works, st.integers(0, 40))
def test_ranges_are_a_partition_in_order(n_units, unit_work, threads):
    ranges = Pace().cut("scan", n_units, unit_work, threads)
    assert [unit for units in ranges for unit in units] == list(range(n_units))
    assert all(len(units) for units in ranges)


@given(st.integers(1, 3000), st.floats(1e-4, 1.0), st.integers(1, 40))
def test_ranges_last_as_long_as_aimed_at_once_the_pace_is_known(n_units, unit_s, threads):
    pace = Pace()
    pace.learn("scan", work=1e9, seconds=unit_s)
    ranges = pace.cut("scan", n_units, 1e9, threads)
    longest = max(len(units) for units in ranges) * unit_s
    aimed = TASK_S if n_units * unit_s <= TASK_S * MANY * threads else LONGEST_S
    assert longest <= 1.5 * aimed + unit_s
    if n_units * unit_s > 2 * TASK_S * threads:  # enough for all
        assert longest >= 0.5 * TASK_S


@given(st.integers(100, 3000), st.floats(1e-4, 1e-2), st.integers(1, 16))
def test_every_thread_gets_as_many_ranges(n_units, unit_s, threads):
    pace = Pace()
    pace.learn("scan", work=1.0, seconds=unit_s)
    assert len(pace.cut("scan", n_units, 1.0, threads)) % threads == 0


def test_kinds_of_work_have_paces_of_their_own():
    pace = Pace()
    pace.learn("scan", work=1.0, seconds=1.0)
    pace.learn("margins", work=1.0, seconds=0.001)
    assert len(pace.cut("scan", 100, 1.0, 1)) > len(pace.cut("margins", 100, 1.0, 1)) == 1
