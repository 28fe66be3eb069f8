"""The scan of a grid with a list of further kernels, against brute force over both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mllkm_scale.base.executor import ThreadExecutor
from mllkm_scale.base.threads import Threads, one_blas_thread
from mllkm_scale.kernels.normalisation import list_scales
from mllkm_scale.scan import scanner
from mllkm_scale.scan.scanner import Scanner, Share

DTYPES = [np.dtype(np.float32), np.dtype(np.float64)]
N_LISTED = 7


@pytest.fixture
def listed(problem, mkl_reference):
    """A grid with kernels off the samples, and q of all kernels, those of the list first."""
    rng, family = np.random.default_rng(5), problem.grid.family
    X = problem.X.astype(np.float64)
    anchors = X[:N_LISTED] + 0.3 * rng.normal(size=(N_LISTED, X.shape[1]))
    gammas = rng.choice(problem.grid.gammas, N_LISTED) * rng.uniform(0.5, 1.5, N_LISTED)
    scales = list_scales(family, anchors, gammas, X)
    how = {"map": family.map, "componentwise": family.componentwise, "local_bias": family.local_bias}
    features = [
        np.sqrt(scale) * mkl_reference.kernel_features(X, anchor, gamma, **how)
        for anchor, gamma, scale in zip(anchors, gammas, scales, strict=True)
    ]
    forms = mkl_reference.quadratic_forms(features, problem.signed_duals)
    grid = replace(problem.grid, listed=family.kernels(anchors, gammas, scales))
    return grid, np.concatenate([forms, problem.forms])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("heavy", [False, True], ids=["grid-wins", "list-wins"])
def test_the_scan_finds_the_best_of_list_and_grid_and_bounds_all(problem, listed, dtype, heavy):
    grid, forms = listed
    if heavy:
        factor = 3.0 * forms[N_LISTED:].max() / forms[:N_LISTED].max()
        kernels = grid.listed
        grid = replace(grid, listed=replace(kernels, scales=factor * kernels.scales))
        forms = np.concatenate([factor * forms[:N_LISTED], forms[N_LISTED:]])
    result = Scanner(grid, dtype=dtype).scan(*problem.support, count=10)
    assert result.ids[0] == forms.argmax()
    assert (result.ids[0] < N_LISTED) == (heavy or forms[:N_LISTED].max() > forms[N_LISTED:].max())
    np.testing.assert_allclose(result.values, forms[result.ids], rtol=1e-9)
    assert (np.diff(result.values) <= 0).all()
    assert set(range(N_LISTED)) <= set(result.ids.tolist())
    assert len(result.ids) == N_LISTED + 10
    assert result.n_kernels == len(grid)
    margin = 0.0 if dtype == np.float64 else 10 * scanner._SINGLE_PRECISION_MARGIN
    assert forms.max() * (1 - 1e-9) <= result.maximum <= forms.max() * (1 + max(margin, 1e-9))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_share_of_the_grid_has_the_whole_list(problem, listed, dtype):
    grid, forms = listed
    grid = replace(grid, anchors=problem.with_chunks(8).anchors)
    result = Scanner(grid, dtype=dtype).start(lambda: problem.support, 10, Share(1, 3)).result()
    assert not result.complete
    assert set(range(N_LISTED)) <= set(result.ids.tolist())
    assert N_LISTED < result.n_kernels < len(grid)
    assert result.maximum >= forms[:N_LISTED].max() * (1 - 1e-9)


def test_threads_change_no_bit(problem, listed):
    grid, found = replace(listed[0], anchors=problem.with_chunks(8).anchors), []
    for size in (1, 2, 3):
        with one_blas_thread(), Threads(size) as threads:
            result = Scanner(grid, ThreadExecutor(threads), threads=threads).scan(*problem.support, count=20)
        found.append((result.ids.tobytes(), result.values.tobytes(), result.maximum))
    assert found[0] == found[1] == found[2]


def test_where_all_of_the_grid_is_excluded_the_list_is_scanned(problem, listed):
    grid, forms = listed
    alone = replace(grid, scales=np.zeros_like(grid.scales))
    result = Scanner(alone, dtype=np.float64).scan(*problem.support, count=5)
    assert result.ids[0] == forms[:N_LISTED].argmax()
    assert result.maximum == pytest.approx(forms[:N_LISTED].max())
