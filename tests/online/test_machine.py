"""The machine that learns online: its sums, its limits, what it forgets, and how near the optimum it comes."""

from __future__ import annotations

import numpy as np
import pytest

from mllkm_scale.kernels.gammas import auto_gammas
from mllkm_scale.kernels.grid import Family
from mllkm_scale.online.active import sums_of
from mllkm_scale.online.machine import BLOCK, EPISODE, OnlineMachine, OnlineSettings
from mllkm_scale.online.probing import Probing


def machine_for(X, n_classes, *, componentwise=False, C=1.0, max_kernels=100, max_samples=10_000, window=None, seed=0):
    family = Family("gaussian", componentwise, 0.2 * X.shape[1])
    probing = Probing(family, auto_gammas(family, X[:500]), X.shape[1], True)
    return OnlineMachine(probing, n_classes, OnlineSettings(C, max_kernels, max_samples, window, seed))


def blocks_of(n, first=0):
    return [np.arange(start, start + BLOCK) for start in range(first, n - BLOCK + 1, BLOCK)]


def signs_of(codes, n_classes):
    return np.where(codes[:, None] == (np.arange(n_classes) if n_classes > 2 else [1]), 1.0, -1.0)


def assert_sums_are_those_of_the_kept_samples(machine):
    kept, active = machine.kept, machine.active
    a = kept.duals * signs_of(kept.codes, machine.n_classes)
    expected = sums_of(active.kernels, kept.rows, a)
    assert np.abs(active.sums - expected).max() <= 1e-8 * max(1e-300, np.abs(expected).max())
    assert active.weights.sum() == pytest.approx(1.0)
    assert active.weights.min() >= 0.0


def brute_force(machine):
    """P and D from explicit features, with each sample's own box."""
    kept, active, settings = machine.kept, machine.active, machine.settings
    signs = signs_of(kept.codes, machine.n_classes)
    phi = active.kernels.features(kept.rows)
    v = np.einsum("ik,isp->ksp", kept.duals * signs, phi)
    q = np.square(v).sum(axis=(0, 2))
    f = np.einsum("s,isp,ksp->ik", active.weights, phi, v, optimize=True)
    boxes = kept.boxes(settings.C, machine.n_seen, settings.max_samples, settings.window)
    boxes = np.maximum(boxes[:, None], kept.duals)
    primal = 0.5 * (active.weights @ np.sqrt(q)) ** 2 + (boxes * np.maximum(0.0, 1.0 - signs * f)).sum()
    return primal, kept.duals.sum() - 0.5 * q.max()


@pytest.fixture(scope="module")
def digits(real_data):
    X, y = real_data("digits")
    rows = np.random.default_rng(0).permutation(len(X))
    X = X[rows][:, X.std(axis=0) > 0]
    return (X - X.mean(axis=0)) / X.std(axis=0) / np.sqrt(X.shape[1]), y[rows]


@pytest.fixture(scope="module")
def blobs():
    """Two classes that overlap a little, in four features."""
    rng = np.random.default_rng(1)
    codes = rng.integers(2, size=2000)
    return rng.normal(size=(2000, 4)) + 2.0 * codes[:, None] * np.array([1.0, -1.0, 0.5, 0.0]), codes


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"max_kernels": 5},
        {"max_kernels": 20, "max_samples": 60},
        {"max_samples": 300},
        {"window": 200},
        {"window": 1},
        {"window": 40, "max_kernels": 1, "componentwise": True},
    ],
    ids=str,
)
def test_sums_and_limits_hold_after_every_block(blobs, limits):
    X, codes = blobs
    machine = machine_for(X, 2, **limits)
    machine.start(X[:200], codes[:200], np.arange(200))
    for ids in [None, *blocks_of(1300, 200)]:
        if ids is not None:
            machine.learn(X[ids], codes[ids], ids)
            assert machine.n_seen == ids[-1] + 1
        assert_sums_are_those_of_the_kept_samples(machine)
        assert len(machine.active) <= machine.settings.max_kernels
        assert len(machine.kept) <= machine.settings.max_samples
        if machine.settings.window is not None:
            assert np.all(machine.n_seen - machine.kept.since < machine.settings.window)
        primal, dual = brute_force(machine) if len(machine.kept) else (0.0, 0.0)
        objective = machine.objective()
        assert objective.primal == pytest.approx(primal, rel=1e-8)
        assert objective.dual == pytest.approx(dual, rel=1e-8, abs=1e-8 * primal)
        assert objective.primal >= objective.dual - 1e-9 * primal
    if "window" not in limits:
        assert np.mean((machine.active.outputs(X[1300:])[:, 0] > 0) == codes[1300:]) > 0.85


def test_no_kernel_is_active_twice(digits):
    X, y = digits
    machine = machine_for(X, 10)
    machine.start(X[:400], y[:400], np.arange(400))
    for ids in 2 * blocks_of(400 + EPISODE * BLOCK, 400):  # whose kernels come again
        machine.learn(X[ids], y[ids], ids)
    kernels = machine.active.kernels
    assert len(np.unique(np.c_[kernels.anchors, kernels.gammas], axis=0)) == len(kernels)
    assert machine.inserted - machine.dropped == len(kernels)


