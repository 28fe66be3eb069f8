"""The 19 kernels of every component against direct formulas."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels import generic
from mllkm_scale.kernels.generic import SIMPLEMKL_GAMMAS, ActiveGeneric, GenericFamily

GAMMAS = np.geomspace(0.01, 5.0, 10)
TYPES = [("gaussian", gamma) for gamma in GAMMAS] + [(c, p) for c in (0.0, 0.5, 1.0) for p in (1, 2, 3)]


def one_gram(id, X, Z):
    """k(x, z) of one kernel, entry by entry."""
    component, kind = divmod(id, 19)
    K = np.empty((len(X), len(Z)))
    for i, x in enumerate(X[:, component]):
        for j, z in enumerate(Z[:, component]):
            c, p = TYPES[kind]
            K[i, j] = np.exp(-p * (x - z) ** 2) if c == "gaussian" else (x * z + c) ** p
    return K


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(12, 3)) * [1.0, 0.2, 3.0]


@pytest.fixture
def Z():
    return np.random.default_rng(1).normal(size=(5, 3))


@pytest.fixture
def family(X):
    """Kernels with scales of their own, so that none can be forgotten."""
    plain = GenericFamily.fit(X, GAMMAS, normalize=None)
    return GenericFamily(3, plain.gammas, "trace", np.random.default_rng(2).uniform(0.5, 2.0, 57))


@pytest.fixture(params=[1, 3], ids=["one-class", "three-classes"])
def signed_duals(request):
    A = np.random.default_rng(3).normal(size=(12, request.param))
    A[[2, 7]] = 0.0
    return A


def test_there_are_nineteen_kernels_for_each_component():
    for d in (1, 4, 34):
        family = GenericFamily.fit(np.random.default_rng(0).normal(size=(30, d)))
        assert len(family) == 19 * d
        assert family.scales.shape == (19 * d,)


def test_the_bandwidths_are_those_of_simplemkl():
    sigmas = np.array([0.5, 1, 2, 5, 7, 10, 12, 15, 17, 20])
    np.testing.assert_allclose(SIMPLEMKL_GAMMAS, 1 / (2 * sigmas**2))
    np.testing.assert_array_equal(GenericFamily.fit(np.eye(3)).gammas, SIMPLEMKL_GAMMAS)


def test_every_gram_is_that_of_its_formula(family, X, Z):
    for id in range(57):
        expected = family.scales[id] * one_gram(id, X, Z)
        np.testing.assert_allclose(family.gram(id, X, Z), expected, rtol=1e-12, atol=1e-12, err_msg=family.describe(id))


def test_the_combined_gram_is_the_weighted_sum_of_grams(family, X, Z):
    ids = np.array([56, 3, 11, 12, 30, 3, 20])  # twice the same component, and twice the same kernel
    weights = np.array([0.1, 0.2, 0.3, 0.0, 0.15, 0.2, 0.05])
    expected = sum(b * family.scales[id] * one_gram(id, X, Z) for b, id in zip(weights, ids, strict=True))
    np.testing.assert_allclose(family.combined_gram(ids, weights, X, Z), expected, rtol=1e-12, atol=1e-12)


def test_diagonals_are_those_of_the_grams(family, X):
    ids = np.array([40, 2, 13, 56])
    expected = np.stack([np.diag(family.scales[id] * one_gram(id, X, X)) for id in ids], axis=1)
    np.testing.assert_allclose(family.diagonals(ids, X), expected, rtol=1e-12)


@pytest.mark.parametrize("block_bytes", [4 << 20, 3 * 8 * 10, 1], ids=["one-block", "three-rows", "one-row"])
def test_quadratic_forms_of_all_kernels_are_those_of_their_grams(monkeypatch, family, X, signed_duals, block_bytes):
    monkeypatch.setattr(generic, "_BLOCK_BYTES", block_bytes)
    expected = [family.scales[id] * np.vdot(signed_duals, one_gram(id, X, X) @ signed_duals) for id in range(57)]
    np.testing.assert_allclose(family.quadratic_forms(X, signed_duals), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kept_bytes", [1 << 20, 2 * 8 * 144, 0], ids=["all-kept", "two-kept", "none-kept"])
def test_active_kernels_answer_like_the_family_whatever_they_keep(family, X, signed_duals, kept_bytes):
    ids = np.array([4, 31, 10, 0, 19, 55, 7])
    active = ActiveGeneric(family, ids, X, kept_bytes)
    weights = np.array([0.1, 0.2, 0.3, 0.0, 0.2, 0.1, 0.1])
    for _ in range(2):
        np.testing.assert_allclose(active.gram(weights), family.combined_gram(ids, weights, X, X), rtol=1e-12)
        np.testing.assert_allclose(active.forms(signed_duals), family.quadratic_forms(X, signed_duals)[ids], rtol=1e-10)


def test_unit_trace_gives_every_open_kernel_a_mean_diagonal_of_one(real_data):
    X, _ = real_data("wine")
    X = np.column_stack([X, np.zeros(len(X)), np.eye(len(X))[:, 0]])  # a dead column, and one sample in a column
    family = GenericFamily.fit(X)
    open_set = np.flatnonzero(family.scales)
    np.testing.assert_allclose(family.diagonals(open_set, X).mean(axis=0), 1.0, rtol=1e-12)
    excluded = {family.describe(id) for id in np.flatnonzero(family.scales == 0)}
    assert excluded == {f"(x_{l} z_{l}){power}" for l in (13, 14) for power in ("", "^2", "^3")}


def test_kernels_as_they_are_have_unit_scales(real_data):
    X, _ = real_data("iris")
    assert np.all(GenericFamily.fit(X, normalize=None).scales == 1.0)


def test_kernels_are_described_by_their_formula(family):
    assert family.describe(0) == "exp(-0.01 (x_0 - z_0)^2)"
    assert family.describe(19 + 10) == "(x_1 z_1)"
    assert family.describe(2 * 19 + 14) == "(x_2 z_2 + 0.5)^2"
    assert family.describe(18) == "(x_0 z_0 + 1)^3"


@pytest.mark.parametrize("gammas", [[1.0], np.zeros(10), -GAMMAS, np.full(10, np.nan)])
def test_gammas_that_cannot_work_are_refused(gammas):
    with pytest.raises(ParameterError, match="10 positive numbers"):
        GenericFamily.fit(np.eye(3), gammas)


def test_an_unknown_normalisation_is_refused():
    with pytest.raises(ParameterError, match="normalize='max'"):
        GenericFamily.fit(np.eye(3), normalize="max")


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 37), st.integers(0, 2**32 - 1))
def test_grams_are_symmetric_and_positive_semidefinite(id, seed):
    X = np.random.default_rng(seed).normal(size=(10, 2))
    K = GenericFamily.fit(X, normalize=None).gram(id, X, X)
    np.testing.assert_allclose(K, K.T, rtol=1e-12, atol=1e-14)
    assert np.linalg.eigvalsh(K).min() >= -1e-12 * np.trace(K)
