"""Data that cannot be trained on is refused before training, with its place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mllkm_scale.data import Dataset, check, encode_labels
from mllkm_scale.errors import DataError


def test_the_summary_of_good_data(write_hdf5):
    X = np.array([[1, 5, -2], [2, 5, 9], [3, 5, 0]], dtype=np.int16)
    with Dataset.open(write_hdf5(X=X, y=np.array([2, 1, 2]))) as data:
        summary = check(data)
    assert (summary.n_rows, summary.n_features, summary.dtype) == (3, 3, np.int16)
    assert (summary.classes, summary.class_counts) == ((1, 2), (1, 2))
    assert (summary.minimum, summary.maximum, summary.constant_columns) == (-2.0, 9.0, 1)


def test_data_without_labels_has_no_classes():
    assert check(Dataset.from_arrays(np.eye(3))).classes == ()


@settings(max_examples=30, deadline=None)
@given(
    row=st.integers(0, 29),
    column=st.integers(0, 2),
    value=st.sampled_from([np.nan, np.inf, -np.inf]),
    chunk_rows=st.integers(1, 31),
    dtype=st.sampled_from([np.float64, np.float32]),
)
def test_the_first_value_that_is_not_finite_is_named(row, column, value, chunk_rows, dtype):
    X = np.zeros((30, 3), dtype=dtype)
    X[row, column] = value
    X[29, 2] = value
    what = "NaN" if np.isnan(value) else "infinity"
    with pytest.raises(DataError, match=rf"^m has {what} at row {row}, column {column} \(0-based\)"):
        check(Dataset.from_arrays(X, chunk_rows=chunk_rows, name="m"))


def test_file_and_data_set_are_named(write_hdf5):
    path = write_hdf5(X=np.array([[0.0], [np.nan]]), y=np.array([0, 1]))
    with (
        Dataset.open(path) as data,
        pytest.raises(DataError, match=r"train\.h5:X has NaN at row 1, column 0"),
    ):
        check(data)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1], "has 2 labels, but X has 3 rows"),
        (np.zeros((3, 2)), "one-dimensional"),
        (np.int64(3), "has 0 labels"),
        ([0.0, np.nan, 1.0], r"NaN.* at row 1"),
        ([0.0, 1.0, np.inf], r"infinity.* at row 2"),
        (["a", "", "b"], "empty at row 1"),
        (["a", "b", " "], "empty at row 2"),
        ([4, 4, 4], "one class, 4"),
        (["x", "x", "x"], "one class, 'x'"),
        ([0.0, 0.5, 1.0], r"0\.5 at row 1 .*Unknown label type: continuous"),
        (np.array([1, None, 2], dtype=object), "row 0"),
        (np.array(["a", None, "b"], dtype=object), "NoneType at row 1"),
        (np.array([1j, 2, 3]), "complex"),
    ],
)
def test_labels_that_cannot_be_trained_on_are_refused(labels, message):
    with pytest.raises(DataError, match=message):
        check(Dataset.from_arrays(np.eye(3), labels))


def test_a_thousand_classes_are_the_most():
    X = np.zeros((1001, 1))
    assert len(check(Dataset.from_arrays(X[:1000], np.arange(1000))).classes) == 1000
    with pytest.raises(DataError, match="1001 classes"):
        check(Dataset.from_arrays(X, np.arange(1001)))


@given(hnp.arrays(st.sampled_from([np.int64, np.bool_, np.dtype("U3")]), st.integers(1, 30)))
def test_codes_point_at_the_labels_among_ascending_classes(labels):
    classes, codes = encode_labels(labels)
    assert codes.dtype == np.int64
    assert classes.tolist() == sorted(set(labels.tolist()))
    np.testing.assert_array_equal(classes[codes], labels)
