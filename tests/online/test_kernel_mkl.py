"""Streamed kernels end where a training on all kernels at once ends, and say truthfully how far they are from it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale import load_model
from mllkm_scale.errors import BudgetError, DataError, ParameterError
from mllkm_scale.kernels.generic import GenericFamily
from mllkm_scale.kernels.grid import Family
from mllkm_scale.mkl.algorithm2 import PaperMKL
from mllkm_scale.online import OnlineKernelMKL


def signs_of(y):
    labels = np.unique(y)
    return np.where(y[:, None] == (labels[1:] if len(labels) == 2 else labels), 1.0, -1.0)


def brute_force(mkl, problem):
    """P of the machine and D over all kernels of the grid, from explicit features, kernel by kernel."""
    machine, signs = mkl.machine, signs_of(problem.y)
    a = machine.duals * signs
    assert machine.duals.min() >= 0 <= problem.C - machine.duals.max()
    f, norm, largest = np.zeros(a.shape), 0.0, 0.0
    weights = dict(zip(machine.active.ids.tolist(), machine.weights.tolist(), strict=True))
    for id in problem.ids.tolist():
        phi = problem.grid.take(np.array([id])).features(problem.X)[:, 0]
        v = phi.T @ a
        largest = max(largest, np.sum(v * v))
        beta = weights.get(id, 0.0)
        norm += beta * np.linalg.norm(v)
        if beta:
            f += beta * phi @ v
    primal = 0.5 * norm**2 + problem.C * np.maximum(0.0, 1.0 - signs * f).sum()
    return primal, machine.duals.sum() - 0.5 * largest


def batches(ids, size):
    return [ids[start : start + size] for start in range(0, len(ids), size)]


@pytest.mark.parametrize("order", ["grid", "reversed", "random"])
@pytest.mark.parametrize(
    ("name", "labels", "size"), [("ionosphere", None, 1), ("usps", (3, 8), 200)], ids=["ionosphere", "usps"]
)
def test_any_order_of_arrival_ends_at_the_batch_optimum(streamable, name, labels, size, order):
    problem = streamable(name, labels)
    mkl = OnlineKernelMKL(problem.X, problem.y, family=problem.grid, C=problem.C, tol=5e-4)
    certificate = mkl.learn(batches(problem.orders()[order], size))
    assert certificate.gap <= 5e-4
    assert certificate.n_seen == len(problem.ids)
    assert certificate.primal == pytest.approx(problem.primal, rel=1e-3)
    assert certificate.dual <= problem.primal
    assert certificate.primal >= problem.dual
    if order == "random":
        primal, dual = brute_force(mkl, problem)
        assert certificate.primal == pytest.approx(primal, rel=1e-9)
        assert (primal - dual) / primal <= 6e-4


def test_shared_weights_of_several_classes_reach_the_batch_optimum(streamable):
    problem = streamable("wine", map="squared")
    mkl = OnlineKernelMKL(problem.X, problem.y, family=problem.grid, C=problem.C)
    for batch in batches(problem.orders()["random"], 20):
        mkl.process(batch)
    certificate = mkl.reprocess()
    assert certificate.primal == pytest.approx(problem.primal, rel=1e-3)
    assert mkl.decision_function(problem.X).shape == (len(problem.X), 3)
    assert np.mean(mkl.predict(problem.X) == problem.y) > 0.95
    primal, dual = brute_force(mkl, problem)
    assert (primal - dual) / primal <= 1.1e-3


def test_kernels_that_come_with_their_anchors_are_those_of_the_grid(streamable, tmp_path):
    problem = streamable("wine", map="squared")
    grid = problem.grid
    by_id = OnlineKernelMKL(problem.X, problem.y, family=grid, C=problem.C)
    by_anchor = OnlineKernelMKL(problem.X, problem.y, C=problem.C)
    for anchor in range(0, len(problem.X), 3):
        ids = anchor * len(grid.gammas) + np.arange(len(grid.gammas))
        by_id.process(ids)
        by_anchor.process(grid.family.kernels(problem.X[[anchor] * len(grid.gammas)], grid.gammas))
    assert by_anchor.reprocess().primal == pytest.approx(by_id.reprocess().primal, rel=1e-6)
    by_anchor.model().save(tmp_path / "model.mllkm")
    model = load_model(tmp_path / "model.mllkm")
    np.testing.assert_allclose(model.decision_function(problem.X), by_id.decision_function(problem.X), atol=1e-5)
    assert (model.certificate.status, model.certificate.n_open) == ("converged", by_id.certificate.n_seen)


def test_generic_kernels_reach_the_optimum_of_the_paper_s_loop(small_problem):
    X, signs = small_problem("breast_cancer", 80)
    family = GenericFamily.fit(X[:, :4])
    *_, (_, paper) = PaperMKL(family, X[:, :4], signs, C=1.0, tol=1e-3).rounds()
    mkl = OnlineKernelMKL(X[:, :4], signs[:, 0].astype(int), family=family)
    certificate = mkl.learn(iter(range(len(family))))
    assert certificate.gap <= 1e-3
    assert certificate.primal == pytest.approx(paper.primal, rel=2e-3)
    f = family.combined_gram(mkl.machine.active.ids, mkl.machine.weights, X[:, :4], X[:, :4])
    np.testing.assert_allclose(mkl.decision_function(X[:, :4]), f @ (mkl.machine.duals * signs)[:, 0], atol=1e-9)


class Cauchy:
    """A kernel of the user's own, on one component."""

    def __init__(self, component, width):
        self.component, self.width = component, width

    def __call__(self, X, Z):
        return 1.0 / (1.0 + np.subtract.outer(X[:, self.component], Z[:, self.component]) ** 2 / self.width)


