"""Samples of data sets and of Python iterators come in order, from any position, and bad ones are refused by name."""

from __future__ import annotations

import itertools

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale.data import Dataset
from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.online.sources.dataset_samples import DatasetSamples
from mllkm_scale.online.sources.opening import open_samples
from mllkm_scale.online.sources.samples import IterableSamples


def joined(chunks):
    """Rows and labels of chunks that follow one another without a gap."""
    chunks = list(chunks)
    for before, after in itertools.pairwise(chunks):
        assert before.stop == after.first
    return np.concatenate([c.X for c in chunks]), np.concatenate([c.y for c in chunks])


@pytest.fixture
def hdf5(tmp_path):
    """Eleven rows that tell their number, in a file."""
    path = tmp_path / "train.h5"
    with h5py.File(path, "w") as file:
        file["X"] = np.arange(22.0).reshape(11, 2)
        file["y"] = np.arange(11) % 3
    return path


def test_a_file_is_streamed_in_its_order_pass_after_pass(hdf5):
    samples = open_samples(hdf5, passes=2, chunk_rows=4)
    chunks = list(samples.chunks())
    samples.close()
    assert [(chunk.first, len(chunk)) for chunk in chunks] == [(0, 4), (4, 4), (8, 3), (11, 4), (15, 4), (19, 3)]
    X, y = joined(chunks)
    np.testing.assert_array_equal(X[:, 0], np.tile(np.arange(0.0, 22.0, 2.0), 2))
    np.testing.assert_array_equal(y, np.tile(np.arange(11) % 3, 2))


@settings(max_examples=25)
@given(
    n=st.integers(1, 30),
    chunk_rows=st.integers(1, 12),
    passes=st.integers(1, 3),
    shuffle=st.booleans(),
    seed=st.integers(0, 3),
    at=st.floats(0, 0.999),
)
def test_a_data_set_resumed_at_any_position_continues_as_if_never_stopped(n, chunk_rows, passes, shuffle, seed, at):
    data = Dataset.from_arrays(np.arange(n)[:, None], np.arange(n) % 4, chunk_rows=chunk_rows)
    samples = DatasetSamples(data, passes=passes, shuffle=shuffle, seed=seed)
    X, y = joined(samples.chunks())
    assert len(X) == n * passes
    np.testing.assert_array_equal(np.sort(X[:, 0].reshape(passes, n)), np.tile(np.arange(n), (passes, 1)))
    np.testing.assert_array_equal(y, X[:, 0] % 4)
    skip = int(at * n * passes)
    chunks = list(samples.chunks(skip))
    assert chunks[0].first == skip
    np.testing.assert_array_equal(joined(chunks)[0], X[skip:])
    assert list(samples.chunks(n * passes)) == []


