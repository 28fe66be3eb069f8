"""Exports of machines that were trained on tables encode rows as the model does."""

from __future__ import annotations

import ctypes
import json
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from mllkm_scale import MLLKMClassifier, Model
from mllkm_scale.data.tables.frames import table_dataset
from mllkm_scale.export import export_c, export_npz, export_onnx

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
DRIVER = """
#include "a.h"
void run(long n, const float *rows, float *scores);
float code(int column, const char *text);
void run(long n, const float *rows, float *scores)
{
    float x[A_N_FEATURES];
    for (long i = 0; i < n; i++) {
        a_encode(rows + i * A_N_COLUMNS_OF_TABLE, x);
        a_scores(x, scores + i * A_N_SCORES);
    }
}
float code(int column, const char *text) { return a_code(column, text); }
"""


def table(n: int, seed: int = 0) -> pa.Table:
    """Columns of every kind; one has more levels than get indicators."""
    rng = np.random.default_rng(seed)
    size = rng.normal(size=n)
    return pa.table(
        {
            "size": pa.array(np.where(np.arange(n) % 9 == 4, np.nan, size), from_pandas=True),
            "colour": rng.choice(["red", "grün", 'b"lue', None], n).tolist(),
            "street": [f"street {i}" for i in rng.integers(0, 30, n)],
            "sold": rng.random(n) < 0.5,
            "day": pa.array(rng.integers(18000, 19000, n), pa.int32()).cast(pa.date32()),
            "rooms": pa.array(np.where(np.arange(n) % 11 == 5, np.nan, rng.integers(1, 9, n) / 2), from_pandas=True),
            "none": pa.nulls(n),
        }
    )


@pytest.fixture(scope="module", params=[False, True], ids=["global", "component-wise"])
def model(request: pytest.FixtureRequest) -> Model:
    rows = table(400)
    y = [
        ("no", "yes", "may")[(colour == "red" or rooms == 2.5) + (street < "street 2")]
        for colour, street, rooms in zip(
            *(rows[name].to_pylist() for name in ("colour", "street", "rooms")), strict=True
        )
    ]
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr("mllkm_scale.data.tables.steps.LEAST_TABLE_ROWS", 100)
    machine = MLLKMClassifier(
        anchors=40, C=1.0, componentwise=request.param, memory_budget="1GB", max_rounds=3, tol=0.5, n_jobs=1
    )
    found = machine.fit(rows, y).model_
    monkeypatch.undo()
    assert found.encoding is not None
    assert set(found.encoding.methods) == {"number", "number+steps", "one-hot", "target", "dropped"}
    return found


@pytest.fixture(scope="module")
def new(model: Model) -> pa.Table:
    """Rows with unknown levels and values that are missing where none were in training."""
    rows = table(50, seed=1).to_pydict()
    rows["colour"][:2], rows["street"][2:4], rows["sold"][4] = ["pink", None], ["elsewhere", None], None
    rows["rooms"][:3] = [0.2, 99.0, 2.75]
    return pa.table({name: pa.array(values) for name, values in rows.items()}, schema=table(1).schema)


def as_numbers(rows: pa.Table) -> dict[str, np.ndarray]:
    """Columns of numbers as exports take them."""
    return {
        "size": rows["size"].to_numpy(),
        "sold": np.array([np.nan if value is None else float(value) for value in rows["sold"].to_pylist()]),
        "day": rows["day"].cast(pa.int32()).to_numpy().astype(float),
        "rooms": rows["rooms"].to_numpy(),
        "none": np.full(len(rows), np.nan),
    }


@pytest.mark.parametrize("precision", ["mixed", "double"])
def test_onnx_takes_the_columns_of_the_table(model: Model, new: pa.Table, tmp_path: Path, precision: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    export_onnx(model, tmp_path / "a.onnx", precision=precision, form="direct")
    session = onnxruntime.InferenceSession(str(tmp_path / "a.onnx"))
    real = np.float64 if precision == "double" else np.float32
    feeds = {name: values.astype(real)[:, None] for name, values in as_numbers(new).items()}
    for name in ("colour", "street"):
        texts = ["" if text is None else text for text in new[name].to_pylist()]
        feeds[name] = np.array(texts, dtype=object)[:, None]
    wanted = {given.name for given in session.get_inputs()}
    assert wanted == set(feeds) - {"none"}
    label, scores, probabilities = session.run(None, {name: feeds[name] for name in wanted})
    expected = model.direct().decision_function(new)
    np.testing.assert_allclose(scores, expected, atol=1e-9 if precision == "double" else 2e-4 * np.abs(expected).max())
    if precision == "double":
        assert label.tolist() == model.predict(new).tolist()
        np.testing.assert_allclose(probabilities, model.direct().predict_proba(new), atol=1e-9)


def test_c_encodes_rows_and_texts(model: Model, new: pa.Table, gcc: str, tmp_path: Path) -> None:
    export_c(model, tmp_path / "a.h", prefix="a", form="direct")
    (tmp_path / "a.c").write_text(DRIVER)
    library = tmp_path / "a.so"
    command = [gcc, "-std=c99", "-O2", "-shared", "-fPIC", *WARNINGS, "-o", library, tmp_path / "a.c", "-lm"]
    subprocess.run(command, check=True, capture_output=True)
    loaded = ctypes.CDLL(str(library))
    loaded.code.restype = ctypes.c_float
    rows = np.full((len(new), 7), np.nan, dtype=np.float32)
    for j, name in enumerate(new.column_names):
        if name in ("colour", "street"):
            texts = new[name].to_pylist()
            rows[:, j] = [np.nan if text is None else loaded.code(j, text.encode()) for text in texts]
        else:
            rows[:, j] = as_numbers(new)[name]
    scores = np.empty((len(new), 3), dtype=np.float32)
    pointer = ctypes.POINTER(ctypes.c_float)
    loaded.run(ctypes.c_long(len(new)), rows.ctypes.data_as(pointer), scores.ctypes.data_as(pointer))
    expected = model.direct().decision_function(new)
    np.testing.assert_allclose(scores, expected, atol=2e-4 * np.abs(expected).max())


def test_the_description_beside_npz_says_how_features_are_made(model: Model, new: pa.Table, tmp_path: Path) -> None:
    export_npz(model, tmp_path / "a.npz")
    about = json.loads((tmp_path / "a.json").read_text())
    encoding = about["encoding"]
    assert about["version"] == 3
    assert about["n_features_in"] == len(encoding["feature_names"])
    numbers = as_numbers(new)
    features = np.zeros((len(new), about["n_features_in"]))
    for column in encoding["columns"]:
        for i, value in enumerate(new[column["name"]].to_pylist()):
            made: list[float] = []
            if "levels" in column:
                made = column["missing"] if value is None else column["levels"].get(value, column["other"])
            elif column["method"].startswith("number"):
                number = numbers[column["name"]][i]
                made = [column["fill"] if np.isnan(number) else number, float(np.isnan(number))][: 1 + column["marked"]]
                if "steps" in column:
                    steps = column["steps"]
                    at = sum(edge <= number for edge in steps["edges"])
                    made += steps["missing"] if np.isnan(number) else steps["features"][at]
            features[i, column["features"]] = made
    assert model.encoding is not None
    np.testing.assert_array_equal(features, model.encoding.dataset(table_dataset(new)).part(0, len(new)))
    tests = about["test_vectors"]
    np.testing.assert_allclose(model.machine.direct().decision_function(np.array(tests["rows"])), tests["scores"])
