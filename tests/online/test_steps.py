"""Steps on a block are those of samples that come one by one, each after the machine has learned the ones before it."""

from __future__ import annotations

import numpy as np
import pytest

from mllkm_scale.online.steps import visit_samples


def visit_one_by_one(phi, signs, boxes, w, duals):
    """The same with explicit features (b, p) and predictors w (K, p), of which both w and duals are changed."""
    for i, x in enumerate(phi):
        for k in range(len(w)):
            new = np.clip(duals[i, k] + (1.0 - signs[i, k] * (w[k] @ x)) / (x @ x), 0.0, boxes[i])
            w[k] += (new - duals[i, k]) * signs[i, k] * x
            duals[i, k] = new


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_steps_of_a_block_are_those_of_samples_one_by_one(n_outputs):
    rng = np.random.default_rng(n_outputs)
    phi, w = rng.normal(size=(40, 6)), rng.normal(size=(n_outputs, 6))
    signs = rng.choice([-1.0, 1.0], size=(40, n_outputs))
    boxes = rng.uniform(0.0, 0.5, size=40)
    duals = rng.uniform(0.0, 0.7, size=(40, n_outputs))  # some are above a box that has shrunk
    slow_duals, slow_w = duals.copy(), w.copy()
    outputs = w @ phi.T
    visit_samples(phi @ phi.T, signs, boxes, outputs, duals)
    visit_one_by_one(phi, signs, boxes, slow_w, slow_duals)
    np.testing.assert_allclose(duals, slow_duals, atol=1e-12)
    np.testing.assert_allclose(outputs, slow_w @ phi.T, atol=1e-12)
    assert (duals >= 0.0).all()
    assert (duals <= boxes[:, None]).all()


def test_duals_above_a_box_that_has_shrunk_come_down_to_it():
    duals, outputs = np.array([[2.0], [2.0]]), np.array([[-5.0, -5.0]])  # far within the margin: they want to grow
    visit_samples(np.eye(2), np.ones((2, 1)), np.array([0.5, 0.0]), outputs, duals)
    assert duals.tolist() == [[0.5], [0.0]]
    assert outputs.tolist() == [[-6.5, -7.0]]


def test_the_dual_of_a_sample_that_no_kernel_reaches_goes_to_its_box():
    duals, outputs = np.zeros((1, 1)), np.zeros((1, 1))
    visit_samples(np.zeros((1, 1)), np.ones((1, 1)), np.array([3.0]), outputs, duals)
    assert duals.item() == 3.0
    assert outputs.item() == 0.0
