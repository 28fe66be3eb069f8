"""Active kernels: sums, outputs and weights are those of the definitions, by explicit features, for every family."""

from __future__ import annotations

import numpy as np
import pytest

from mllkm_scale.data import Dataset
from mllkm_scale.kernels.grid import Family
from mllkm_scale.online.active import ActiveKernels, sums_of
from mllkm_scale.online.model import model_of
from mllkm_scale.online.setup import Setup
from mllkm_scale.params import resolve

FAMILIES = [
    Family(map, componentwise, local_bias)
    for map, componentwise, local_bias in [
        ("gaussian", False, 0.0),
        ("exponential", False, 0.7),
        ("squared", False, 0.3),
        ("gaussian", True, 0.7),
        ("linear", True, 0.0),
    ]
]


@pytest.fixture(params=FAMILIES, ids=lambda f: f"{f.map}-{'component-wise' if f.componentwise else 'global'}")
def family(request):
    return request.param


def some_kernels(family, rng, n=6, d=4):
    return family.kernels(rng.normal(size=(n, d)), rng.uniform(0.1, 0.4, size=n), rng.uniform(0.5, 2.0, size=n))


def machine_of(family, rng, n_outputs=3):
    """Kernels with weights, and the sums of some samples, given with their signed duals."""
    kernels, X = some_kernels(family, rng), rng.normal(size=(25, 4))
    a = rng.normal(size=(25, n_outputs)) * (rng.uniform(size=(25, n_outputs)) < 0.6)
    return ActiveKernels(kernels, rng.dirichlet(np.ones(len(kernels))), sums_of(kernels, X, a)), X, a


def direct_sums(kernels, X, a):
    return np.einsum("ik,isp->ksp", a, kernels.features(X))


def direct_outputs(active, Z, X, a):
    """f = sum_m beta_m sum_i a_i k_m(x_i, z)."""
    left, right = active.kernels.features(Z), active.kernels.features(X)
    return np.einsum("s,jsp,isp,ik->jk", active.weights, left, right, a, optimize=True)


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)


def test_sums_outputs_and_forms_are_those_of_the_definitions(family):
    rng = np.random.default_rng(0)
    active, X, a = machine_of(family, rng)
    Z = rng.normal(size=(9, 4))
    close(active.sums, direct_sums(active.kernels, X, a))
    close(active.outputs(Z), direct_outputs(active, Z, X, a))
    close(active.forms(), active.kernels.quadratic_forms(X, a))
    close(active.parts(), active.weights * np.sqrt(active.kernels.quadratic_forms(X, a)))


def test_sums_follow_the_samples_that_are_visited_and_those_that_come_and_leave(family):
    rng = np.random.default_rng(1)
    active, X, a = machine_of(family, rng)
    Z, signs = rng.normal(size=(30, 4)), rng.choice([-1.0, 1.0], size=(30, 3))
    before = rng.uniform(0.0, 0.2, size=(30, 3))
    active.add(Z, before * signs)
    duals = before.copy()
    outputs, after = active.visit(Z, signs, np.full(30, 0.3), duals)
    assert np.any(duals != before)
    close(active.sums, direct_sums(active.kernels, np.r_[X, Z], np.r_[a, duals * signs]))
    close(outputs, direct_outputs(active, Z, np.r_[X, Z], np.r_[a, before * signs]))
    close(after, direct_outputs(active, Z, np.r_[X, Z], np.r_[a, duals * signs]))
    active.add(Z, -duals * signs)
    close(active.sums, direct_sums(active.kernels, X, a))


def test_kernels_join_and_stay_with_their_sums_and_weights(family):
    rng = np.random.default_rng(2)
    active, X, a = machine_of(family, rng)
    joining, weights = some_kernels(family, rng, n=3), active.weights
    active.join(joining, sums_of(joining, X, a))
    assert len(active) == 9
    close(active.weights.sum(), 1.0)
    close(active.weights[:6] / active.weights[0], weights / weights[0])
    assert np.ptp(active.weights[6:]) == 0.0 < active.weights[6] <= active.weights[:6].mean()
    close(active.sums, direct_sums(active.kernels, X, a))
    active.keep(np.array([1, 4, 8]))
    assert active.kernels.gammas[2] == joining.gammas[2]
    close(active.weights.sum(), 1.0)
    close(active.sums, direct_sums(active.kernels, X, a))
    close(active.outputs(X), direct_outputs(active, X, X, a))


def test_of_kernels_that_would_join_the_active_ones_are_known(family):
    rng = np.random.default_rng(3)
    active, _, _ = machine_of(family, rng)
    mine, others = active.kernels, some_kernels(family, rng, n=2)
    both = family.kernels(
        np.r_[mine.anchors[:2], others.anchors, mine.anchors[:1]],
        np.r_[mine.gammas[:2], others.gammas, 2.0 * mine.gammas[:1]],
        np.full(5, 3.0),  # another normalisation does not make it another kernel
    )
    assert active.without_known(both).gammas.tolist() == [*others.gammas, 2.0 * mine.gammas[0]]


def test_reweighing_is_the_minimum_over_the_simplex_and_never_raises_the_saddle_value(family):
    rng = np.random.default_rng(4)
    active, _, _ = machine_of(family, rng)
    old, norms, forms = active.weights, active.parts(), active.forms()
    active.reweigh()
    close(active.weights.sum(), 1.0)
    # sum_m |w_m|^2 / beta_m, w as it was, has the least value (sum_m |w_m|)^2 of all weights.
    close((norms**2 / active.weights).sum(), norms.sum() ** 2)
    for other in [old, *rng.dirichlet(np.ones(len(old)), size=20)]:
        assert (norms**2 / other).sum() >= norms.sum() ** 2 * (1.0 - 1e-12)
    # And min over beta of sum alpha - 1/2 sum_m beta_m q_m is what is sought: it comes down.
    assert active.weights @ forms >= old @ forms


def test_weights_stay_where_no_kernel_has_a_part(family):
    kernels = some_kernels(family, np.random.default_rng(5), n=2)
    active = ActiveKernels(kernels, np.array([0.25, 0.75]), np.zeros((1, 2, 5)))
    active.reweigh()
    assert active.weights.tolist() == [0.25, 0.75]


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_a_model_of_the_coefficients_decides_the_same(family, n_outputs):
    rng = np.random.default_rng(6)
    active, X, _ = machine_of(family, rng, n_outputs)
    classes = np.arange(max(2, n_outputs))
    setup = Setup.of(Dataset.from_arrays(X), classes, resolve(map=family.map, componentwise=family.componentwise))
    setup = Setup(classes, setup.preprocessor, family, setup.gammas, setup.C)
    raw = rng.normal(size=(12, 4))
    model = model_of(setup, active, resolve(), 25)
    expected = active.outputs(setup.prepare(raw))
    close(model.decision_function(raw).reshape(12, n_outputs), expected)
