"""The scan against brute force over all kernels of the grid."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from mllkm_scale.base.executor import ThreadExecutor
from mllkm_scale.base.threads import Threads, one_blas_thread
from mllkm_scale.data import Dataset
from mllkm_scale.kernels.grid import KernelGrid
from mllkm_scale.scan import scanner, support, work
from mllkm_scale.scan.products import scan_block
from mllkm_scale.scan.scanner import Scanner
from mllkm_scale.scan.support import Support
from mllkm_scale.scan.work import Best, block_height

SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
SINGLE_ERROR = 0.2 * scanner._SINGLE_PRECISION_MARGIN


def rounding(problem, dtype=DOUBLE):
    """How exact a form is to be, relative to the largest."""
    return 1e-9 if dtype == DOUBLE else SINGLE_ERROR


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
def test_products_agree_with_brute_force(problem, dtype):
    grid = problem.grid
    q = scan_block(grid.family, problem.X, grid.gammas, grid.scales, Support.of(*problem.support, dtype))
    assert q.dtype == np.float64
    tolerance = rounding(problem, dtype)
    np.testing.assert_allclose(q.ravel(), problem.forms, rtol=tolerance, atol=tolerance * problem.forms.max())


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
def test_the_scan_finds_the_kernel_that_brute_force_finds(problem, dtype):
    result = Scanner(problem.grid, dtype=dtype).scan(*problem.support, count=10)
    assert result.ids[0] == problem.forms.argmax()
    np.testing.assert_allclose(result.values, problem.forms[result.ids], rtol=rounding(problem))


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
@pytest.mark.parametrize("count", [1, 10, 1000])
def test_the_maximum_is_a_tight_bound_over_the_whole_grid(problem, dtype, count):
    result = Scanner(problem.grid, dtype=dtype).scan(*problem.support, count=count)
    largest = problem.forms.max()
    exact = rounding(problem)
    assert result.maximum >= largest * (1 - exact)
    assert result.maximum <= largest * (1 + max(exact, 1e-3 if dtype == SINGLE else 0.0))


def test_a_kernel_that_single_precision_cannot_tell_from_the_best_raises_the_bound(problem):
    """Every gamma twice: only one of the two is evaluated again in double precision."""
    grid = problem.grid
    twins = KernelGrid(grid.family, grid.anchors, np.repeat(grid.gammas, 2), np.repeat(grid.scales, 2, axis=1))
    single = Scanner(twins, dtype=SINGLE).scan(*problem.support, count=90)
    assert single.values[0] * (1 + 1e-5) < single.maximum < single.values[0] * (1 + 1e-3)
    double = Scanner(twins, dtype=DOUBLE).scan(*problem.support, count=90)
    assert double.maximum == double.values[0]


def test_candidates_are_the_best_kernel_of_each_of_the_best_anchors(problem):
    result = Scanner(problem.grid, dtype=DOUBLE).scan(*problem.support, count=12)
    per_anchor = problem.forms.reshape(90, 3)
    anchors = np.argsort(-per_anchor.max(axis=1), kind="stable")[:12]
    np.testing.assert_array_equal(result.ids, anchors * 3 + per_anchor[anchors].argmax(axis=1))
    assert np.all(np.diff(result.values) <= 0)


def test_an_excluded_kernel_is_neither_found_nor_counted(problem):
    best = problem.forms.argmax()
    scales = problem.grid.scales.copy()
    scales.flat[best] = 0.0
    grid = KernelGrid(problem.grid.family, problem.grid.anchors, problem.grid.gammas, scales)
    result = Scanner(grid, dtype=DOUBLE).scan(*problem.support, count=90)
    assert best not in result.ids
    assert result.maximum == pytest.approx(np.delete(problem.forms, best).max(), rel=rounding(problem))


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
def test_the_result_has_the_same_bits_with_any_number_of_threads(monkeypatch, problem, dtype):
    monkeypatch.setattr(work, "_MOST_HEIGHT", 8)  # a dozen blocks
    results = []
    for size in (1, 2, 3):
        with one_blas_thread(), Threads(size) as threads:
            results.append(Scanner(problem.grid, ThreadExecutor(threads), dtype).scan(*problem.support, count=20))
    for other in results[1:]:
        np.testing.assert_array_equal(other.ids, results[0].ids)
        np.testing.assert_array_equal(other.values, results[0].values)
        assert other.maximum == results[0].maximum


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
def test_other_chunks_of_the_anchors_give_the_same_kernels(problem, dtype):
    whole = Scanner(problem.grid, dtype=dtype).scan(*problem.support, count=10)
    for rows in (1, 17, 64):
        chunked = Scanner(problem.with_chunks(rows), dtype=dtype).scan(*problem.support, count=10)
        np.testing.assert_array_equal(chunked.ids, whole.ids)
        np.testing.assert_allclose(chunked.values, whole.values, rtol=1e-7)


@pytest.mark.parametrize("far", [0.0, 100.0])
def test_single_precision_errs_less_than_the_margin_also_far_from_the_origin(problem, far):
    grid = problem.grid
    X = problem.X.astype(np.float64) + far
    moved = KernelGrid(grid.family, Dataset.from_arrays(X), grid.gammas, grid.scales)
    rows = np.flatnonzero(problem.signed_duals.any(axis=1))
    support = Support.of(X[rows], problem.signed_duals[rows], SINGLE)
    q = scan_block(moved.family, X, moved.gammas, moved.scales, support)
    assert np.abs(q.ravel() - problem.forms).max() <= SINGLE_ERROR * problem.forms.max()


def test_without_support_every_form_is_zero(problem):
    result = Scanner(problem.grid).scan(problem.X[:0], problem.signed_duals[:0], count=5)
    assert result.maximum == 0.0
    assert not result.values.any()


def test_the_scan_asks_whether_to_go_on_after_every_block(problem):
    class Interrupted(Exception):
        pass

    def poll():
        raise Interrupted

    with pytest.raises(Interrupted):
        Scanner(problem.grid, ThreadExecutor(poll=poll)).scan(*problem.support, count=5)


def test_the_height_of_a_block_bounds_the_bytes_of_its_sums_and_has_a_least_and_a_most():
    assert 64 <= block_height(784, 10, 5) <= work.SUMS_BYTES / (4 * 5 * 10 * 785)
    assert block_height(10**6, 10, 5) == 16
    assert block_height(8, 1, 1) == 128


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
def test_the_support_in_parts_gives_the_same_forms(monkeypatch, problem, dtype):
    """Also where a class has a dual on few rows of a part, on all, or on none."""
    grid, (X, signed_duals) = problem.grid, problem.support
    signed_duals = signed_duals.copy()
    signed_duals[: len(X) // 2, 0] = 0.0
    signed_duals[: len(X) // 2, 1:] = 1.0
    whole = scan_block(grid.family, problem.X, grid.gammas, grid.scales, Support.of(X, signed_duals, dtype))
    monkeypatch.setattr(support, "PART_ROWS", 7)
    parts = scan_block(grid.family, problem.X, grid.gammas, grid.scales, Support.of(X, signed_duals, dtype))
    np.testing.assert_allclose(parts, whole, rtol=1e-9 if dtype == DOUBLE else 1e-4, atol=1e-12)


def test_ranges_of_anchors_put_together_give_the_best_of_all_whatever_the_ranges(problem):
    q = problem.forms.reshape(-1, len(problem.grid.gammas)).round(1)  # with many ties
    whole = Best.none().joined(Best.of(q.copy(), 0), 12)
    for edges in ([0, 1, 2, 90], [0, 30, 60, 90], list(range(91))):
        best = Best.none()
        for first, last in pairwise(edges):
            best = best.joined(Best.none().joined(Best.of(q[first:last].copy(), first), 12), 12)
        np.testing.assert_array_equal(best.ids, whole.ids)
        np.testing.assert_array_equal(best.values, whole.values)
        assert best.rest == whole.rest


def test_a_scan_asked_twice_scans_once(problem):
    asked = []

    def gather():
        asked.append(1)
        return problem.support

    scan = Scanner(problem.grid, dtype=DOUBLE).start(gather, 5)
    assert not asked  # threads begin when the result is asked for
    assert scan.result() is scan.result()
    assert len(asked) == 1
