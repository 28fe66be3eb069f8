"""A budget of kernels steers the training: no round exceeds it, and exchanged kernels beat those that are cut."""

from __future__ import annotations

from functools import partial
from itertools import combinations

import numpy as np
import pytest

from mllkm_scale import Dataset
from mllkm_scale import train as train_with_defaults

train = partial(train_with_defaults, anchors="all", n_jobs=1)  # the machine whose candidates are all samples
FAMILY = {"map": "gaussian", "componentwise": False, "normalize": "trace", "local_bias": 0.5}


@pytest.fixture(scope="module")
def digits(real_data):
    X, y = real_data("digits")
    return Dataset.from_arrays(X[:300], y[:300])


@pytest.mark.parametrize("count", [40, 12])
def test_no_round_has_more_kernels_than_allowed(digits, count):
    result = train(digits, C=10.0, max_kernels=count)
    assert result.status == "max_kernels"
    assert all(event.n_active <= count for event in result.history)
    assert result.model.n_kernels <= count


def test_a_budget_that_does_not_bind_changes_nothing(digits):
    free = train(digits, C=1.0)
    bounded = train(digits, C=1.0, max_kernels=1000)
    assert bounded.status == "converged"
    assert np.array_equal(free.model.weights, bounded.model.weights)


@pytest.mark.parametrize("multi_class", ["shared", "ovr"])
def test_its_gap_is_honest(mkl_reference, small_problem, multi_class):
    X, signs = small_problem("iris", 80)
    gammas, C = (0.1, 0.5), 2.0
    settings = {"C": C, "gammas": gammas, "scaling": "none", "local_bias": 0.5, "tol": 1e-4}
    data = Dataset.from_arrays(X, signs.argmax(axis=1))
    result = train(data, max_kernels=2, multi_class=multi_class, **settings)
    features = mkl_reference.grid_features(X, gammas, **FAMILY)
    columns = [signs] if multi_class == "shared" else [signs[:, [k]] for k in range(signs.shape[1])]
    duals = [result.duals] if multi_class == "shared" else [result.duals[:, [k]] for k in range(signs.shape[1])]
    bound = sum(
        float(alpha.sum()) - 0.5 * float(mkl_reference.quadratic_forms(features, alpha * y).max())
        for y, alpha in zip(columns, duals, strict=True)
    )
    optimum = sum(mkl_reference.optimum(X, y, gammas=gammas, C=C, **FAMILY) for y in columns)
    certificate = result.model.certificate
    assert certificate.dual == pytest.approx(bound, rel=1e-6)
    assert certificate.dual <= optimum * (1 + 1e-8)
    assert optimum <= certificate.primal * (1 + 1e-8)


def test_it_comes_near_the_best_of_all_pairs_of_kernels(mkl_reference, small_problem):
    """Two kernels of twelve: brute force over all pairs, each solved by a convex solver."""
    X, signs = small_problem("breast_cancer", 60)
    anchors, gammas = X[::10], (0.1, 0.5)
    settings = {"C": 2.0, "scaling": "none", "local_bias": 0.5, "normalize": None, "tol": 1e-4}
    data = Dataset.from_arrays(X, (signs[:, 0] > 0).astype(int))
    found = train(data, anchors=anchors, gammas=gammas, max_kernels=2, **settings).model.certificate.primal
    whole = train(data, anchors=anchors, gammas=gammas, **settings).model.certificate.primal
    pairs = [
        train(data, anchors=anchors[sorted({a, b})], gammas=[gammas[g]], **settings).model.certificate.primal
        for a, b in combinations(range(len(anchors)), 2)
        for g in range(2)
    ]
    assert whole <= found * (1 + 1e-6)
    assert found <= 1.1 * min(pairs)
