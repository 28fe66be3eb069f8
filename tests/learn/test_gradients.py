"""Derivatives of every parameter against finite differences in double precision: every map, form and metric."""

from __future__ import annotations

import numpy as np
import pytest

from mllkm_scale.kernels.grid import Family
from mllkm_scale.kernels.maps import MAPS
from mllkm_scale.learn.gradients import make_block
from mllkm_scale.learn.machine import Layout, LearnedMachine

N_ROWS, N_FEATURES, N_KERNELS = 8, 3, 4


def random_machine(map_name, componentwise, n_outputs, metric, seed=0, dtype=np.float64):
    rng = np.random.default_rng([seed, n_outputs])
    layout = Layout(Family(map_name, componentwise, 1.0), N_KERNELS, N_FEATURES, n_outputs, metric)
    machine = LearnedMachine.zeros(layout, dtype)
    machine.predictors[:] = rng.normal(size=machine.predictors.shape)
    machine.anchors[:] = rng.normal(size=machine.anchors.shape)
    machine.log_gammas[:] = np.log(rng.uniform(0.1, 0.4, N_KERNELS))
    if machine.metric is not None:
        machine.metric[:] += 0.2 * rng.normal(size=machine.metric.shape)
    X = rng.normal(size=(N_ROWS, N_FEATURES)).astype(dtype)
    signs = np.where(rng.random((N_ROWS, n_outputs)) < 0.5, 1.0, -1.0).astype(dtype)
    return machine, X, signs


def brute_force(machine, X):
    """f by its definition, row by row and kernel by kernel."""
    layout, gammas = machine.layout, np.exp(machine.log_gammas)
    table = machine.predictors.reshape(layout.n_kernels, layout.n_outputs, layout.width)
    M = machine.metric
    M = np.eye(N_FEATURES) if M is None else (M if M.ndim == 2 else np.diag(np.exp(M)))
    h = {
        "exponential": lambda t, g: np.exp(-g * t),
        "gaussian": lambda t, g: np.exp(-g * t * t),
        "linear": lambda t, g: np.maximum(0.0, 1.0 - g * t),
        "squared": lambda t, g: np.maximum(0.0, 1.0 - g * t * t),
    }[layout.family.map]
    F = np.zeros((len(X), layout.n_outputs))
    for i, x in enumerate(X):
        z = M @ x
        for m, a in enumerate(machine.anchors):
            c = M @ a
            for k in range(layout.n_outputs):
                w, b = table[m, k, :-1], table[m, k, -1]
                if layout.family.componentwise:
                    bumps = h(np.abs(z - c), gammas[m])
                    F[i, k] += bumps * (z - c) @ w + b * bumps.mean()
                else:
                    F[i, k] += h(np.linalg.norm(z - c), gammas[m]) * (z @ w + b)
    return F


CASES = [
    (map_name, componentwise, n_outputs, metric)
    for map_name in MAPS
    for componentwise in (False, True)
    for n_outputs in (1, 3)
    for metric in (None, "diagonal", "full", 2)
]


@pytest.mark.parametrize(("map_name", "componentwise", "n_outputs", "metric"), CASES)
def test_every_derivative_is_that_of_finite_differences(map_name, componentwise, n_outputs, metric):
    machine, X, signs = random_machine(map_name, componentwise, n_outputs, metric)
    block = make_block(machine.layout, N_ROWS, np.float64)
    np.testing.assert_allclose(block.decide(machine, X), brute_force(machine, X), rtol=1e-9, atol=1e-10)
    share, weights = 0.3, np.random.default_rng(3).uniform(0.1, 4.0, size=(N_ROWS, 1))

    def loss(values):
        f = brute_force(LearnedMachine(machine.layout, values), X)
        return share * (weights * np.maximum(0.0, 1.0 - signs * f)).sum()

    total, _ = block.step(machine, X, signs * weights, share)
    assert share * total == pytest.approx(loss(machine.values))
    step, numeric = 1e-6, np.empty(machine.layout.size)
    for i in range(len(numeric)):
        moved = [machine.values.copy() for _ in range(2)]
        moved[0][i] += step
        moved[1][i] -= step
        numeric[i] = (loss(moved[0]) - loss(moved[1])) / (2.0 * step)
    np.testing.assert_allclose(block.gradients, numeric, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("componentwise", [False, True])
def test_single_precision_follows_double_precision(componentwise):
    double, X, signs = random_machine("gaussian", componentwise, 3, "diagonal")
    single = LearnedMachine(double.layout, double.values.astype(np.float32))
    exact, fast = make_block(double.layout, N_ROWS, np.float64), make_block(double.layout, N_ROWS)
    exact.step(double, X, signs, 0.1)
    fast.step(single, X.astype(np.float32), signs.astype(np.float32), 0.1)
    np.testing.assert_allclose(fast.gradients, exact.gradients, rtol=2e-4, atol=2e-5)


def test_rows_beyond_every_margin_have_no_derivative():
    machine, X, _ = random_machine("gaussian", False, 2, "diagonal")
    block = make_block(machine.layout, N_ROWS, np.float64)
    f = block.decide(machine, X).copy()
    machine.predictors *= 10.0 / np.abs(f).min()
    assert block.step(machine, X, np.sign(f), 1.0) == (0.0, 0)
    assert not block.gradients.any()
