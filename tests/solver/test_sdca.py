"""The compiled epochs of Algorithm 1 against twins of a few lines, and its early bail-out."""

from __future__ import annotations

import numpy as np
import pytest

from mllkm_scale.solver.sdca import epoch_orders, sdca_epoch, sdca_epoch_features

C = np.random.default_rng(2).choice([0.2, 0.7, 1.1], size=25)  # C_i: samples have weights


def epoch_by_numpy(K, y, order, duals):
    """Algorithm 1 with its two misprints corrected; returns the duals and the largest violation."""
    duals, worst = duals.copy(), 0.0
    for i in order:
        g = 1.0 - y[i] * (K[i] @ (duals * y))
        if (g > 0 and duals[i] >= C[i]) or (g < 0 and duals[i] <= 0) or g == 0:
            continue
        worst = max(worst, abs(g))
        duals[i] = np.clip(duals[i] + g / K[i, i], 0.0, C[i]) if K[i, i] > 0 else C[i]
    return duals, worst


@pytest.fixture
def samples():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(25, 4))
    return X, np.where(X[:, 0] + 0.3 * rng.normal(size=25) > 0, 1.0, -1.0)


@pytest.fixture
def start():
    duals = np.random.default_rng(1).uniform(-0.5, 1.2, size=25)
    return np.clip(duals, 0.0, C)


def test_an_epoch_on_a_gram_is_that_of_algorithm_1(samples, start):
    X, y = samples
    K = np.exp(-0.3 * ((X[:, None] - X) ** 2).sum(axis=2))
    duals, outputs = start.copy(), K @ (start * y)
    expected = start
    for order in epoch_orders(25, 4, 3):
        expected, worst = epoch_by_numpy(K, y, order, expected)
        assert sdca_epoch(K, y, C, order, duals, outputs) == pytest.approx(worst, rel=1e-10)
        np.testing.assert_allclose(duals, expected, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(outputs, K @ (duals * y), rtol=1e-10, atol=1e-12)


def test_an_epoch_on_features_is_that_on_their_gram(samples, start):
    X, y = samples
    K = X @ X.T
    duals, w = start.copy(), (start * y) @ X
    expected = start
    for order in epoch_orders(25, 4, 3):
        expected, worst = epoch_by_numpy(K, y, order, expected)
        violation = sdca_epoch_features(X, np.ones(X.shape[1]), np.diag(K).copy(), y, C, order, duals, w)
        assert violation == pytest.approx(worst, rel=1e-8)
        np.testing.assert_allclose(duals, expected, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(w, (duals * y) @ X, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    ("output", "dual", "why"),
    [(1.0, 0.3, "g = 0"), (-0.5, C[0], "at the upper bound"), (2.5, 0.0, "at the lower bound")],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_sample_that_cannot_move_is_skipped(output, dual, why):
    """Its outputs are not even touched: the Gram is nan, and would spoil them."""
    duals, outputs = np.array([dual]), np.array([output])
    gram = np.array([[np.nan]])
    assert sdca_epoch(gram, np.ones(1), C[:1], np.array([0]), duals, outputs) == 0.0, why
    assert (duals[0], outputs[0]) == (dual, output)


def test_only_the_samples_in_the_order_are_visited(samples, start):
    X, y = samples
    K = X @ X.T
    duals = start.copy()
    sdca_epoch(K, y, C, np.array([3, 8]), duals, K @ (start * y))
    assert set(np.flatnonzero(duals != start)) <= {3, 8}


def test_the_dual_of_a_sample_that_no_kernel_reaches_goes_to_the_bound():
    """Its K_ii is 0 and its loss is 1 whatever the others do: Algorithm 1 divides by zero and clips to C."""
    K = np.diag([2.0, 0.0])
    y, order = np.array([1.0, -1.0]), np.array([1, 0])
    duals, outputs = np.zeros(2), np.zeros(2)
    bounds = np.array([0.7, 0.4])
    assert sdca_epoch(K, y, bounds, order, duals, outputs) == 1.0
    assert duals.tolist() == [0.5, 0.4]
    phi = np.array([[np.sqrt(2.0)], [0.0]])
    duals, w = np.zeros(2), np.zeros(1)
    sdca_epoch_features(phi, np.ones(phi.shape[1]), np.diag(K).copy(), y, bounds, order, duals, w)
    np.testing.assert_allclose(duals, [0.5, 0.4])


def test_orders_are_permutations_keyed_by_all_numbers():
    orders = epoch_orders(30, 3, 5, 2)
    assert orders.shape == (3, 30)
    for order in orders:
        assert sorted(order) == list(range(30))
    assert not np.array_equal(orders[0], orders[1])
    np.testing.assert_array_equal(orders, epoch_orders(30, 3, 5, 2))
    for key in [(5, 3), (4, 2), (2, 5)]:
        assert not np.array_equal(orders, epoch_orders(30, 3, *key))
