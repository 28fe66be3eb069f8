"""The samples that are kept: which fade, which leave, and that their rows stay together."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale.online.kept import BEYOND, KeptSamples, distinct_runs, latest_of_each

FEW = settings(max_examples=50)


def kept_of(ids, since, n_outputs=2):
    """Samples whose row, code and margin can be told from their id; no dual is zero."""
    ids = np.asarray(ids, np.int64)
    kept = KeptSamples(3, n_outputs)
    kept.append(
        rows=ids[:, None] + np.array([0.0, 0.25, 0.5]),
        codes=ids % 5,
        duals=np.tile(ids[:, None] + 1.0, (1, n_outputs)),
        margins=ids / 8.0,
        ids=ids,
        since=np.asarray(since, np.int64),
    )
    return kept


def assert_together(kept, ids):
    assert kept.ids.tolist() == list(ids)
    assert kept.rows.tolist() == [[id, id + 0.25, id + 0.5] for id in ids]
    assert kept.codes.tolist() == [id % 5 for id in ids]
    assert kept.duals[:, 0].tolist() == [id + 1 for id in ids]
    assert kept.margins.tolist() == [id / 8 for id in ids]


@FEW
@given(
    since=st.lists(st.integers(0, 60), unique=True, min_size=1, max_size=30),
    max_samples=st.integers(1, 40),
    window=st.none() | st.integers(1, 80),
    later=st.integers(1, 40),
)
def test_samples_fade_by_the_rule(since, max_samples, window, later):
    now = max(since) + later
    boxes = kept_of(np.arange(len(since)), since).boxes(3.0, now, max_samples, window)
    for mine, box in zip(since, boxes, strict=True):
        younger = sum(other > mine for other in since)
        shares = [1.0, 4.0 * (1.0 - younger / max_samples)]
        if window is not None:
            shares.append(4.0 * (1.0 - (now - mine) / window))
        np.testing.assert_allclose(box, 3.0 * max(0.0, min(shares)), atol=1e-12)
    assert np.count_nonzero(boxes) <= max_samples


def test_nothing_fades_while_a_quarter_of_the_room_is_free():
    assert kept_of(np.arange(75), np.arange(75)).boxes(2.0, 75, 100, None).tolist() == [2.0] * 75
    assert np.flatnonzero(kept_of(np.arange(77), np.arange(77)).boxes(2.0, 77, 100, None) < 2.0).tolist() == [0]


@FEW
@given(
    ids=st.lists(st.integers(0, 50), unique=True, max_size=20),
    wanted=st.lists(st.integers(0, 50), min_size=1, max_size=20),
)
def test_samples_are_found_by_their_ids(ids, wanted):
    found = kept_of(ids, np.arange(len(ids))).find(np.array(wanted))
    assert found.tolist() == [ids.index(id) if id in ids else -1 for id in wanted]


@FEW
@given(data=st.data(), sizes=st.lists(st.integers(0, 400), min_size=1, max_size=6))
def test_what_belongs_to_a_sample_stays_together(data, sizes):
    kept, ids, n = kept_of([], []), [], 0
    for size in sizes:
        new = kept_of(np.arange(n, n + size), np.arange(n, n + size))
        kept.append(**new.to_arrays())
        ids, n = [*ids, *range(n, n + size)], n + size
        every = data.draw(st.integers(1, 3))
        kept.retain(np.arange(len(ids))[::every])
        ids = ids[::every]
    assert len(kept) == len(ids)
    assert_together(kept, ids)
    assert_together(KeptSamples.from_arrays(kept.to_arrays()), ids)


def test_those_without_box_leave_and_those_without_duals_that_are_beyond_the_margin():
    kept = kept_of(np.arange(5), np.arange(5))
    kept.duals[:] = [[0, 0], [0, 0], [0, 1], [0, 0], [1, 0]]
    kept.margins[:] = [BEYOND + 0.1, BEYOND - 0.1, BEYOND + 0.1, 0.0, 0.0]
    assert kept.leaving(np.array([1.0, 1.0, 1.0, 0.0, 0.0])).tolist() == [0, 3, 4]


@FEW
@given(st.lists(st.integers(0, 8), min_size=1, max_size=30))
def test_samples_that_come_twice_in_one_block_are_told_apart(ids):
    runs, latest = distinct_runs(np.array(ids)), latest_of_each(np.array(ids))
    assert [id for run in runs for id in ids[run]] == ids
    assert all(len(set(ids[run])) == len(ids[run]) for run in runs)
    assert all(ids[after.start] in ids[run] for run, after in pairwise(runs))
    assert latest.tolist() == [at for at, id in enumerate(ids) if id not in ids[at + 1 :]]
