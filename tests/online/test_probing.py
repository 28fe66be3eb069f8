"""Probes find the kernels that brute force finds, whoever works at them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mllkm_scale.kernels.grid import Family
from mllkm_scale.online.probing import Candidates, Probe, Probing

GAMMAS = np.array([0.02, 0.1, 0.5])


@pytest.fixture(params=["global", "component-wise"])
def question(request, small_problem):
    """Probing, and what a probe is about: anchors, reference, support, signed duals."""
    X, signs = small_problem("wine", 120)
    family = Family("gaussian", request.param == "component-wise", 0.5)
    duals = np.random.default_rng(0).uniform(size=(60, 3))
    return Probing(family, GAMMAS, X.shape[1], True), (X[60:], X, X[:60], duals * signs[:60])


def brute_force(probing, anchors, reference, support, signed_duals):
    """(q, anchor, gamma) of the best kernel of each anchor, best first; kernels of too little reach do not count."""
    best = []
    for c, anchor in enumerate(anchors):
        kernels = probing.family.kernels(np.tile(anchor, (len(GAMMAS), 1)), GAMMAS)
        diagonals = np.square(kernels.features(reference)).sum(axis=2)
        reach = diagonals.sum(axis=0) ** 2 / np.square(diagonals).sum(axis=0)
        v = np.einsum("ik,isp->skp", signed_duals, kernels.features(support))
        q = np.where(reach > 10.0, np.square(v).sum(axis=(1, 2)) / diagonals.mean(axis=0), 0.0)
        best.append((q.max(), c, GAMMAS[q.argmax()]))
    return sorted(best, reverse=True)


def test_candidates_are_the_violators_that_brute_force_finds(question):
    probing, about = question
    expected = brute_force(probing, *about)
    threshold = 0.5 * (expected[19][0] + expected[20][0])
    found = probing.begin(*about, threshold, 50).result()
    assert found.gammas.tolist() == [gamma for _, _, gamma in expected[:20]]
    np.testing.assert_allclose(found.anchors, about[0][[c for _, c, _ in expected[:20]]], rtol=1e-6)
    q = found.kernels(probing.family).quadratic_forms(about[2], about[3])
    np.testing.assert_allclose(q, [value for value, _, _ in expected[:20]], rtol=1e-6)
    assert probing.begin(*about, threshold, 7).result().gammas.tolist() == found.gammas[:7].tolist()
    assert len(probing.begin(*about, 1.01 * expected[0][0], 50).result()) == 0


def test_a_thread_beside_finds_the_same_bits(question):
    probing, about = question
    with ThreadPoolExecutor(1) as pool:
        beside = Probing(probing.family, GAMMAS, probing.n_features, True, beside=pool)
        found, alone = beside.begin(*about, 0.0, 50).result(), probing.begin(*about, 0.0, 50).result()
    assert len(found) == 50
    for name in ("anchors", "gammas", "scales"):
        assert getattr(found, name).tobytes() == getattr(alone, name).tobytes()


class Recorded(ThreadPoolExecutor):
    """One thread, and all that was ever given to it."""

    def __init__(self):
        super().__init__(1)
        self.futures = []

    def submit(self, *work):
        self.futures.append(super().submit(*work))
        return self.futures[-1]


def test_a_closed_probe_leaves_no_thread_at_work(question):
    probing, about = question
    release = threading.Event()
    with Recorded() as pool:
        beside = Probing(probing.family, GAMMAS, probing.n_features, True, beside=pool)
        begun = beside.begin(*about, 0.0, 50)
        begun.close()  # waits for it, or takes it back
        assert pool.futures[0].done()
        pool.submit(release.wait, 10)
        waiting = beside.begin(*about, 0.0, 50)
        waiting.close()
        assert pool.futures[2].cancelled()
        release.set()


def test_without_normalisation_the_scales_are_one(question):
    probing, about = question
    found = Probing(probing.family, GAMMAS, probing.n_features, False).begin(*about, 0.0, 50).result()
    assert found.scales.tolist() == [1.0] * 50


def test_without_support_nothing_violates(question):
    probing, (anchors, reference, support, duals) = question
    assert len(probing.begin(anchors, reference, support[:0], duals[:0], 0.0, 5).result()) == 0


def test_a_result_that_is_known_is_given_again():
    calls = []
    probe = Probe(lambda: calls.append(1) or Candidates.none(2), close=lambda: calls.append(2))
    assert probe.result() is probe.result()
    probe.close()  # there is nothing left to end
    assert calls == [1]
