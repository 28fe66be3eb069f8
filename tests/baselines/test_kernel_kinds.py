"""Kinds of kernels against scikit-learn's, and what their automatic width and scale are."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.neighbors import NearestNeighbors

from mllkm_scale.baselines.lmkl import KINDS, kinds_of

SAME = {
    "linear": {"metric": "linear"},
    "polynomial": {"metric": "polynomial", "degree": 2, "gamma": 1.0, "coef0": 1.0},
    "gaussian": {"metric": "rbf", "gamma": 1 / 4},
}


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_is_scikit_learns_kernel(small_problem, name):
    X, _ = small_problem("wine", 60)
    (kind,) = kinds_of(X, (name, name), 2.0, normalize=False)
    np.testing.assert_array_equal(kind.members, [0, 1])
    np.testing.assert_allclose(kind.gram(X[:20], X), pairwise_kernels(X[:20], X, **SAME[name]), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", KINDS)
def test_a_normalised_kind_has_the_mean_diagonal_one(small_problem, name):
    X, _ = small_problem("wine", 60)
    (kind,) = kinds_of(X, (name,), "auto", normalize=True)
    assert np.diag(kind.gram(X, X)).mean() == pytest.approx(1.0)


def test_the_automatic_width_is_the_mean_distance_of_nearest_neighbours(small_problem):
    X, _ = small_problem("wine", 60)
    (kind,) = kinds_of(X, ("gaussian",), "auto", normalize=False)
    distances, _ = NearestNeighbors(n_neighbors=1).fit(X).kneighbors()
    assert kind.width == pytest.approx(distances.mean())


def test_kernels_are_grouped_by_kind(small_problem):
    X, _ = small_problem("iris", 20)
    found = kinds_of(X, ("gaussian", "linear", "gaussian"), 1.0, normalize=False)
    assert [(kind.name, kind.members.tolist()) for kind in found] == [("linear", [1]), ("gaussian", [0, 2])]
