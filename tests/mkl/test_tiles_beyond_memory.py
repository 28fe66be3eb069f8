"""Tiles of a Gram that is ten times the memory available: bounds in bytes that hold, and the optimum of the dense form.

Tiles are small here, so that what a tile in the making takes is small beside a Gram of 26 MB.
"""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass

import numpy as np
import pytest

from mllkm_scale import Dataset
from mllkm_scale.gram.store import TileStore
from mllkm_scale.kernels.grid import Family
from mllkm_scale.mkl.forms import Choice
from mllkm_scale.mkl.inner import InnerMKL
from mllkm_scale.mkl.restricted import WorkingSets
from mllkm_scale.solver.box import Box

TILE_ROWS = 128
DISK_BYTES = 4_000_000
C, TOL = 0.02, 0.05


@dataclass(frozen=True)
class BruteForce:
    """The problem by the plain formula: every Gram whole and in double precision, one after the other."""

    features: list[np.ndarray]
    signs: np.ndarray

    def check(self, solution):
        """Relative gap of P = 1/2 (sum_m beta_m |v_m|)^2 + C sum hinge and D = 1'alpha - 1/2 max_m |v_m|^2; and f."""
        mass, outputs, forms = solution.duals * self.signs, 0.0, []
        for weight, F in zip(solution.weights, self.features, strict=True):
            products = (F @ F.T) @ mass
            outputs = outputs + weight * products
            forms.append(mass @ products)
        primal = 0.5 * (solution.weights @ np.sqrt(forms)) ** 2 + C * np.maximum(0.0, 1.0 - self.signs * outputs).sum()
        return (primal - (solution.duals.sum() - 0.5 * max(forms))) / primal, outputs


@pytest.fixture
def problem(real_data, mkl_reference):
    """Even against odd digits by ten principal components, 27 kernels."""
    X, y = real_data("digits")
    X = X - X.mean(axis=0)
    X = X @ np.linalg.svd(X, full_matrices=False)[2][:10].T
    X /= X.std(axis=0)
    signs = np.where(y % 2 == 0, 1.0, -1.0)
    anchors, gammas = X[:27], np.resize([0.02, 0.1], 27)
    family = Family("gaussian", False, 0.5)
    features = [
        mkl_reference.kernel_features(X, c, g, map="gaussian", componentwise=False, local_bias=0.5)
        for c, g in zip(anchors, gammas, strict=True)
    ]
    scales = np.array([1.0 / np.mean(np.sum(F**2, axis=1)) for F in features])
    scaled = [np.sqrt(scale) * F for scale, F in zip(scales, features, strict=True)]
    return Dataset.from_arrays(X), family.kernels(anchors, gammas, scales), BruteForce(scaled, signs)


@pytest.fixture
def stores(monkeypatch):
    """The stores that were opened; each is held to its bounds whenever a tile has come."""
    opened = []

    class Watched(TileStore):
        def __init__(self, ram_bytes, disk_bytes, folder):
            super().__init__(ram_bytes, disk_bytes, folder)
            self.bounds, self.folder = (ram_bytes, disk_bytes), folder
            opened.append(self)

        def get(self, key, make):
            tile = super().get(key, make)
            now = self.statistics
            assert now.ram_bytes <= now.ram_peak_bytes <= self.bounds[0]
            assert now.disk_bytes <= now.disk_peak_bytes <= self.bounds[1]
            if now.requests % 500 == 0:
                files = (path for path in self.folder.rglob("*") if path.is_file())
                assert sum(path.stat().st_size for path in files) <= self.bounds[1]
            return tile

    monkeypatch.setattr("mllkm_scale.mkl.inner.TileStore", Watched)
    monkeypatch.setattr("mllkm_scale.mkl.forms.TILE_ROWS", TILE_ROWS)
    for name in ("feature_bytes", "streamed_bytes"):
        monkeypatch.setattr(f"mllkm_scale.mkl.forms.{name}", lambda sizes: 10**9)  # as of more features
    monkeypatch.setattr("mllkm_scale.solver.tiled_svm.TILE_ROWS", TILE_ROWS)
    return opened


def solve(inner, kernels, n_rows, tol):
    weights = np.full(len(kernels), 1.0 / len(kernels))
    return inner(WorkingSets(kernels, weights, [np.arange(n_rows)], [np.zeros(n_rows)], Box.of(C, n_rows)), tol)


def solve_traced(inner, kernels, n_rows):
    """The solution, and the bytes allocated at once for it; what is imported and compiled first does not count."""
    few = WorkingSets(kernels, np.ones(len(kernels)), [np.arange(200)], [np.zeros(200)], Box.of(C, 200))
    inner.alternate(Choice("tiles", 0, ""), few, 0.9)
    tracemalloc.start()
    try:
        return solve(inner, kernels, n_rows, TOL), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_a_gram_of_ten_times_the_memory_is_solved_on_tiles_within_it(problem, stores, monkeypatch, tmp_path):
    data, kernels, brute_force = problem
    n, signs = data.n_rows, brute_force.signs
    available_bytes = 8 * n**2 // 10
    inner = InnerMKL(data, signs[:, None], available_bytes, DISK_BYTES, tmp_path)
    solution, peak = solve_traced(inner, kernels, n)
    assert inner.choices == {"tiles": 1}
    assert peak <= available_bytes

    ram_bytes, disk_bytes = stores[-1].bounds
    assert 0 < ram_bytes < available_bytes
    assert disk_bytes == DISK_BYTES
    did = inner.statistics[-1]
    assert min(did.ram_hits, did.disk_hits, did.rejected) > 0
    assert not list(tmp_path.glob("mllkm-tiles-*"))

    assert solution.weights.min() >= 0
    assert solution.weights.sum() == pytest.approx(1.0)
    assert solution.duals.min() >= 0
    assert solution.duals.max() <= C
    gap, outputs = brute_force.check(solution)
    assert gap <= TOL
    assert gap == pytest.approx(solution.objective.gap, abs=1e-6)

    monkeypatch.setattr(InnerMKL, "choose", lambda *_: Choice("dense", 0, ""))
    dense = solve(InnerMKL(data, signs[:, None], 10**9), kernels, n, 1e-3)
    dense_gap, dense_outputs = brute_force.check(dense)
    assert dense_gap <= 1e-3
    assert dense.objective.dual <= solution.objective.primal
    assert solution.objective.dual <= dense.objective.primal
    assert solution.objective.primal == pytest.approx(dense.objective.primal, rel=TOL)
    assert solution.objective.dual == pytest.approx(dense.objective.dual, rel=TOL)
    assert np.mean(np.sign(outputs) == np.sign(dense_outputs)) >= 1 - TOL