def test_a_generator_of_the_user_s_own_kernels_reaches_the_optimum_of_a_convex_solver(small_problem, mkl_reference):
    X, signs = small_problem("iris", 60)
    kernels = [Cauchy(l, width) for l in range(X.shape[1]) for width in (0.1, 1.0, 10.0)]
    mkl = OnlineKernelMKL(X, signs.argmax(axis=1), C=2.0)
    certificate = mkl.learn(kernel for kernel in kernels)
    features = [mkl_reference.gram_features(kernel(X, X)) for kernel in kernels]
    assert certificate.primal == pytest.approx(mkl_reference.solve(features, signs, 2.0).value, rel=1e-3)
    with pytest.raises(ParameterError, match="locally linear"):
        mkl.model()


@pytest.mark.parametrize("remember", [0, 40])
def test_on_a_budget_the_known_gap_is_true_and_passes_close_it(streamable, remember):
    problem = streamable("ionosphere")
    stream = batches(problem.orders()["random"], 25)
    mkl = OnlineKernelMKL(problem.X, problem.y, family=problem.grid, C=problem.C, remember=remember)
    once = mkl.learn(stream)
    assert once.n_forgotten > 0
    assert once.n_remembered <= remember
    assert once.dual <= problem.primal
    assert once.primal >= problem.dual
    assert once.likely_gap <= once.gap
    mkl = OnlineKernelMKL(problem.X, problem.y, family=problem.grid, C=problem.C, remember=remember)
    often = mkl.learn(lambda: iter(stream), passes=12)
    assert often.gap <= 1e-3
    assert often.n_seen == len(problem.ids)
    assert problem.dual <= often.primal
    assert often.dual <= problem.primal


def test_what_was_proved_stays_true_when_more_kernels_come(streamable):
    problem = streamable("ionosphere")
    halves = np.array_split(problem.orders()["random"], 2)
    mkl = OnlineKernelMKL(problem.X, problem.y, family=problem.grid, C=problem.C, remember=30)
    mkl.learn(batches(halves[0], 25), passes=3)
    mkl.process(halves[1])
    assert mkl.certificate is None
    certificate = mkl.reprocess()
    assert certificate.n_seen == len(problem.ids)
    assert certificate.dual <= problem.primal
    certificate = mkl.learn(batches(halves[1], 25), passes=2)  # says nothing about the forgotten of the first half
    assert certificate.dual <= problem.primal


@settings(max_examples=5)
@given(st.permutations(range(12)), st.integers(1, 5))
def test_order_and_batches_do_not_matter_to_the_optimum(order, size):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = np.sign(X[:, 0] * X[:, 1])
    kernels = Family("gaussian", local_bias=1.0).kernels(X[:12], np.geomspace(0.1, 2.0, 12))
    optimum = OnlineKernelMKL(X, y, tol=1e-4).learn([kernels]).primal
    mkl = OnlineKernelMKL(X, y, tol=1e-4)
    certificate = mkl.learn(kernels.take(np.array(part)) for part in batches(order, size))
    assert certificate.primal == pytest.approx(optimum, rel=2e-4)
    assert mkl.process(kernels) == 0  # all of them are known


def test_the_bits_do_not_depend_on_the_threads(streamable):
    problem = streamable("wine", map="squared")
    found = []
    for n_jobs in (1, 3):
        with OnlineKernelMKL(problem.X, problem.y, family=problem.grid, C=problem.C, n_jobs=n_jobs) as mkl:
            mkl.learn(batches(problem.ids, 50))
            found.append((mkl.machine.weights.tobytes(), mkl.machine.duals.tobytes()))
    assert found[0] == found[1]


def test_bad_input_is_named_with_its_remedy():
    X, y = np.random.default_rng(0).normal(size=(30, 2)), np.repeat([0, 1], 15)
    kernels = Family("gaussian").kernels
    with pytest.raises(ParameterError, match="remember=-1"):
        OnlineKernelMKL(X, y, remember=-1)
    with pytest.raises(ParameterError, match="C=0"):
        OnlineKernelMKL(X, y, C=0)
    with pytest.raises(DataError, match="one class"):
        OnlineKernelMKL(X, np.zeros(30, dtype=int))
    mkl = OnlineKernelMKL(X, y)
    with pytest.raises(ParameterError, match="no kernel is active"):
        mkl.reprocess()
    with pytest.raises(ParameterError, match="family="):
        mkl.process(3)
    with pytest.raises(ParameterError, match="brings str"):
        mkl.process("gaussian")
    with pytest.raises(DataError, match="3 features"):
        mkl.process(kernels(np.zeros((1, 3)), np.ones(1)))
    with pytest.raises(DataError, match="positive"):
        mkl.process(kernels(np.zeros((1, 2)), np.zeros(1)))
    with pytest.raises(ParameterError, match="iterator"):
        mkl.learn(iter([kernels(X, np.ones(30))]), passes=2)
    mkl.process(kernels(X[:5], np.ones(5)))
    with pytest.raises(ParameterError, match="one family"):
        mkl.process(Family("linear").kernels(X[:5], np.full(5, 0.1)))
    with pytest.raises(ParameterError, match="another kind"):
        mkl.process(lambda X, Z: X @ Z.T)
    with pytest.raises(ParameterError, match="0 to 37"):
        OnlineKernelMKL(X, y, family=GenericFamily.fit(X)).process([38])
    with pytest.raises(DataError, match="for 30 and 30 rows"):
        OnlineKernelMKL(X, y).process(lambda X, Z: X)
    with pytest.raises(BudgetError, match="memory_budget=1"):
        OnlineKernelMKL(X, y, memory_budget="1kB").process(lambda X, Z: X @ Z.T)


def test_a_pass_that_brings_other_kernels_is_refused_and_proves_nothing():
    X = np.random.default_rng(0).normal(size=(60, 2))
    kernels = Family("gaussian", local_bias=1.0).kernels(X, np.full(60, 0.5))
    streams = iter([[kernels], [kernels.take(slice(9))]])
    mkl = OnlineKernelMKL(X, np.sign(X[:, 0]), remember=3, tol=1e-9, normalize=None)
    with pytest.raises(DataError, match="pass 2 over the stream brought 9 kernels, and the first one 60"):
        mkl.learn(lambda: next(streams), passes=2)
    mkl.process(kernels)
    assert mkl.reprocess().dual == 0.0
