"""Machines of every family on real data, and a compiler for their headers.

Most machines have random duals: no export takes notice of how coefficients came about. Their scores are scaled as those
of a trained machine are.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mllkm_scale import Dataset, Model, train
from mllkm_scale.data import Preprocessor
from mllkm_scale.kernels.gammas import auto_gammas
from mllkm_scale.kernels.grid import Family
from mllkm_scale.kernels.maps import MAPS
from mllkm_scale.model import ModelRecord

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
DRIVER = """
#include "HEADER"
void run(long n, const float *x, float *scores, int *codes);
void run(long n, const float *x, float *scores, int *codes)
{
    for (long i = 0; i < n; i++) {
        PREFIX_scores(x + i * UPPER_N_FEATURES, scores + i * UPPER_N_SCORES);
        codes[i] = PREFIX_predict(x + i * UPPER_N_FEATURES);
    }
}
"""
FAMILIES = [(map, componentwise) for componentwise in (False, True) for map in MAPS]

Compiled = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Case:
    """A machine, and rows for it that float32 holds exactly."""

    model: Model
    rows: np.ndarray

    @property
    def expected(self) -> np.ndarray:
        """Scores (n, K) in double precision, kernel by kernel."""
        return self.model.direct().decision_function(self.rows).reshape(len(self.rows), -1)


def machine(
    X: np.ndarray,
    y: np.ndarray,
    map: str = "gaussian",
    componentwise: bool = False,
    *,
    n_kernels: int = 20,
    scaling: str = "standard",
    n_components: int | None = None,
    whiten: bool = False,
    local_bias: float = 0.2,
    classes: Any = None,
    fold: str = "",
) -> Model:
    """A machine with random duals, anchors from the data, and scores of mean square 1.

    A learned metric may be folded into its preparation: "scaled", "mapped" or both.
    """
    rng = np.random.default_rng(0)
    X = X.astype(np.float64)
    preprocessor = Preprocessor.fit(Dataset.from_arrays(X), scaling, n_components, whiten)
    folding = np.random.default_rng(1)
    if "scaled" in fold:
        p = preprocessor.n_features_out
        preprocessor = preprocessor.scaled(folding.uniform(0.2, 2.0, p), np.arange(p) % 4 != 1)
    if "mapped" in fold:
        p = preprocessor.n_features_out
        preprocessor = preprocessor.mapped(folding.normal(size=(6, p)) / np.sqrt(p))
    Z = preprocessor.transform(X)
    labels = np.unique(y)
    signs = np.where(y[:, None] == (labels[1:] if len(labels) == 2 else labels), 1.0, -1.0)
    family = Family(map, componentwise, local_bias * float(Z.var(axis=0).sum()))  # type: ignore[arg-type]
    gammas = rng.choice(auto_gammas(family, Z), n_kernels)
    anchors = Z[rng.integers(0, len(Z), n_kernels)]
    scales = 1.0 / family.kernels(anchors, gammas).diagonals(Z).mean(axis=0)
    kernels = family.kernels(anchors, gammas, scales)
    weights = rng.dirichlet(np.ones(n_kernels))
    coef, local_coef = kernels.coefficients(Z, signs * rng.uniform(size=signs.shape), weights)
    size = np.sqrt(np.mean(family.kernels(anchors, gammas).decide(Z, coef, local_coef) ** 2))
    record = ModelRecord(2.0, 1.99, 0.005, 0.01, "converged", 90, len(X), 0)
    found = labels if classes is None else np.array(classes)
    return Model(family, found, anchors, gammas, scales, weights, coef / size, local_coef / size, preprocessor, record)


@pytest.fixture(name="machine", scope="session")
def _machine() -> Callable[..., Model]:
    return machine


@pytest.fixture(scope="session")
def digits(real_data: Callable[[str], tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """200 rows of digits."""
    X, y = real_data("digits")
    return X[:200], y[:200]


@pytest.fixture(scope="session")
def table() -> tuple[np.ndarray, np.ndarray]:
    """Features of a table: years, prices, counts, times in seconds, evenly spread ones, and indicators."""
    rng = np.random.default_rng(0)
    n = 300
    columns = [
        rng.integers(1950, 2020, n),
        rng.lognormal(5, 2, n),
        rng.poisson(0.7, n),
        1.6e9 + rng.uniform(0, 1e7, n),
        rng.uniform(size=n),
        rng.integers(0, 2, n),
    ]
    X = np.float32(np.column_stack(columns)).astype(np.float64)
    return X, ((X[:, 0] > 1985) ^ (X[:, 1] > 100)).astype(int)


@pytest.fixture(scope="session", params=FAMILIES, ids=[f"{map}{'-components' * c}" for map, c in FAMILIES])
def digit_case(request: pytest.FixtureRequest, digits: tuple[np.ndarray, np.ndarray]) -> Case:
    """A family with four classes on digits, and 100 rows of which it has not seen half."""
    model = machine(digits[0], digits[1] % 4, *request.param, n_kernels=12)
    return Case(model, digits[0][:100] * np.where(np.arange(100) % 2, 1.0, 0.75)[:, None])


@pytest.fixture(scope="session", params=FAMILIES, ids=[f"{map}{'-components' * c}" for map, c in FAMILIES])
def mnist_case(request: pytest.FixtureRequest, real_data: Callable[[str], tuple[np.ndarray, np.ndarray]]) -> Case:
    """A family on 50 components of MNIST, and 1,000 rows that it has not seen."""
    X, y = real_data("mnist")
    model = machine(X[:400], y[:400], *request.param, n_kernels=12, n_components=50, scaling="none")
    return Case(model, X[1000:2000])


@pytest.fixture(scope="session", params=["global", "component-wise"])
def trained_case(request: pytest.FixtureRequest, real_data: Callable[[str], tuple[np.ndarray, np.ndarray]]) -> Case:
    """Machines trained on USPS with 20 components, for two rounds."""
    X, y = real_data("usps")
    X, componentwise = np.float32(X), request.param == "component-wise"
    dataset = Dataset.from_arrays(X[:150], y[:150] % 4)
    result = train(dataset, anchors="all", n_components=20, max_rounds=2, componentwise=componentwise, map="squared")
    return Case(result.model, X[1000:1500])


@pytest.fixture(scope="session")
def plain_case(digits: tuple[np.ndarray, np.ndarray]) -> Case:
    """Two classes with names, on digits."""
    X, y = digits
    return Case(machine(X, y % 2, classes=["even", "odd"], n_kernels=12), X)


@pytest.fixture(scope="session")
def tiny_case() -> Case:
    """Three features and three classes."""
    rng = np.random.default_rng(0)
    X = np.float32(rng.normal(size=(60, 3)))
    return Case(machine(X, np.arange(60) % 3, n_kernels=5), X)


@pytest.fixture(scope="session")
def untabulated(digits: tuple[np.ndarray, np.ndarray]) -> Case:
    """A component-wise machine with a gamma that no table can be made for."""
    X, y = digits
    model = machine(X, y % 3, "gaussian", True, n_kernels=6)
    gammas = model.gammas.copy()
    gammas[0] = 1e-40
    return Case(replace(model, gammas=gammas), X)


@pytest.fixture(scope="session")
def gcc() -> str:
    found = shutil.which("gcc")
    if found is None:
        pytest.skip("there is no gcc")
    return found


@pytest.fixture(scope="session")
def compile_header(gcc: str) -> Callable[..., Compiled]:
    """Compile a header without warnings; the result maps rows to scores (n, K) and codes (n,)."""

    def build(header: Path, n_scores: int, prefix: str = "mllkm") -> Compiled:
        source, library = header.with_suffix(".c"), header.with_suffix(".so")
        text = DRIVER.replace("HEADER", header.name).replace("PREFIX", prefix).replace("UPPER", prefix.upper())
        source.write_text(text)
        command = [gcc, "-std=c99", "-O1", *WARNINGS, "-shared", "-fPIC", "-o", library, source, "-lm"]
        subprocess.run(command, check=True, timeout=120)
        run = ctypes.CDLL(str(library)).run

        def decide(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            X = np.ascontiguousarray(rows, np.float32)
            scores, codes = np.empty((len(X), n_scores), np.float32), np.empty(len(X), np.int32)
            run(ctypes.c_long(len(X)), *(ctypes.c_void_p(a.ctypes.data) for a in (X, scores, codes)))
            return scores, codes

        return decide

    return build


@pytest.fixture(scope="session")
def require_agreement() -> Callable[..., None]:
    """Scores within the tolerance, and the same classes but where two scores are nearer than twice that."""

    def require(case: Case, scores: np.ndarray, codes: np.ndarray, tolerance: float = 1e-5) -> None:
        expected = case.expected
        assert scores.shape == expected.shape
        assert np.abs(scores - expected).max() <= tolerance
        if expected.shape[1] == 1:
            lead = np.abs(expected[:, 0])
        else:
            lead = np.diff(np.sort(expected, axis=1)[:, -2:])[:, 0]
        differs = codes != case.model.codes(case.model.flat(expected))
        assert (lead[differs] <= 2 * tolerance).all()

    return require
