"""Small data that a linear machine cannot tell apart, and descents on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mllkm_scale.base.threads import Threads
from mllkm_scale.data import Dataset
from mllkm_scale.data.labels import signs_of
from mllkm_scale.kernels.grid import Family
from mllkm_scale.learn.batches import Batches, Units
from mllkm_scale.learn.descent import Descent, first_machine
from mllkm_scale.learn.settings import LearnSettings

Data = tuple[np.ndarray, np.ndarray]


@pytest.fixture(scope="session")
def xor() -> Data:
    """Four clouds, the opposite ones of the same class, and a feature of noise."""
    rng = np.random.default_rng(1)
    corners = rng.integers(0, 2, (240, 2))
    X = np.column_stack([corners + 0.15 * rng.normal(size=corners.shape), rng.normal(size=len(corners))])
    return X, corners.sum(axis=1) % 2


@pytest.fixture(scope="session")
def rings() -> Data:
    """Three rings one within the other."""
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 3, 240)
    angle, radius = rng.uniform(0, 2 * np.pi, 240), 1.0 + codes + 0.2 * rng.normal(size=240)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), codes


@pytest.fixture(scope="session")
def settings_of() -> Callable[..., LearnSettings]:
    """Settings of a short descent."""

    def make(**given: Any) -> LearnSettings:
        usual = {"n_kernels": 12, "epochs": 15, "batch_rows": 24, "metric": "diagonal", "ridge": 1e-4, "dropout": 0.25}
        return LearnSettings(**usual | given)

    return make


@pytest.fixture(scope="session")
def descent_of(settings_of: Callable[..., LearnSettings]) -> Callable[..., Descent]:
    """A descent on X and codes that has not begun."""

    def make(data: Data, threads: Threads | None = None, family: Family | None = None, **given: Any) -> Descent:
        X, codes = data
        family = family or Family("gaussian")
        settings = settings_of(**given)
        units = Units.of_sample(X.astype(np.float64))
        sample = units.of(X)[np.random.default_rng(settings.seed).permutation(len(X))]
        signs = signs_of(codes, int(codes.max()) + 1)
        machine = first_machine(family, sample, sample, signs.shape[1], settings)
        source = Dataset.from_arrays(X, chunk_rows=50)
        batches = Batches(source, signs, np.ones(len(X), dtype=bool), settings.batch_rows, units, settings.seed)
        return Descent(machine, batches, settings, threads or Threads())

    return make
