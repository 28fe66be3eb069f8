"""Moments equal NumPy's, and their bits depend on neither who has merged what nor how the groups were divided."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale.data import Dataset
from mllkm_scale.data.preparation.moments import MomentsWork, TreeSum, gather_moments


class Cut:
    """An executor that cuts a pass into ranges at these units."""

    def __init__(self, cuts):
        self.cuts, self.n_nodes = cuts, []

    def start(self, work, n_units):
        edges = [0, *sorted({cut for cut in self.cuts if 0 < cut < n_units}), n_units]
        for first, last in pairwise(edges):
            nodes = work(range(first, last))
            self.n_nodes.append((last - first, len(nodes)))
            yield nodes


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 90), st.integers(0, 9), st.lists(st.integers(1, 89)), st.booleans())
def test_any_division_gives_the_same_bits_and_those_of_numpy_about(n_groups, seed, cuts, cross):
    X = np.random.default_rng(seed).normal(3.0, size=(2 * n_groups, 3)) * [1.0, 1e3, 1e-3]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mllkm_scale.data.preparation.moments.ROWS_A_FEATURE", 0)
        data = Dataset.from_arrays(X, chunk_rows=2)
        whole = gather_moments(data, cross=cross)
        executor = Cut(cuts)
        parts = gather_moments(data, cross=cross, executor=executor)
    for name in ("mean", "low", "high", "deviations"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(parts, name))
    centred = X - X.mean(axis=0)
    expected = centred.T @ centred if cross else (centred**2).sum(axis=0)
    np.testing.assert_allclose(whole.deviations, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
    np.testing.assert_allclose(whole.mean, X.mean(axis=0), rtol=1e-12)
    assert whole.count == len(X)
    for length, n_nodes in executor.n_nodes:
        assert n_nodes <= 2 * np.ceil(np.log2(length + 1))


def test_a_range_that_is_a_subtree_sends_one_node():
    data = Dataset.from_arrays(np.random.default_rng(0).normal(size=(64, 2)), chunk_rows=1)
    work = MomentsWork(data, None, True, 1, 2)
    assert [node[:2] for node in work(range(16, 32))] == [(16, 16)]
    merged = TreeSum()
    for first in range(0, 64, 16):
        for node in work(range(first, first + 16)):
            merged.add(node)
    assert len(merged.nodes) == 1
