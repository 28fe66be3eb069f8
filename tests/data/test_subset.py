"""Some rows of a data set: read in windows, whatever the storage, and split by class."""

from __future__ import annotations

import pickle

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale.data import Dataset
from mllkm_scale.data.subset import SubsetSource, split, subset
from mllkm_scale.errors import DataError, ParameterError


@given(st.lists(st.integers(0, 199), min_size=1, max_size=60, unique=True), st.integers(1, 7))
def test_rows_and_labels_are_those_asked_for(rows, chunk_rows):
    X, y = np.arange(400.0).reshape(200, 2), np.arange(200) % 3
    some = subset(Dataset.from_arrays(X, y), np.array(rows))
    wanted = np.sort(rows)
    assert np.array_equal(np.concatenate([chunk for _, chunk in some.chunks()]), X[wanted])
    assert np.array_equal(some.labels(), y[wanted])
    assert np.array_equal(some.rows([0, some.n_rows - 1]), X[wanted[[0, -1]]])


def test_features_keep_their_names():
    data = Dataset.from_arrays(np.zeros((4, 2)), [0, 1, 0, 1], feature_names=["height", "weight"])
    assert [part.feature_names for part in split(data, 0.5)] == 2 * [("height", "weight")]


def test_windows_bound_what_is_read_at_once(monkeypatch):
    X = np.zeros((70_000 * 3, 1))
    data = Dataset.from_arrays(X)
    source = SubsetSource(data.source, np.arange(0, len(X), 1000), "some")
    read, largest = data.source.read, 0

    def watched(start, stop):
        nonlocal largest
        largest = max(largest, stop - start)
        return read(start, stop)

    monkeypatch.setattr(data.source, "read", watched)
    assert source.read(0, 210).shape == (210, 1)
    assert largest * 8 <= source.buffer_bytes


def test_a_part_of_a_file_can_be_pickled_and_sliced_again(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"], file["y"] = np.arange(20.0).reshape(10, 2), [b"no", b"yes"] * 5
    with Dataset.open(tmp_path / "a.h5") as data:
        some = pickle.loads(pickle.dumps(subset(data, np.array([1, 4, 7]))))
        assert some.labels().tolist() == ["yes", "no", "yes"]
        assert subset(some, np.array([2])).chunk(0).tolist() == [[14.0, 15.0]]
        some.close()


@given(st.lists(st.integers(0, 3), min_size=6, max_size=80), st.floats(0.05, 0.95), st.integers(0, 3))
def test_a_split_takes_every_row_once_and_its_share_of_every_class(labels, share, seed):
    y = np.array([0, 0, 1, 1, *labels])
    data = Dataset.from_arrays(np.arange(float(len(y)))[:, None], y)
    kept, held_out = split(data, share, seed)
    both = np.concatenate([kept.rows(np.arange(kept.n_rows)), held_out.rows(np.arange(held_out.n_rows))]).ravel()
    assert sorted(both.tolist()) == list(range(len(y)))
    for label in np.unique(y):
        n, out = np.sum(y == label), np.sum(held_out.labels() == label)
        assert out == min(n - 1, max(1, round(share * n)))
    again = split(data, share, seed)[1]
    assert np.array_equal(again.chunk(0), held_out.chunk(0))


def test_what_cannot_be_split_is_refused():
    data = Dataset.from_arrays([[0.0], [1.0]], [0, 1])
    with pytest.raises(DataError, match="one row per class"):
        split(data, 0.5)
    with pytest.raises(ParameterError, match="between 0 and 1"):
        split(data, 1.0)
    with pytest.raises(ParameterError, match="rows 0 to 1"):
        subset(data, np.array([2]))
