"""The convex training arrives, whatever the data: narrow and wide bumps, any C, duplicates, labels that contradict."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from mllkm_scale import Dataset, train

TOL = 1e-3
WIDTHS = st.sets(st.sampled_from([0.05, 0.1, 0.3, 3.0]), max_size=3).map(lambda widths: sorted({*widths, 1.0}))
BOXES = st.floats(-1.0, 3.0).map(lambda exponent: 10.0**exponent)


def noisy_problem(seed, n, d, noise, copies):
    """Two classes with a bent border; some labels are wrong, and some rows come again with the other label."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = (X[:, 0] + np.sin(2.0 * X[:, -1]) > 0) ^ (rng.random(n) < noise)
    again = rng.permutation(n)[: int(copies * n)]
    X, y = np.concatenate([X, X[again]]), np.concatenate([y, ~y[again]])
    y[:2] = [False, True]
    return X, y.astype(int)


def gammas_of(X, widths):
    """Gaussian bumps that fall to one half at these multiples of the mean distance, or so."""
    scale = np.sqrt(2.0 * X.var(axis=0).sum()) + 1e-9
    return [float(np.log(2.0) / (width * scale) ** 2) for width in widths]


def trained(X, y, widths, C, tol=TOL):
    return train(
        Dataset.from_arrays(X, y),
        anchors="all",
        scaling="none",
        local_bias=0.5,
        gammas=gammas_of(X, widths),
        C=C,
        tol=tol,
        n_jobs=1,
        random_state=0,
    )


@given(
    st.integers(0, 10**6),
    st.integers(5, 300),
    st.integers(1, 5),
    st.floats(0.0, 0.5),
    st.floats(0.0, 0.3),
    WIDTHS,
    BOXES,
)
@settings(deadline=None, derandomize=True, max_examples=60)
def test_it_arrives_and_what_it_certifies_holds(mkl_reference, seed, n, d, noise, copies, widths, C):
    X, y = noisy_problem(seed, n, d, noise, copies)
    result = trained(X, y, widths, C)
    assert result.status == "converged"
    signs = np.where(y == 1, 1.0, -1.0)[:, None]
    family = {"map": "gaussian", "componentwise": False, "normalize": "trace", "local_bias": 0.5}
    features = mkl_reference.grid_features(X, gammas_of(X, widths), **family)
    q = mkl_reference.quadratic_forms(features, result.duals * signs)
    dual = result.duals.sum() - 0.5 * q.max()
    model = result.model
    squares = np.sum(model.coef**2, axis=2) + model.local_coef**2 / model.family.local_bias
    norms = np.sqrt(squares.sum(axis=0) / model.kernel_scale)
    hinge = np.maximum(0.0, 1.0 - signs[:, 0] * model.decision_function(X).ravel()).sum()
    primal = 0.5 * norms.sum() ** 2 + C * hinge
    assert 0.0 <= result.duals.min() <= result.duals.max() <= C * (1 + 1e-12)
    assert primal - dual <= (TOL + 1e-6) * primal
    assert model.certificate.gap <= TOL


@given(st.integers(0, 10**6), st.integers(5, 30), st.integers(1, 3), st.floats(0.0, 0.5), WIDTHS, BOXES)
@settings(deadline=None, derandomize=True, max_examples=30)
def test_it_arrives_at_the_optimum_of_a_conic_solver(mkl_reference, seed, n, d, noise, widths, C):
    X, y = noisy_problem(seed, n, d, noise, 0.2)
    result = trained(X, y, widths, C)
    signs = np.where(y == 1, 1.0, -1.0)[:, None]
    family = {"map": "gaussian", "componentwise": False, "normalize": "trace", "local_bias": 0.5}
    optimum = mkl_reference.optimum(X, signs, gammas=gammas_of(X, widths), C=C, **family)
    assert result.model.certificate.primal <= optimum * (1 + 1.1 * TOL)
    assert result.model.certificate.primal >= optimum * (1 - 1e-6)
    assert result.model.certificate.dual >= optimum * (1 - 1.1 * TOL)


def test_a_round_lets_go_of_no_dual_that_holds_samples_at_the_margin():
    """Clean data of many classes, narrow kernels, a large C: duals of a thousandth of the largest still matter."""
    X, y = load_digits(return_X_y=True)
    result = train(Dataset.from_arrays(X[:600], y[:600]), anchors="all", C=100.0, tol=0.02, random_state=0)
    assert result.status == "converged"
    assert len(result.history) <= 5
    for before, after in pairwise(result.history):  # what a round adds to P is what was not known before it
        assert after.gap < 0.7 * before.gap
