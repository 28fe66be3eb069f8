"""Local coordinate codings against their formulas, written out sample by sample."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale.baselines.llsvm import CODINGS, automatic_bandwidth, coordinates, nearest_anchors

BANDWIDTH = 0.7


def code_of(x: np.ndarray, anchors: np.ndarray, n_nearest: int, coding: str) -> np.ndarray:
    """gamma(x) over all anchors, by the definition."""
    distances = np.linalg.norm(x - anchors, axis=1)
    similar = 1 / distances if coding == "inverse_distance" else np.exp(-(distances**2) / (2 * BANDWIDTH**2))
    similar[np.argsort(distances)[n_nearest:]] = 0
    return similar / similar.sum()


def dense(X: np.ndarray, anchors: np.ndarray, n_nearest: int, coding: str, bandwidth: float = BANDWIDTH) -> np.ndarray:
    chosen, squares = nearest_anchors(X, anchors, n_nearest)
    codes = np.zeros((len(X), len(anchors)))
    np.put_along_axis(codes, chosen, coordinates(squares, coding, bandwidth), axis=1)
    return codes


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("n_nearest", [1, 3, 20])
def test_codes_are_those_of_the_definition(real_data, coding, n_nearest):
    X, _ = real_data("iris")
    rng = np.random.default_rng(0)
    anchors = X[::7][:20] + rng.normal(0, 0.1, (20, 4))  # off the samples, and without ties
    expected = np.stack([code_of(x, anchors, n_nearest, coding) for x in X])
    np.testing.assert_allclose(dense(X, anchors, n_nearest, coding), expected, rtol=1e-9, atol=1e-12)


def test_rows_of_several_blocks_are_coded_each_as_alone():
    X = np.random.default_rng(0).normal(size=(5000, 3))
    chosen, squares = nearest_anchors(X, X[:50], 4)
    brute = ((X[:, None] - X[None, :50]) ** 2).sum(axis=2)
    order = np.argsort(brute, axis=1, kind="stable")[:, :4]
    np.testing.assert_array_equal(chosen, order)
    np.testing.assert_allclose(squares, np.take_along_axis(brute, order, axis=1), rtol=1e-12)


@pytest.mark.parametrize("coding", CODINGS)
@given(seed=st.integers(0, 10**6), n_nearest=st.integers(1, 6), scale=st.sampled_from([1e-6, 1.0, 1e6]))
@settings(max_examples=30)
def test_codes_are_a_local_convex_combination_that_moves_with_the_samples(coding, seed, n_nearest, scale):
    rng = np.random.default_rng(seed)
    anchors, X = scale * rng.normal(size=(6, 3)), scale * rng.normal(size=(8, 3))
    codes = dense(X, anchors, n_nearest, coding, BANDWIDTH * scale)
    np.testing.assert_allclose(codes.sum(axis=1), 1.0, rtol=1e-12)
    assert codes.min() >= 0.0
    assert ((codes > 0).sum(axis=1) <= n_nearest).all()
    distances = np.linalg.norm(X[:, None] - anchors, axis=2)
    np.testing.assert_array_equal(codes.argmax(axis=1), distances.argmin(axis=1))  # the nearest weighs most
    turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    moved = dense(X @ turn + scale, anchors @ turn + scale, n_nearest, coding, BANDWIDTH * scale)
    np.testing.assert_allclose(moved, codes, atol=1e-7)


def test_a_sample_on_an_anchor_is_that_anchor_by_inverse_distance():
    anchors = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    np.testing.assert_array_equal(dense(anchors, anchors, 3, "inverse_distance"), np.eye(3))
    near = dense(anchors + 1e-9, anchors, 3, "inverse_distance")  # lost to cancellation in |x|^2 - 2 <x, v> + |v|^2
    assert (np.diag(near) > 1 - 1e-8).all()


def test_a_far_sample_does_not_underflow():
    codes = dense(np.array([[1e3]]), np.array([[0.0], [1.0]]), 2, "kernel_codebook")
    np.testing.assert_array_equal(codes, [[0.0, 1.0]])


def test_the_automatic_bandwidth_scales_with_the_data_and_is_never_zero(real_data):
    X, _ = real_data("iris")
    _, squares = nearest_anchors(X, X[::10], 5)
    _, doubled = nearest_anchors(2 * X, 2 * X[::10], 5)
    assert automatic_bandwidth(doubled) == pytest.approx(2 * automatic_bandwidth(squares))
    assert automatic_bandwidth(np.ones((4, 1))) == 1.0
