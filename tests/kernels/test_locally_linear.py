"""Every formula of the eight families against features that are made one kernel at a time."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale.base.threads import Threads, one_blas_thread
from mllkm_scale.kernels import locally_linear, predictors
from mllkm_scale.kernels.distances import squared_distances
from mllkm_scale.kernels.grid import Family
from mllkm_scale.kernels.maps import MAPS, uses_plain_distance

FAMILIES = [Family(name, componentwise, bias) for name, componentwise, bias in product(MAPS, [False, True], [0.0, 0.7])]


def precision(family):
    """Where x = c, |x|^2 + |c|^2 - 2 <x, c> is off by 1e-15; its root, which two global maps use, by 1e-8."""
    rooted = not family.componentwise and uses_plain_distance(family.map)
    return {"rtol": 1e-7, "atol": 1e-7} if rooted else {"rtol": 1e-10, "atol": 1e-11}


def label(family):
    return f"{family.map}-{'component' if family.componentwise else 'global'}-{family.local_bias:g}"


@pytest.fixture(params=FAMILIES, ids=label)
def family(request):
    return request.param


@pytest.fixture
def exact(family):
    return precision(family)


@pytest.fixture
def samples():
    """Eleven rows; two of them are anchors, and one lies beyond the radius of the bounded maps."""
    X = np.random.default_rng(3).normal(size=(11, 4))
    X[10] += 40.0
    return X


@pytest.fixture
def kernels(family, samples):
    """Five kernels: gammas and scales of different size, an anchor that is a sample, and one twice."""
    anchors = np.concatenate([samples[[0, 1, 1]], np.random.default_rng(4).normal(size=(2, 4))])
    return family.kernels(anchors, np.array([0.02, 0.15, 0.6, 0.3, 0.05]), np.array([1.0, 3.0, 0.2, 7.0, 0.5]))


@pytest.fixture
def one_by_one(mkl_reference, family, kernels):
    """Features of a matrix under every kernel, by the plain formulas: a list of (n, d + 1)."""

    def features(X):
        return [
            np.sqrt(scale)
            * mkl_reference.kernel_features(
                X,
                anchor,
                gamma,
                map=family.map,
                componentwise=family.componentwise,
                local_bias=family.local_bias,
            )
            for anchor, gamma, scale in zip(kernels.anchors, kernels.gammas, kernels.scales, strict=True)
        ]

    return features


@pytest.fixture(params=[1, 3], ids=["one-class", "three-classes"])
def signed_duals(request):
    A = np.random.default_rng(5).normal(size=(11, request.param))
    A[np.abs(A) < 0.3] = 0.0
    return A


def test_features_are_those_of_the_formulas(kernels, one_by_one, samples, exact):
    np.testing.assert_allclose(kernels.features(samples), np.stack(one_by_one(samples), axis=1), **exact)


def test_diagonals_are_squared_norms_of_features(kernels, one_by_one, samples, exact):
    expected = [(F**2).sum(axis=1) for F in one_by_one(samples)]
    np.testing.assert_allclose(kernels.diagonals(samples), np.stack(expected, axis=1), **exact)


def test_the_combined_gram_is_the_weighted_sum_of_grams(kernels, one_by_one, samples, exact):
    weights = np.array([0.3, 0.0, 0.1, 0.4, 0.2])
    Z = samples[::-2] + 0.1
    expected = sum(b * F @ G.T for b, F, G in zip(weights, one_by_one(samples), one_by_one(Z), strict=True))
    np.testing.assert_allclose(kernels.combined_gram(weights, samples, Z), expected, **exact)


def test_quadratic_forms_add_up_over_the_classes(mkl_reference, kernels, one_by_one, samples, signed_duals, exact):
    expected = mkl_reference.quadratic_forms(one_by_one(samples), signed_duals)
    np.testing.assert_allclose(kernels.quadratic_forms(samples, signed_duals), expected, **exact)


def test_responses_are_what_each_kernel_would_add(kernels, one_by_one, samples, signed_duals, exact):
    X = samples[:6] - 0.2
    expected = np.stack(
        [F @ (G.T @ signed_duals) for F, G in zip(one_by_one(X), one_by_one(samples), strict=True)], axis=2
    )
    np.testing.assert_allclose(kernels.responses(X, samples, signed_duals), expected.transpose(1, 0, 2), **exact)


@pytest.mark.parametrize("per_class", [False, True], ids=["shared-weights", "weights-per-class"])
def test_folded_coefficients_decide_like_the_kernel_expansion(
    kernels, one_by_one, samples, signed_duals, per_class, exact
):
    K = signed_duals.shape[1]
    weights = np.random.default_rng(6).uniform(size=(K, 5) if per_class else 5)
    X = samples[:7] + 0.3
    expected = np.zeros((7, K))
    for k, betas in enumerate(np.broadcast_to(weights, (K, 5))):
        for beta, F, G in zip(betas, one_by_one(X), one_by_one(samples), strict=True):
            expected[:, k] += beta * F @ (G.T @ signed_duals[:, k])
    coef, local_coef = kernels.coefficients(samples, signed_duals, weights)
    assert coef.shape == (K, 5, 4)
    assert local_coef.shape == (K, 5)
    np.testing.assert_allclose(kernels.decide(X, coef, local_coef), expected, **exact)


def test_results_do_not_depend_on_the_blocks_they_are_made_in(monkeypatch, kernels, samples, signed_duals):
    def everything():
        coef, local_coef = kernels.coefficients(samples, signed_duals, np.full(5, 0.2))
        return [
            kernels.diagonals(samples),
            kernels.combined_gram(np.full(5, 0.2), samples, samples[:5]),
            kernels.quadratic_forms(samples, signed_duals),
            kernels.decide(samples, coef, local_coef),
            kernels.responses(samples, samples[:4], signed_duals[:4]),
        ]

    whole = everything()
    monkeypatch.setattr(locally_linear, "FEATURE_BLOCK_BYTES", 3 * 8 * 5 * 5)  # three rows
    monkeypatch.setattr(locally_linear, "_SUMS_BYTES", 0)
    monkeypatch.setattr(locally_linear, "_LEAST_KERNELS", 2)
    monkeypatch.setattr(predictors, "_MOST_ROWS", 3)
    for left, right in zip(whole, everything(), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-12)


def test_rows_in_single_precision_are_computed_with_in_double(kernels, samples):
    rough, signed_duals = samples.astype(np.float32), np.linspace(-1.0, 1.0, 2 * len(samples)).reshape(-1, 2)

    def everything(rows):
        coef, local_coef = kernels.coefficients(rows, signed_duals, np.full(5, 0.2))
        return [
            coef,
            local_coef,
            kernels.quadratic_forms(rows, signed_duals),
            kernels.responses(rows, rows[:4], signed_duals[:4]),
            kernels.decide(rows, coef, local_coef),
        ]

    for left, right in zip(everything(rough), everything(rough.astype(np.float64)), strict=True):
        np.testing.assert_array_equal(left, right)


def test_no_kernels_have_no_forms(kernels, samples):
    none = kernels.take(np.empty(0, np.int64))
    assert none.quadratic_forms(samples, np.ones((len(samples), 2))).shape == (0,)


def test_take_picks_kernels_in_the_order_asked_for(kernels, samples):
    taken = kernels.take(np.array([3, 0]))
    assert len(taken) == 2
    np.testing.assert_array_equal(taken.features(samples), kernels.features(samples)[:, [3, 0]])


def test_squared_distances_are_never_negative():
    X = 1e6 + np.random.default_rng(0).normal(size=(40, 3))
    assert squared_distances(X, X).min() >= 0


families = st.builds(Family, st.sampled_from(MAPS), st.booleans(), st.floats(0.0, 10.0, allow_subnormal=False))
seeds = st.integers(0, 2**32 - 1)
gamma_values = st.floats(1e-3, 10.0)


def magnitude(X, local_bias):
    """Size of the products |x|^2 and b of which kernels are differences: what rounding is relative to."""
    return (X**2).sum(axis=1).max() + local_bias


@settings(max_examples=60, deadline=None)
@given(families, seeds, gamma_values, gamma_values)
def test_grams_are_symmetric_and_positive_semidefinite(family, seed, first, second):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(12, 3)) * rng.uniform(0.1, 10.0)
    kernels = family.kernels(X[:2], np.array([first, second]))
    K = kernels.combined_gram(rng.dirichlet([1.0, 1.0]), X, X)
    rounding = 1e-14 * magnitude(X, family.local_bias)
    np.testing.assert_allclose(K, K.T, rtol=0, atol=rounding)
    assert np.linalg.eigvalsh(0.5 * (K + K.T)).min() >= -12 * rounding


@settings(max_examples=60, deadline=None)
@given(families, seeds, gamma_values, st.floats(0.1, 10.0))
def test_a_kernel_is_linear_in_its_scale(family, seed, gamma, factor):
    rng = np.random.default_rng(seed)
    X, a = rng.normal(size=(8, 3)), rng.normal(size=(8, 2))
    plain, scaled = (family.kernels(X[:1], np.array([gamma]), np.array([scale])) for scale in (1.0, factor))
    one, rounding = np.ones(1), 1e-13 * factor * magnitude(X, family.local_bias)
    np.testing.assert_allclose(
        scaled.combined_gram(one, X, X), factor * plain.combined_gram(one, X, X), rtol=0, atol=rounding
    )
    np.testing.assert_allclose(
        scaled.quadratic_forms(X, a),
        factor * plain.quadratic_forms(X, a),
        rtol=0,
        atol=np.abs(a).sum() ** 2 * rounding,
    )


@settings(max_examples=60, deadline=None)
@given(families, seeds, gamma_values, st.floats(0.1, 10.0))
def test_stretching_the_data_and_shrinking_gamma_stretches_the_kernel(family, seed, gamma, factor):
    """x -> t x, gamma -> gamma / t (or t^2), b -> t^2 b multiplies k by t^2."""
    rng = np.random.default_rng(seed)
    X, a = rng.normal(size=(8, 3)), rng.normal(size=(8, 1))
    shrunk = gamma / (factor if uses_plain_distance(family.map) else factor**2)
    stretched = Family(family.map, family.componentwise, factor**2 * family.local_bias)
    before = family.kernels(X[:1], np.array([gamma])).quadratic_forms(X, a)
    after = stretched.kernels(factor * X[:1], np.array([shrunk])).quadratic_forms(factor * X, a)
    size = np.abs(a).sum() ** 2 * magnitude(X, family.local_bias)
    rounding = precision(family)["atol"] * (1.0 + gamma) * size
    np.testing.assert_allclose(after / factor**2, before, rtol=0, atol=rounding)


def test_the_threads_of_a_team_add_up_the_same_bits_in_many_tasks(family, monkeypatch):
    monkeypatch.setattr(locally_linear, "TASK_BYTES", 100_000)
    rng = np.random.default_rng(0)
    X, a = rng.normal(size=(1500, 4)), rng.normal(size=(1500, 2))
    kernels = family.kernels(rng.normal(size=(70, 4)), np.full(70, 0.3))
    with one_blas_thread(), Threads(3) as threads:
        alone, shared = (kernels.quadratic_forms(X, a, who) for who in (Threads(), threads))
        responses = [kernels.responses(X[:5], X, a, who) for who in (Threads(), threads)]
    np.testing.assert_array_equal(shared, alone)
    np.testing.assert_array_equal(*responses)
    sums = np.einsum("ik,ism->ksm", a, kernels.features(X))
    np.testing.assert_allclose(alone, np.einsum("ksm,ksm->s", sums, sums), rtol=1e-9)
