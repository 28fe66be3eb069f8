"""Small models with known duals: the coefficients are those of `kernels`, the reference is a plain loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from mllkm_scale.data import Dataset, Preprocessor
from mllkm_scale.kernels.grid import Family
from mllkm_scale.model import Model, ModelRecord


@dataclass(frozen=True)
class Problem:
    """A model, and what it was made of: prepared samples (n, d) and signed duals (n, K)."""

    model: Model
    samples: np.ndarray
    signed_duals: np.ndarray
    raw: np.ndarray


@pytest.fixture(name="make_problem", scope="session")
def _make_problem() -> Callable[..., Problem]:
    return make_problem


@pytest.fixture(name="make_model", scope="session")
def _make_model() -> Callable[..., Model]:
    return lambda *choices, **others: make_problem(*choices, **others).model


def make_problem(
    map: str = "gaussian",
    componentwise: bool = False,
    local_bias: float = 0.0,
    classes: Any = (0, 1),
    n_kernels: int = 7,
    n_features: int = 4,
    scaling: str = "standard",
    n_components: int | None = None,
    own_weights: bool = False,
    seed: int = 0,
) -> Problem:
    random = np.random.default_rng(seed)
    raw = random.normal(size=(30, n_features)) * 3 + 1
    preprocessor = Preprocessor.fit(Dataset.from_arrays(raw), scaling, n_components)
    samples = preprocessor.transform(raw)
    n_machines = 1 if len(classes) == 2 else len(classes)
    signed_duals = random.normal(size=(len(raw), n_machines)) * (random.random((len(raw), n_machines)) < 0.5)
    anchors = samples[random.integers(0, len(samples), n_kernels)]
    gammas = random.choice([0.05, 0.2, 0.7], n_kernels)
    scales = random.uniform(0.5, 2.0, n_kernels)
    weights = random.dirichlet(np.ones(n_kernels), n_machines if own_weights else None)
    family = Family(map, componentwise, local_bias)  # type: ignore[arg-type]
    coef, local_coef = family.kernels(anchors, gammas, scales).coefficients(samples, signed_duals, weights)
    record = ModelRecord(
        primal=2.0, dual=1.99, gap=0.005, tol=0.01, status="converged", n_open=90, n_train=30, seed=seed,
        params={"C": 1.0, "gammas": np.array([0.05, 0.2, 0.7])},
    )  # fmt: skip
    model = Model(family, np.array(classes), anchors, gammas, scales, weights, coef, local_coef, preprocessor, record)
    return Problem(model, samples, signed_duals, raw)