def test_a_sample_that_comes_again_is_kept_once_and_its_dual_goes_on(blobs):
    X, codes = blobs
    machine = machine_for(X, 2)
    passes = np.tile(np.arange(90), 20)  # shorter than the warm-up, and than a block
    machine.start(X[passes[:200]], codes[passes[:200]], passes[:200])
    assert sorted(machine.kept.ids) == sorted(set(machine.kept.ids))
    for at in blocks_of(len(passes), 200):
        ids = passes[at]
        machine.learn(X[ids], codes[ids], ids)
        assert len(set(machine.kept.ids)) == len(machine.kept)
        assert_sums_are_those_of_the_kept_samples(machine)
    one = machine.kept.ids[:1]
    before, since, f = machine.kept.duals[:1].copy(), machine.n_seen, machine.active.outputs(X[one])
    machine.process(X[one], codes[one], one)
    diagonal = machine.active.kernels.diagonals(X[one])[0] @ machine.active.weights
    step = (1.0 - signs_of(codes[one], 2) * f) / diagonal
    np.testing.assert_allclose(machine.kept.duals[:1], np.clip(before + step, 0.0, 1.0), atol=1e-9)
    assert machine.kept.since[0] == since  # and it is young again


def test_what_is_forgotten_has_no_part_in_the_machine(blobs):
    X, codes = blobs
    machine = machine_for(X, 2, window=300)
    machine.start(X[:200], codes[:200], np.arange(200))
    for ids in blocks_of(200 + 4 * BLOCK, 200):
        machine.learn(X[ids], codes[ids], ids)
    assert machine.forgotten > 0
    kept = machine.kept
    assert kept.ids.min() > machine.n_seen - 300
    features = machine.active.kernels.features(kept.rows)
    a = kept.duals * signs_of(kept.codes, 2)
    f = np.einsum("s,jsp,isp,ik->jk", machine.active.weights, features, features, a, optimize=True)
    np.testing.assert_allclose(machine.active.outputs(kept.rows), f, atol=1e-8)


@pytest.mark.parametrize("limit", [{}, {"max_samples": 150}, {"window": 500}], ids=str)
def test_the_machine_follows_labels_that_are_swapped(blobs, limit):
    X, codes = blobs
    machine, swap, errors = machine_for(X, 2, **limit), 200 + 6 * BLOCK, []
    machine.start(X[:200], codes[:200], np.arange(200))
    for ids in blocks_of(2000, 200):
        labels = codes[ids] if ids[0] < swap else 1 - codes[ids]
        errors.extend((machine.learn(X[ids], labels, ids)[:, 0] > 0) != labels)
    errors, at = np.array(errors), 6 * BLOCK
    assert errors[:at].mean() < 0.12
    assert errors[at : at + 10].mean() > 0.5
    assert errors[-3 * BLOCK :].mean() < 0.12
    assert (machine.kept.ids.min() >= swap) == bool(limit)  # what is no longer true is forgotten only if it must be


@pytest.mark.parametrize(("componentwise", "n"), [(False, 384), (True, 256)], ids=["global", "component-wise"])
def test_repeated_passes_come_near_the_optimum_of_samples_and_kernels(blobs, componentwise, n):
    X, codes = blobs[0][:n, :3].copy(), blobs[1][:n]
    machine = machine_for(X, 2, max_kernels=400, componentwise=componentwise)
    machine.start(X[:BLOCK], codes[:BLOCK], np.arange(BLOCK))
    for ids in 8 * blocks_of(n):
        machine.learn(X[ids], codes[ids], ids)
    for _ in range(5):
        machine.finish()
    primal, dual = brute_force(machine)
    assert (primal - dual) / primal == pytest.approx(machine.objective().gap, rel=1e-6)
    assert (primal - dual) / primal < 0.04


def test_a_machine_that_saw_one_class_alone_still_learns_the_other(blobs):
    X, codes = blobs
    order = np.argsort(codes, kind="stable")
    X, codes = X[order], codes[order]
    n = int((codes == 0).sum())
    machine = machine_for(X, 2)
    machine.start(X[:200], codes[:200], np.arange(200))
    for ids in blocks_of(len(X), n - BLOCK):
        machine.learn(X[ids], codes[ids], ids)
    assert_sums_are_those_of_the_kept_samples(machine)
    assert np.mean((machine.active.outputs(X)[:, 0] > 0) == codes) > 0.8


def test_a_copy_goes_its_own_way(blobs):
    X, codes = blobs
    machine = machine_for(X, 2)
    machine.start(X[:200], codes[:200], np.arange(200))
    first, second = blocks_of(200 + 2 * BLOCK, 200)
    machine.learn(X[first], codes[first], first)
    twin, before = machine.copy(), machine.active.outputs(X).tobytes()
    met = twin.learn(X[second], codes[second], second)
    twin.finish()
    assert_sums_are_those_of_the_kept_samples(twin)
    assert machine.active.outputs(X).tobytes() == before != twin.active.outputs(X).tobytes()
    assert_sums_are_those_of_the_kept_samples(machine)
    assert machine.learn(X[second], codes[second], second).tobytes() == met.tobytes()
