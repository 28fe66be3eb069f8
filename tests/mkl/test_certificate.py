"""P and D against brute force: any duals prove their D, and of all multiples of them the best one is taken."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale.mkl.certificate import dual_value, primal_value, proof_of

positive = st.floats(1e-3, 1e3)


@given(st.lists(positive, min_size=1, max_size=6), positive)
def test_no_multiple_of_duals_within_the_box_proves_more(values, largest):
    duals = np.array(values)[:, None]
    proof = proof_of(duals, largest)
    tried = [dual_value(t * duals.sum(), t**2 * largest) for t in np.linspace(0.0, 1.0, 101)]
    assert proof.dual >= max(tried) - 1e-9 * max(1.0, abs(proof.dual))
    share = proof.duals.sum() / duals.sum()
    assert share <= 1.0 + 1e-12
    assert proof.dual == pytest.approx(dual_value(proof.duals.sum(), share**2 * largest), rel=1e-9, abs=1e-9)


def test_duals_that_reach_no_kernel_are_taken_whole():
    proof = proof_of(np.ones((3, 2)), 0.0)
    assert proof.dual == 6.0
    assert proof.duals.sum() == 6.0


@pytest.mark.parametrize("seed", range(3))
def test_p_and_d_of_a_small_problem_bracket_its_optimum(mkl_reference, seed):
    rng = np.random.default_rng(seed)
    features, signs = [rng.normal(size=(12, 3)) for _ in range(5)], rng.choice([-1.0, 1.0], size=(12, 2))
    optimum = mkl_reference.solve(features, signs, 2.0).value
    duals, weights = rng.uniform(0.0, 2.0, size=(12, 2)), rng.dirichlet(np.ones(5))
    vectors = [F.T @ (duals * signs) for F in features]
    forms = np.array([np.sum(v**2) for v in vectors])
    outputs = sum(w * F @ v for w, F, v in zip(weights, features, vectors, strict=True))
    loss = 2.0 * np.maximum(0.0, 1.0 - signs * outputs).sum()
    assert proof_of(duals, float(forms.max())).dual <= optimum * (1 + 1e-8)
    assert optimum <= primal_value(weights, forms, loss) * (1 + 1e-8)