def test_the_random_order_is_one_of_seed_and_pass():
    data = Dataset.from_arrays(np.arange(64)[:, None], np.arange(64), chunk_rows=8)
    orders = [joined(DatasetSamples(data, passes=2, shuffle=True, seed=s).chunks())[1] for s in (0, 0, 1)]
    np.testing.assert_array_equal(orders[0], orders[1])
    assert (orders[0] != orders[2]).any()
    assert (orders[0][:64] != orders[0][64:]).any()
    assert (np.diff(orders[0][:64] // 8) != 0).sum() == 7, "a chunk is read once in a pass"


def test_only_the_chunk_that_is_asked_for_is_read(hdf5, monkeypatch):
    samples = open_samples(hdf5, passes=3, chunk_rows=2)
    read = []
    chunk = Dataset.chunk
    monkeypatch.setattr(Dataset, "chunk", lambda self, i: read.append(i) or chunk(self, i))
    assert next(samples.chunks(skip=28)).X[0, 0] == 12.0
    samples.close()
    assert read == [3]


@pytest.mark.parametrize(
    ("X", "y", "classes", "message"),
    [
        ([[0.0, 1.0], [2.0, np.nan]], [0, 1], None, r"X has NaN at row 1, column 1 \(0-based\).* then learn"),
        ([[0.0], [1.0]], [0, 5], [0, 1], r"y, row 1 \(0-based\), is '5', none of the classes 0, 1"),
        ([[0.0], [1.0]], ["a", ""], None, r"y, row 1 \(0-based\), is empty"),
        ([[0.0], [1.0]], [0.0, 0.5], None, r"y is 0\.5 at row 1 \(0-based\)"),
        ([[0.0], [1.0]], [0.0, np.nan], None, r"y is nan at row 1"),
        ([[0.0], [1.0]], [0], None, "y has 1 labels, but X has 2 rows"),
        ([[0.0], [1.0]], None, None, "opened without labels"),
    ],
)
def test_rows_of_a_data_set_that_cannot_be_learned_are_refused(X, y, classes, message):
    with pytest.raises(DataError, match=message):
        list(DatasetSamples(Dataset.from_arrays(X, y, chunk_rows=1), classes=classes).chunks())


def test_stored_labels_are_handed_out_as_the_classes_have_them():
    data = Dataset.from_arrays(np.eye(3), [1.0, 0.0, 1.0])
    assert [c.y.tolist() for c in DatasetSamples(data, classes=("0", "1")).chunks()] == [["1", "0", "1"]]
    [chunk] = DatasetSamples(data, classes=np.array([0, 1], np.int8)).chunks()
    assert chunk.y.dtype == np.int8


def test_single_samples_and_batches_of_an_iterator_come_in_order(real_data):
    X, y = real_data("iris")
    pairs = [*zip(X[:5], y[:5], strict=True), (X[5:100], y[5:100]), (X[100], y[100:101]), (X[101:], y[101:].tolist())]
    chunks = list(IterableSamples(iter(pairs), chunk_rows=20).chunks())
    assert [len(chunk) for chunk in chunks[:7]] == [1, 1, 1, 1, 1, 20, 20]
    for skip in (0, 3, 47, 149):
        rows, labels = joined(IterableSamples(pairs, chunk_rows=20).chunks(skip))
        np.testing.assert_array_equal(rows, X[skip:])
        np.testing.assert_array_equal(labels, y[skip:])


def test_an_iterator_is_asked_for_a_pair_only_when_the_one_before_was_handed_out():
    asked = []
    pairs = ((asked.append(i) or [i], i) for i in range(5))
    chunks = IterableSamples(pairs).chunks()
    assert (next(chunks).y.tolist(), asked) == ([0], [0])
    assert (next(chunks).y.tolist(), asked) == ([1], [0, 1])


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "holds no samples"),
        ([3], r"sample 0 \(0-based\) is not a pair"),
        ([([1.0], 0), ([1.0, 2.0], 0)], r"sample 1 \(0-based\) has 2 features instead of 1"),
        ([([1.0], 0), ([np.inf], 0)], r"has infinity at row 1, column 0"),
        ([(["a"], 0)], "type <U1: give dense rows"),
        ([([], 0)], r"shape \(0,\)"),
        ([(np.eye(3), [0, 1])], "3 rows with 2 labels"),
        ([([1.0], None)], "label of the stream: sample 0"),
        ([([1.0], "x"), ([1.0], "")], r"row 1 \(0-based\), is empty"),
    ],
)
def test_bad_pairs_are_refused_with_their_position(pairs, message):
    with pytest.raises(DataError, match=message):
        list(IterableSamples(pairs).chunks())


def test_a_stream_shorter_than_what_was_learned_of_it_is_refused(hdf5):
    with pytest.raises(DataError, match="ended after 1 samples, but 2 should be skipped"):
        list(IterableSamples([([1.0], 0)]).chunks(skip=2))
    samples = open_samples(hdf5)
    with pytest.raises(DataError, match="ended after 11 samples, but 12 should be skipped"):
        list(samples.chunks(skip=12))
    samples.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"passes": 0}, "passes=0"),
        ({"shuffle": True, "seed": -1}, "seed=-1"),
        ({"header": True}, "header does not belong to the format hdf5"),
        ({"format": "xml"}, "format='xml' is not known"),
        ({"chunk_rows": 0}, "chunk_rows"),
        ({"classes": [1, 1]}, "each class once"),
        ({"classes": []}, "one per class"),
    ],
)
def test_options_that_cannot_work_are_refused(hdf5, options, message):
    with pytest.raises(ParameterError, match=message):
        open_samples(hdf5, **options)


@pytest.mark.parametrize("skip", [-1, 1.5, True])
def test_a_position_is_a_whole_number(skip):
    with pytest.raises(ParameterError, match="skip="):
        list(IterableSamples([([1.0], 0)]).chunks(skip))
