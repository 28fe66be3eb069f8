"""The inner problem in its forms: chosen by arithmetic, and the same optimum whichever it is."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from mllkm_scale import Dataset
from mllkm_scale.base.threads import Threads, one_blas_thread
from mllkm_scale.kernels.grid import Family
from mllkm_scale.mkl.forms import (
    Choice,
    InnerSizes,
    choose_form,
    dense_bytes,
    feature_bytes,
    inner_flops,
    kept_bytes,
    lean_bytes,
    streamed_bytes,
    threads_that_fit,
    tile_bytes,
)
from mllkm_scale.mkl.inner import InnerMKL
from mllkm_scale.mkl.restricted import WorkingSets
from mllkm_scale.solver.box import Box


@pytest.fixture
def problem(small_problem):
    def make(componentwise: bool, name: str = "iris"):
        X, signs = small_problem(name, 90)
        family = Family("gaussian", componentwise, 0.5)
        gammas = np.tile([0.05, 0.3], 15)
        kernels = family.kernels(X[:30], gammas)
        kernels = family.kernels(X[:30], gammas, 1.0 / kernels.diagonals(X).mean(axis=0))
        rows = [np.arange(k, 90) for k in range(signs.shape[1])]
        return Dataset.from_arrays(X), signs, kernels, rows

    return make


def sets_of(kernels, rows, C=2.0, weights=None):
    n, box = len(kernels), Box.of(C, 1 + max(int(r.max()) for r in rows)) if weights is None else Box(C, weights)
    return WorkingSets(kernels, np.full(n, 1.0 / n), rows, [np.zeros(len(r)) for r in rows], box)


def solve(inner, kernels, rows, tol, C=2.0, weights=None):
    return inner(sets_of(kernels, rows, C, weights), tol)


@pytest.mark.parametrize("componentwise", [False, True])
@pytest.mark.parametrize("form", ["features", "tiles"])
@pytest.mark.parametrize("weighted", [False, True])
def test_first_order_forms_reach_the_optimum_of_the_interior_point(problem, monkeypatch, form, componentwise, weighted):
    data, signs, kernels, rows = problem(componentwise)
    weights = np.random.default_rng(0).choice([0.1, 1.0, 5.0], 90) if weighted else None
    exact = solve(InnerMKL(data, signs, 10**9), kernels, rows, 1e-7, weights=weights)
    inner = InnerMKL(data, signs, 10**9)
    sizes = inner.sizes(sets_of(kernels, rows))
    choice = choose_form(sizes, 10**9)
    monkeypatch.setattr(InnerMKL, "choose", lambda *_: type(choice)(form, 0, ""))
    monkeypatch.setattr("mllkm_scale.solver.tiled_svm.TILE_ROWS", 32)
    solution = solve(inner, kernels, rows, 1e-3, weights=weights)
    assert inner.choices == {form: 1}
    assert solution.objective.gap <= 1e-3
    assert solution.objective.primal == pytest.approx(exact.objective.primal, rel=1e-3)
    assert solution.objective.dual <= exact.objective.primal * (1 + 1e-9)
    if form == "tiles":
        assert inner.statistics[0].ram_hits > inner.statistics[0].misses


def in_lean_form(monkeypatch):
    monkeypatch.setattr(InnerMKL, "choose", lambda *_: Choice("lean", 0, ""))


@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer"])
def test_the_lean_form_reaches_the_optimum_of_the_dense_one(problem, monkeypatch, name):
    data, signs, kernels, rows = problem(False, name)
    exact = solve(InnerMKL(data, signs, 10**9), kernels, rows, 1e-6)
    in_lean_form(monkeypatch)
    inner = InnerMKL(data, signs, 10**9)
    solution = solve(inner, kernels, rows, 1e-6)
    assert inner.choices == {"lean": 1}
    assert solution.objective.gap <= 1e-6
    assert solution.objective.primal == pytest.approx(exact.objective.primal, rel=2e-6)


def test_the_lean_form_goes_on_from_a_solution_with_fewer_kernels(problem, monkeypatch):
    data, signs, kernels, rows = problem(False)
    in_lean_form(monkeypatch)
    inner = InnerMKL(data, signs, 10**9)
    whole = solve(inner, kernels, rows, 1e-6)
    fewer = solve(inner, kernels.take(np.arange(20)), rows, 1e-6)
    sets = sets_of(kernels, rows)
    start = replace(sets, weights=np.append(fewer.weights, np.zeros(10)), duals=sets.split(fewer.duals))
    again = inner(start, 1e-6)
    assert again.objective.gap <= 1e-6
    assert again.objective.primal == pytest.approx(whole.objective.primal, rel=1e-5)


@pytest.mark.parametrize("form", ["dense", "lean"])
def test_the_number_of_threads_does_not_change_the_bits(problem, monkeypatch, form):
    data, signs, kernels, rows = problem(False)
    monkeypatch.setattr(InnerMKL, "choose", lambda *_: Choice(form, 0, ""))
    monkeypatch.setattr("mllkm_scale.mkl.interior.factors.PANEL", 16)
    monkeypatch.setattr("mllkm_scale.mkl.restricted.ROWS", 16)
    solutions = []
    for size in (1, 2, 3):
        with one_blas_thread(), Threads(size) as threads:
            solutions.append(solve(InnerMKL(data, signs, 10**9, threads=threads), kernels, rows, 1e-4))
    for solution in solutions[1:]:
        assert np.array_equal(solution.duals, solutions[0].duals)
        assert np.array_equal(solution.weights, solutions[0].weights)


def test_tiles_on_disk_give_the_bits_of_tiles_in_memory(problem, monkeypatch, tmp_path):
    data, signs, kernels, rows = problem(False)
    monkeypatch.setattr("mllkm_scale.solver.tiled_svm.TILE_ROWS", 32)
    monkeypatch.setattr(InnerMKL, "solve_free", lambda *_: None)  # whether free samples fit is a matter of the budget
    monkeypatch.setattr("mllkm_scale.mkl.inner.choose_form", lambda *_: type(choose_form(SIZES, 10**9))("tiles", 0, ""))
    monkeypatch.setattr("mllkm_scale.mkl.inner.interior_form", lambda *_: None)  # and so is whether all do
    overhead = tile_bytes(InnerMKL(data, signs, 0).sizes(sets_of(kernels, rows)))
    memory = InnerMKL(data, signs, overhead + 10**8)
    disk = InnerMKL(data, signs, overhead, disk_bytes=10**8, scratch_dir=tmp_path)
    nothing = InnerMKL(data, signs, overhead)
    solutions = [solve(inner, kernels, rows, 0.2) for inner in (memory, disk, nothing)]
    assert memory.statistics[0].ram_hits > 0
    assert disk.statistics[0].disk_hits > 0
    assert nothing.statistics[0].ram_hits == nothing.statistics[0].disk_hits == 0
    for solution in solutions[1:]:
        assert np.array_equal(solution.duals, solutions[0].duals)
        assert np.array_equal(solution.weights, solutions[0].weights)
    assert not any(path.suffix == ".zarr" or path.name.startswith("mllkm-tiles") for path in tmp_path.iterdir())


def test_tiles_of_classes_that_are_done_leave_the_store_to_the_others(problem, monkeypatch):
    data, signs, kernels, rows = problem(False)
    monkeypatch.setattr(InnerMKL, "solve_free", lambda *_: None)
    sets = sets_of(kernels, rows)
    sizes = InnerMKL(data, signs, 0).sizes(sets)
    assert kept_bytes(sizes) < 8 * sum(len(r) ** 2 for r in rows)  # no room for those of all classes
    inner = InnerMKL(data, signs, tile_bytes(sizes) + kept_bytes(sizes))
    inner.alternate(Choice("tiles", 0, ""), sets, 0.2)
    did = inner.statistics[0]
    assert did.rejected == did.ram_bytes == 0
    assert did.ram_hits > did.misses
    assert did.misses % len(rows) == 0  # one tile a class for each set of weights


@pytest.mark.parametrize("n", [300, 1024, 2500])
def test_the_arithmetic_counts_the_tiles_of_the_classes_at_work(n):
    starts = range(0, n, 1024)
    heights = [min(1024, n - start) for start in starts]
    below = sum(a * b for i, a in enumerate(heights) for b in heights[: i + 1])
    assert kept_bytes(InnerSizes([n], 10, 5, False)) == 8 * below
    assert kept_bytes(InnerSizes([n // 2, n, n, n], 10, 5, False)) == 2 * 8 * below


SIZES = InnerSizes([500] * 3, 300, 50, False)


def test_the_interior_point_is_chosen_when_it_fits_and_the_samples_are_few():
    need = dense_bytes(SIZES)
    assert choose_form(SIZES, need).form == "dense"
    assert choose_form(SIZES, need - 1).form != "dense"
    many = InnerSizes([9000] * 3, 300, 50, False)
    assert choose_form(many, dense_bytes(many)).form != "dense"
    assert choose_form(replace(many, componentwise=True), 10**12).form == "dense"


def test_features_are_chosen_when_the_samples_are_many():
    assert choose_form(InnerSizes([50_000], 100, 10, False), 10**11).form == "features"
    assert choose_form(InnerSizes([500], 100, 10, False), 10**11).form == "dense"


def test_tiles_are_chosen_when_neither_features_nor_the_interior_point_fit():
    whole = InnerSizes([10_000], 300, 90, True)
    assert choose_form(whole, dense_bytes(whole)).form == "dense"
    assert choose_form(whole, feature_bytes(whole)).form == "features"
    assert choose_form(whole, feature_bytes(whole) - 1).form == "tiles"
    long = InnerSizes([10_000], 300, 9000, False)
    assert choose_form(long, streamed_bytes(long)).form == "streamed"
    assert choose_form(long, streamed_bytes(long) - 1).form == "tiles"


def test_the_lean_form_is_chosen_when_it_fits_and_the_dense_one_does_not():
    need = lean_bytes(SIZES)
    assert need < dense_bytes(SIZES)
    assert choose_form(SIZES, dense_bytes(SIZES) - 1).form == "lean"
    choice = choose_form(SIZES, need)
    assert (choice.form, choice.bytes) == ("lean", need)
    assert choose_form(SIZES, need - 1).form in ("features", "tiles")
    assert inner_flops(SIZES, "lean") == inner_flops(SIZES, "dense")


@pytest.mark.parametrize("need", [dense_bytes, lean_bytes])
def test_more_than_two_threads_work_at_once_only_where_memory_allows(need):
    choice = choose_form(SIZES, need(SIZES))
    assert threads_that_fit(SIZES, choice, need(SIZES)) == 2
    assert 2 < threads_that_fit(SIZES, choice, 2 * need(SIZES)) < threads_that_fit(SIZES, choice, 10 * need(SIZES))


def test_component_wise_kernels_have_no_lean_form():
    sizes = InnerSizes([2000] * 3, 300, 50, True)
    assert choose_form(sizes, dense_bytes(sizes) - 1).form in ("features", "tiles")


@pytest.mark.parametrize("componentwise", [False, True])
def test_of_noisy_data_only_the_free_samples_are_solved_for(monkeypatch, componentwise):
    """A third of the labels is wrong: most samples are at C, are held there, and the optimum is that of all of them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    signs = np.where((X[:, 0] > 0) ^ (rng.random(400) < 0.3), 1.0, -1.0)[:, None]
    family = Family("gaussian", componentwise, 0.5)
    kernels = family.kernels(X[:20], np.tile([0.1, 0.5], 10))
    kernels = family.kernels(X[:20], np.tile([0.1, 0.5], 10), 1.0 / kernels.diagonals(X).mean(axis=0))
    rows, data = [np.arange(400)], Dataset.from_arrays(X)
    exact = solve(InnerMKL(data, signs, 10**9), kernels, rows, 1e-6, C=0.05)
    sizes = []
    joint = InnerMKL.solve_free

    def counted(self, sets, weights, duals, free, tol):
        sizes.append(int(free[0].sum()))
        return joint(self, sets, weights, duals, free, tol)

    monkeypatch.setattr(InnerMKL, "solve_free", counted)
    found = InnerMKL(data, signs, 10**9).alternate(Choice("features", 0, ""), sets_of(kernels, rows, C=0.05), 1e-4)
    assert found.objective.gap <= 1e-4
    assert exact.objective.dual <= found.objective.primal
    assert found.objective.dual <= exact.objective.primal
    assert sizes
    assert max(sizes) < 240


