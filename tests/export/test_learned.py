"""Machines with learned kernels and a learned metric, exported to C and NPZ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mllkm_scale import Dataset, train
from mllkm_scale.export import export_c, export_npz

Fixture = Any
CHOICES: list[dict[str, Any]] = [
    {"finish": "none", "scaling": "auto"},
    {"finish": "mkl", "scaling": "auto", "metric": "full"},
    {"finish": "mkl", "scaling": "standard", "metric": 3, "map": "squared"},
    {"finish": "none", "scaling": "quantile", "metric": None, "n_components": 4},
    {"finish": "none", "scaling": "auto", "componentwise": True},
]


@pytest.fixture(scope="module", params=CHOICES, ids=lambda choice: "-".join(map(str, choice.values())))
def learned_case(request: pytest.FixtureRequest, real_data: Fixture, plain_case: Fixture) -> Fixture:
    X, y = real_data("wine")
    X = np.float32(X)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mllkm_scale.learn.settings._MOST_EPOCHS", 20)
        dataset = Dataset.from_arrays(X, y)
        settings = {"anchors": "learned:8", "metric": "diagonal", "ridge": 0.1, "C": 1.0, "tol": 0.05, "n_jobs": 1}
        model = train(dataset, **settings | request.param).model
    return type(plain_case)(model, X)


def test_the_c_header_agrees(
    learned_case: Fixture, tmp_path: Path, compile_header: Fixture, require_agreement: Fixture
) -> None:
    export_c(learned_case.model, tmp_path / "model.h")
    decide = compile_header(tmp_path / "model.h", learned_case.model.n_machines)
    require_agreement(learned_case, *decide(learned_case.rows), 1e-4)


def test_the_arrays_of_the_npz_give_f(learned_case: Fixture, tmp_path: Path) -> None:
    model = learned_case.model
    export_npz(model, tmp_path / "m.npz")
    with np.load(tmp_path / "m.npz", allow_pickle=False) as arrays:
        kernels = model.family.kernels(arrays["anchors"], arrays["gammas"])
        rows = model.preprocessor.transform(learned_case.rows, np.float64)
        f = kernels.decide(rows, arrays["coef"], arrays["local_coef"])
    np.testing.assert_allclose(f, learned_case.expected, rtol=0, atol=1e-8)
