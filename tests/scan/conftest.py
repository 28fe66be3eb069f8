"""A small grid on real data in single precision, and brute force over all of its kernels."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from mllkm_scale.data import Dataset
from mllkm_scale.kernels.gammas import auto_gammas
from mllkm_scale.kernels.grid import Family, KernelGrid
from mllkm_scale.kernels.maps import MAPS
from mllkm_scale.kernels.normalisation import trace_scales

FAMILIES = list(product(MAPS, [False, True]))


@dataclass(frozen=True)
class Problem:
    """Rows, signed duals (n, K), the grid of all rows as anchors, and the true q of every kernel."""

    X: np.ndarray
    signed_duals: np.ndarray
    grid: KernelGrid
    forms: np.ndarray

    @property
    def support(self) -> tuple[np.ndarray, np.ndarray]:
        rows = np.flatnonzero(self.signed_duals.any(axis=1))
        return self.X[rows], self.signed_duals[rows]

    def with_chunks(self, rows: int) -> KernelGrid:
        """The same grid, whose anchors come in chunks of so many rows."""
        grid = self.grid
        return KernelGrid(grid.family, Dataset.from_arrays(self.X, chunk_rows=rows), grid.gammas, grid.scales)


@pytest.fixture(
    scope="session", params=FAMILIES, ids=[f"{name}-{'component' if c else 'global'}" for name, c in FAMILIES]
)
def family(request):
    return Family(*request.param, local_bias=0.8)


@pytest.fixture(scope="session", params=[1, 3], ids=["one-class", "three-classes"])
def problem(request, mkl_reference, small_problem, family):
    X, signs = small_problem("breast_cancer" if request.param == 1 else "wine", 90)
    X = X[:, :7].astype(np.float32)
    rng = np.random.default_rng(8)
    duals = rng.uniform(0.2, 1.0, size=signs.shape) * (rng.uniform(size=signs.shape) < 0.4)
    gammas = auto_gammas(family, X)[[0, 2, 4]]
    scales = trace_scales(family, Dataset.from_arrays(X), gammas, X)
    features = mkl_reference.grid_features(
        X,
        gammas,
        map=family.map,
        componentwise=family.componentwise,
        normalize="trace",
        local_bias=family.local_bias,
    )
    forms = mkl_reference.quadratic_forms(features, duals * signs)
    return Problem(X, duals * signs, KernelGrid(family, Dataset.from_arrays(X), gammas, scales), forms)