@pytest.mark.parametrize("componentwise", [False, True])
def test_samples_held_at_their_optimal_duals_leave_the_optimum_as_it_is(problem, componentwise):
    data, signs, kernels, rows = problem(componentwise)
    inner = InnerMKL(data, signs, 10**9)
    exact = solve(inner, kernels, rows, 1e-8)
    duals = sets_of(kernels, rows).split(exact.duals.copy())
    free = [(part > 1e-4) & (part < 2.0 - 1e-4) for part in duals]
    duals = [np.where(mask, 1.0, np.round(part / 2.0) * 2.0) for part, mask in zip(duals, free, strict=True)]
    assert any((~mask & (part > 0)).any() for part, mask in zip(duals, free, strict=True))
    weights = inner.solve_free(sets_of(kernels, rows), exact.weights, duals, free, 1e-6)
    signed = [part * signs[r, k] for k, (part, r) in enumerate(zip(duals, rows, strict=True))]
    forms = sum(kernels.quadratic_forms(data.rows(r), mass[:, None]) for r, mass in zip(rows, signed, strict=True))
    dual = sum(part.sum() for part in duals) - 0.5 * forms.max()
    assert dual == pytest.approx(exact.objective.dual, rel=1e-4)
    assert weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(("form", "componentwise"), [("dense", False), ("dense", True), ("lean", False)])
