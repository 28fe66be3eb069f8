"""Batches of a descent: every used row once an epoch, in windows of bounded size, and from any place on."""

from __future__ import annotations

import threading

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale.data import Dataset
from mllkm_scale.learn import batches as module
from mllkm_scale.learn import proposals
from mllkm_scale.learn.batches import Batches, Place, Units, window_rows

PLAIN = Units(np.zeros(3), 1.0)


def make(n=100, chunk_rows=8, window_chunks=3, batch_rows=5, used=None, seed=0, units=PLAIN, dtype=np.float32):
    """Batches whose rows tell their number, in windows of so many chunks."""
    X = np.arange(n, dtype=dtype)[:, None] + np.array([0.0, 0.25, 0.5], dtype)
    signs = np.where(np.arange(n)[:, None] % 2, 1.0, -1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "WINDOW_BYTES", 4 * 3 * chunk_rows * window_chunks)
        used = np.ones(n, dtype=bool) if used is None else used
        return Batches(Dataset.from_arrays(X, chunk_rows=chunk_rows), signs, used, batch_rows, units, seed)


def epoch_of(batches, place):
    """Place after, row numbers and signs of each batch."""
    return [
        (following, X[:, 0].astype(int).tolist(), signs[:, 0].tolist()) for following, X, signs in batches.after(place)
    ]


sizes = st.fixed_dictionaries(
    {
        "n": st.integers(2, 120),
        "chunk_rows": st.integers(1, 40),
        "window_chunks": st.integers(1, 6),
        "batch_rows": st.integers(1, 33),
        "seed": st.integers(0, 5),
    }
)


@given(sizes, st.integers(0, 3), st.data())
def test_an_epoch_has_every_used_row_once_with_its_sign_and_no_other(sizes, epoch, data):
    used = np.array(data.draw(st.lists(st.booleans(), min_size=sizes["n"], max_size=sizes["n"])))
    batches = make(**sizes, used=used)
    found = epoch_of(batches, Place(epoch))
    numbers = [number for _, rows, _ in found for number in rows]
    assert sorted(numbers) == np.flatnonzero(used).tolist()
    assert [sign for _, _, signs in found for sign in signs] == [1.0 if number % 2 else -1.0 for number in numbers]
    assert all(1 <= len(rows) <= batches.most_rows for _, rows, _ in found)


@settings(max_examples=30)
@given(sizes)
def test_the_batches_from_any_place_on_are_those_that_were_left(sizes):
    whole = epoch_of(make(**sizes), Place(2))
    for at in range(len(whole)):
        assert epoch_of(make(**sizes), whole[at][0]) == whole[at + 1 :]


