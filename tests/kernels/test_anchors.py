"""Anchors that are not all samples: random rows and k-means centres."""

from __future__ import annotations

import numpy as np
import pytest

from mllkm_scale.data import Dataset
from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.anchors import kmeans_centres, random_rows


def test_random_rows_are_distinct_sorted_and_keyed_by_the_generator():
    rows = random_rows(100, 30, np.random.default_rng(1))
    assert len(np.unique(rows)) == 30
    assert np.all(np.diff(rows) > 0)
    assert 0 <= rows.min() <= rows.max() < 100
    np.testing.assert_array_equal(rows, random_rows(100, 30, np.random.default_rng(1)))
    assert not np.array_equal(rows, random_rows(100, 30, np.random.default_rng(2)))


def test_random_rows_are_all_rows_if_there_are_not_more():
    assert random_rows(4, 10, np.random.default_rng(0)).tolist() == [0, 1, 2, 3]


def test_no_anchors_are_refused():
    with pytest.raises(ParameterError, match="anchors=0"):
        random_rows(4, 0, np.random.default_rng(0))


@pytest.fixture
def blobs():
    """Three blobs of forty rows, a hundred times farther apart than they are wide."""
    means = np.array([[0.0, 0.0], [100.0, 0.0], [0.0, 100.0]])
    labels = np.repeat([0, 1, 2], 40)
    return means[labels] + np.random.default_rng(0).normal(size=(120, 2)), labels


def start_in_every_blob(labels):
    """A generator whose three first rows lie in three blobs, so that Lloyd's iteration cannot get stuck."""
    for seed in range(100):
        if len(set(labels[random_rows(len(labels), 3, np.random.default_rng(seed))])) == 3:
            return np.random.default_rng(seed)
    raise AssertionError("no such seed")


def test_kmeans_finds_the_means_of_separated_blobs(blobs):
    X, labels = blobs
    centres = kmeans_centres(Dataset.from_arrays(X, chunk_rows=7), 3, start_in_every_blob(labels))
    expected = np.stack([X[labels == k].mean(axis=0) for k in range(3)])
    order = [int(np.abs(centres - mean).sum(axis=1).argmin()) for mean in expected]
    assert sorted(order) == [0, 1, 2]
    np.testing.assert_allclose(centres[order], expected, rtol=1e-12, atol=1e-12)


def test_kmeans_lowers_the_distortion_and_ends_at_a_fixed_point(real_data):
    X, _ = real_data("iris")

    def distortion(centres):
        return ((X[:, None, :] - centres) ** 2).sum(axis=2).min(axis=1).sum()

    values = []
    for passes in (0, 1, 3, 50):
        centres = kmeans_centres(Dataset.from_arrays(X), 5, np.random.default_rng(3), passes=passes)
        values.append(distortion(centres))
    assert values == sorted(values, reverse=True)
    assert values[0] > values[-1]
    nearest = ((X[:, None, :] - centres) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_allclose(centres, [X[nearest == k].mean(axis=0) for k in range(5)], rtol=1e-12)


def test_kmeans_does_not_depend_on_the_chunks(real_data):
    X, _ = real_data("iris")
    whole, chunked = (
        kmeans_centres(Dataset.from_arrays(X, chunk_rows=rows), 4, np.random.default_rng(0)) for rows in (150, 11)
    )
    np.testing.assert_allclose(whole, chunked, rtol=1e-12)


def test_a_centre_that_loses_its_rows_stays():
    """Equal rows all go to the first of two equal centres."""
    X = np.ones((6, 2))
    assert kmeans_centres(Dataset.from_arrays(X), 2, np.random.default_rng(0)).tolist() == [[1.0, 1.0]] * 2