def test_the_arithmetic_bounds_what_the_interior_point_allocates(problem, monkeypatch, form, componentwise):
    data, signs, kernels, rows = problem(componentwise)
    monkeypatch.setattr(InnerMKL, "choose", lambda *_: Choice(form, 0, ""))
    inner = InnerMKL(data, signs, 10**9)
    sizes = inner.sizes(sets_of(kernels, rows))
    assert peak_of(inner, kernels, rows) <= (lean_bytes(sizes) if form == "lean" else dense_bytes(sizes))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_lean_form_takes_what_it_says_where_rows_are_long(monkeypatch, dtype):
    rng = np.random.default_rng(0)
    X, signs = rng.normal(size=(800, 300)).astype(dtype), rng.choice([-1.0, 1.0], size=(800, 3))
    kernels = Family("gaussian", False, 0.5).kernels(X[:150].astype(float), np.full(150, 1e-3))
    rows = [np.arange(k, 800, step) for k, step in enumerate((1, 2, 3))]
    in_lean_form(monkeypatch)
    inner = InnerMKL(Dataset.from_arrays(X), signs, 10**9)
    need = lean_bytes(inner.sizes(sets_of(kernels, rows)))
    assert 0.25 * need < peak_of(inner, kernels, rows, 0.5) <= need  # factors are counted in double precision


def peak_of(inner, kernels, rows, tol=1e-3):
    """Bytes allocated at once while the problem is solved, for the second time."""
    solve(inner, kernels, rows, 0.9)
    tracemalloc.start()
    solve(inner, kernels, rows, tol)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak
