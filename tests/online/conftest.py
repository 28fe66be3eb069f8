"""Known samples and a grid of kernels to be streamed, with the optimum that a training on all of them finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from mllkm_scale import Dataset, train
from mllkm_scale.kernels.gammas import auto_gammas
from mllkm_scale.kernels.grid import Family, KernelGrid
from mllkm_scale.kernels.normalisation import trace_scales


@dataclass(frozen=True)
class Streamable:
    """Samples, labels, the grid of all kernels, and P and D of a training on all of them at once."""

    X: np.ndarray
    y: np.ndarray
    C: float
    grid: KernelGrid
    primal: float
    dual: float

    @property
    def ids(self) -> np.ndarray:
        """All kernels that are not excluded."""
        return np.flatnonzero(self.grid.scales.ravel())

    def orders(self) -> dict[str, np.ndarray]:
        ids = self.ids
        return {"grid": ids, "reversed": ids[::-1], "random": np.random.default_rng(0).permutation(ids)}


@pytest.fixture(scope="session")
def streamable(real_data) -> Callable[..., Streamable]:
    """A data set by name, standardised; some of its labels, and some of the gammas."""
    known: dict[object, Streamable] = {}

    def make(name: str, labels: tuple[int, ...] | None = None, map: str = "gaussian", gammas: int = 2) -> Streamable:
        key = (name, labels, map, gammas)
        if key not in known:
            known[key] = _make(*real_data(name), labels, map, gammas)
        return known[key]

    return make


def _make(X, y, labels, map, n_gammas) -> Streamable:
    if labels is not None:
        X, y = X[np.isin(y, labels)], y[np.isin(y, labels)]
    X = X[:, X.std(axis=0) > 0].astype(np.float64)
    X = np.ascontiguousarray((X - X.mean(axis=0)) / X.std(axis=0))
    bias, C = 0.2 * X.shape[1], max(0.5, X.shape[1] / 20)
    family = Family(map, local_bias=bias)
    gammas = np.sort(auto_gammas(family, np.random.default_rng(0).permutation(X)[:1000])[1 : 1 + n_gammas])
    rows = Dataset.from_arrays(X)
    grid = KernelGrid(family, rows, gammas, trace_scales(family, rows, gammas, X))
    settings = {"map": map, "C": C, "gammas": gammas, "local_bias": bias, "scaling": "none"}
    record = train(Dataset.from_arrays(X, y), tol=2e-4, n_jobs=1, **settings).model.certificate
    return Streamable(X, y, C, grid, record.primal, record.dual)
