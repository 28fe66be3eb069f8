"""Where the loop begins, and what it works on next: samples that join, kernels that leave, pairs that are the best."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale import Dataset, train
from mllkm_scale.base.threads import Threads
from mllkm_scale.mkl.certificate import Proof
from mllkm_scale.mkl.renewal import Renewal
from mllkm_scale.mkl.starts import cold_start, start_from_machine, start_from_other_C
from mllkm_scale.mkl.state import Settings

PLAIN = Settings(C=2.0, first_samples=10)


def signs_of(n, K=1, seed=0):
    return np.random.default_rng(seed).choice([-1.0, 1.0], size=(n, K))


def test_a_cold_start_has_half_of_each_sign_with_the_same_mass():
    signs = signs_of(400, 3)
    state = cold_start(signs, PLAIN)
    assert state.working.sum(axis=0).tolist() == [10, 10, 10]
    np.testing.assert_allclose((state.duals * signs).sum(axis=0), 0.0, atol=1e-12)
    assert not len(state.active)
    assert state.duals.max() <= PLAIN.C


@pytest.mark.parametrize("noisy", [False, True])
def test_a_known_machine_starts_with_what_is_near_its_margin(noisy):
    n = 20_000
    margins = np.random.default_rng(0).uniform(-1.0 if noisy else 0.9, 5.0, size=(n, 1))
    state = start_from_machine(np.array([3, 7]), np.array([1.0, 3.0]), margins, signs_of(n), PLAIN)
    within, working = margins < 1.0, state.working
    assert working.sum() == n // 4
    near = margins < PLAIN.margin
    assert within[working].mean() == pytest.approx(within[near].mean(), abs=0.02)
    assert not working[margins >= PLAIN.margin].any()
    assert (state.duals == np.where(working & within, PLAIN.C, 0.0)).all()
    assert state.weights.tolist() == [0.25, 0.75]


def test_a_machine_without_mistakes_starts_with_its_nearest_samples():
    margins = np.linspace(4.0, 9.0, 100)[:, None]
    state = start_from_machine(np.array([0]), np.ones(1), margins, signs_of(100), PLAIN)
    assert np.flatnonzero(state.working[:, 0]).tolist() == list(range(10))


def test_duals_at_the_bound_follow_it_to_another_C():
    state = replace(cold_start(signs_of(4), PLAIN), duals=np.array([[0.0], [0.5], [1.0], [0.9999]]), bound=3.0)
    after = start_from_other_C(state, 1.0, PLAIN)
    assert after.duals.ravel().tolist() == [0.0, 0.5, 2.0, 2.0]
    assert after.bound == 0.0
    assert after.best_gap == np.inf


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_samples_within_the_margin_join_until_all_are_at_work(seed):
    rng = np.random.default_rng(seed)
    margins, signs = rng.uniform(-1.0, 5.0, size=(500, 2)), signs_of(500, 2)
    renewal = Renewal(None, 2, PLAIN, Threads())
    state = cold_start(signs, PLAIN)
    for round_ in range(12):
        before = state.working
        state = replace(renewal.renew_samples(state, margins), round=round_)
        assert not state.working[margins >= PLAIN.margin].any()
        kept = (before & (margins < PLAIN.margin)).sum(axis=0)
        assert (state.working.sum(axis=0) <= kept + np.maximum(PLAIN.first_samples, 3 * kept)).all()
    assert state.working[margins < 1.0].all()


def test_a_class_that_is_learned_without_a_mistake_keeps_its_nearest_sample():
    margins, signs = np.array([[5.0, 0.5], [3.0, 5.0], [4.0, 5.0]]), signs_of(3, 2)
    state = Renewal(None, 2, PLAIN, Threads()).renew_samples(cold_start(signs, PLAIN), margins)
    assert state.working.T.tolist() == [[False, True, False], [True, False, False]]


def test_the_best_machine_and_the_best_duals_may_be_of_different_rounds():
    state = replace(cold_start(signs_of(3), PLAIN), active=np.array([4, 5]), weights=np.array([0.0, 1.0]))
    first = state.improved(10.0, None)
    assert (first.best_primal, first.idle, first.machine.active.tolist()) == (10.0, 0, [5])
    second = replace(first, active=np.array([6]), weights=np.ones(1)).improved(12.0, Proof(4.0, np.ones((3, 1))))
    assert (second.best_primal, second.bound, second.idle) == (10.0, 4.0, 0)
    assert second.machine.active.tolist() == [5]
    assert second.best_gap == pytest.approx(0.6)
    third = second.improved(9.99, Proof(4.0, np.zeros((3, 1))))
    assert (third.best_primal, third.idle) == (9.99, 1)
    assert third.proof.all()


@pytest.mark.parametrize("overlap", ["always", "never"])
def test_noisy_data_come_a_part_at_a_time_to_the_optimum_of_all_of_them(mkl_reference, monkeypatch, overlap):
    """A third of the labels is wrong, and the first round has an eighth of the samples."""
    monkeypatch.setattr("mllkm_scale.run.strategy.Settings", lambda **given: Settings(first_samples=20, **given))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(160, 2))
    y = ((X[:, 0] > 0) ^ (rng.random(160) < 0.33)).astype(int)
    problem = {"gammas": (0.1, 0.5), "C": 1.0}
    family = {"map": "gaussian", "componentwise": False, "normalize": "trace", "local_bias": 0.5}
    optimum = mkl_reference.optimum(X, np.where(y, 1.0, -1.0)[:, None], **problem, **family)
    ours = {"anchors": "all", "scaling": "none", "local_bias": 0.5, "n_jobs": 1, "tol": 1e-4, "overlap": overlap}
    result = train(Dataset.from_arrays(X, y), **problem, **ours)
    assert result.history[0].n_working == 20
    assert result.status == "converged"
    assert all(event.dual <= optimum * (1 + 1e-8) <= event.primal * (1 + 2e-8) for event in result.history)
    assert result.model.certificate.dual == pytest.approx(optimum, rel=1e-4)