@given(sizes)
def test_a_window_is_bounded_and_has_whole_chunks(sizes):
    batches = make(**sizes)
    seen = {}
    before = Place(0)
    for following, rows, _ in epoch_of(batches, before):
        window = before.window if before.epoch == following.epoch else 0
        seen.setdefault(window, []).extend(rows)
        before = following
    height = sizes["chunk_rows"]
    for rows in seen.values():
        chunks = {row // height for row in rows}
        assert len(rows) == sum(min(height, sizes["n"] - chunk * height) for chunk in chunks)
        assert len(chunks) <= batches.chunks_at_once <= max(1, sizes["window_chunks"])
        assert max(len(window.rows) for window in batches._windows) <= batches.chunks_at_once * height


def test_chunks_without_used_rows_are_not_read():
    used = np.ones(100, dtype=bool)
    used[16:80] = False
    batches = make(n=100, chunk_rows=8, window_chunks=1, used=used)
    batches.source = Watched(batches.source)
    batches.source.leave.release(100)
    with batches:
        assert sorted(number for _, rows, _ in epoch_of(batches, Place(0)) for number in rows) == [
            *range(16),
            *range(80, 100),
        ]
    assert set(batches.source.reads) == {0, 1, 10, 11, 12}


@pytest.mark.parametrize("n_rows", [7, 10, 40, 103])
def test_of_very_many_rows_some_chunks_are_learned(monkeypatch, n_rows):
    monkeypatch.setattr(proposals, "MOST_LEARNED", 40)
    used = proposals.rows_to_learn(n_rows, 10, 0)
    assert np.count_nonzero(used) == n_rows if n_rows <= 40 else 30 < np.count_nonzero(used) <= 40
    starts = range(0, n_rows, 10)
    assert all(used[start : start + 10].all() or not used[start : start + 10].any() for start in starts)
    if n_rows > 40:
        assert (used != proposals.rows_to_learn(n_rows, 10, 1)).any()


def test_window_rows_are_whole_chunks_within_the_bytes_and_one_chunk_at_least(monkeypatch):
    monkeypatch.setattr(module, "WINDOW_BYTES", 4 * 10 * 100)
    assert window_rows(10**6, 30, 10) == 90
    assert window_rows(10**6, 300, 10) == 300
    assert window_rows(50, 30, 10) == 50


def test_epochs_and_seeds_differ_and_the_same_ones_do_not():
    first = epoch_of(make(), Place(0))
    again = make()
    epoch_of(again, Place(5))  # what was read before leaves no trace
    assert epoch_of(again, Place(0)) == first
    assert epoch_of(make(), Place(1)) != first
    assert epoch_of(make(seed=1), Place(0)) != first


@pytest.mark.parametrize("window_chunks", [2, 100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_on_disk_and_in_memory_give_the_same_batches(tmp_path, window_chunks, dtype):
    batches = make(window_chunks=window_chunks, units=Units(np.array([40.0, 30.0, 20.0]), 7.0), dtype=dtype)
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["X"] = batches.source.rows(np.arange(100))
    with Dataset.open(tmp_path / "rows.h5", y=None, chunk_rows=8) as source:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "WINDOW_BYTES", 4 * 3 * 8 * window_chunks)
            other = Batches(source, batches.signs, batches.used, batches.batch_rows, batches.units, batches.seed)
        for left, right in zip(batches.after(Place(3)), other.after(Place(3)), strict=True):
            assert left[0] == right[0]
            np.testing.assert_array_equal(left[1], right[1])
            np.testing.assert_array_equal(left[2], right[2])


@pytest.mark.parametrize("batch_rows", [1, 7, 64, 1000])
def test_the_order_of_the_rows_does_not_depend_on_the_batch(batch_rows):
    numbers = [number for _, rows, _ in epoch_of(make(batch_rows=batch_rows), Place(1)) for number in rows]
    assert numbers == [number for _, rows, _ in epoch_of(make(batch_rows=5), Place(1)) for number in rows]


def test_rows_come_centred_and_divided_in_single_precision():
    rng = np.random.default_rng(0)
    X = 1e6 + rng.normal(size=(40, 3)) * [1e-3, 1.0, 10.0]
    units = Units.of_sample(X)
    batches = Batches(Dataset.from_arrays(X), np.ones((40, 1)), np.ones(40, dtype=bool), 40, units, 0)
    [(_, rows, _)] = batches.after(Place(0))
    assert rows.dtype == np.float32
    order = np.random.default_rng([0, 12, 0, 0]).permutation(40)
    np.testing.assert_allclose(rows, ((X - X.mean(axis=0)) / np.sqrt(X.var(axis=0).mean()))[order], rtol=1e-5)
    np.testing.assert_allclose(rows.mean(axis=0), 0.0, atol=1e-5)
    assert np.mean(rows.var(axis=0)) == pytest.approx(1.0, rel=1e-4)


def test_rows_that_are_all_the_same_have_the_length_one():
    units = Units.of_sample(np.full((5, 2), 3.0))
    assert units.length == 1.0
    assert not units.of(np.full((5, 2), 3.0)).any()


class Watched:
    """Rows of a data set, whose reads are listed, and wait for leave."""

    def __init__(self, source):
        self.source, self.reads, self.leave = source, [], threading.Semaphore(0)
        self.n_rows, self.n_features, self.chunk_rows = source.n_rows, source.n_features, source.chunk_rows
        self.error = None

    def part(self, start, stop):
        assert self.leave.acquire(timeout=30)
        if self.error is not None:
            raise self.error
        self.reads.append(start // self.chunk_rows)
        return self.source.part(start, stop)


@pytest.fixture
def watched():
    """Batches of four windows of a chunk each, in two epochs."""
    batches = make(n=32, chunk_rows=8, window_chunks=1, batch_rows=8)
    batches.source, batches.epochs = Watched(batches.source), 2
    with batches:
        yield batches


def test_one_window_is_read_while_another_is_learned_and_no_further(watched):
    source, epoch = watched.source, watched.after(Place(0))
    source.leave.release(2)  # of the window that is waited for, and of the one that is read ahead
    assert next(epoch)[0] == Place(0, 1)
    watched._ahead[1].result(timeout=30)
    assert len(source.reads) == 2
    source.leave.release(6)
    assert len(list(epoch)) == 3
    watched._ahead[1].result(timeout=30)
    assert sorted(source.reads[:4]) == [0, 1, 2, 3]
    assert len(source.reads) == 5  # the first window of the next epoch is there
    assert [rows for _, rows, _ in epoch_of(make(n=32, chunk_rows=8, window_chunks=1, batch_rows=8), Place(1))] == [
        rows for _, rows, _ in epoch_of(watched, Place(1))
    ]
    assert watched._ahead is None  # there is no third epoch
    assert len(source.reads) == 8


def test_an_error_of_the_reader_is_raised_where_its_rows_are_wanted(watched):
    source, epoch = watched.source, watched.after(Place(0))
    source.leave.release(1)
    next(epoch)
    source.error = OSError("the disk is gone")
    source.leave.release(1)
    with pytest.raises(OSError, match="the disk is gone"):
        next(epoch)


def test_reading_ahead_ends_with_the_batches(watched):
    watched.source.leave.release(8)
    next(watched.after(Place(0)))
    watched.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("mllkm-reader")]
