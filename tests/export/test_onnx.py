"""ONNX files, run by onnxruntime: they agree with Python, and say what they are."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale.errors import ParameterError
from mllkm_scale.export import export_onnx
from mllkm_scale.model import Model, model_checksum

Fixture = Any
PREPARATIONS = [
    {"scaling": "none"},
    {"scaling": "minmax", "local_bias": 0.0},
    {"scaling": "unit-norm", "map": "linear"},
    {"scaling": "unit-norm", "n_components": 10, "map": "exponential"},
    {"scaling": "standard", "n_components": 20, "whiten": True},
    {"scaling": "unit-norm", "n_components": 5, "whiten": True, "componentwise": True, "map": "squared"},
    {"scaling": "quantile"},
    {"scaling": "standard+quantile", "map": "exponential"},
    {"scaling": "auto", "componentwise": True, "map": "squared"},
    {"scaling": "standard+quantile", "n_components": 12, "whiten": True},
    {"scaling": "standard", "fold": "scaled"},
    {"scaling": "none", "fold": "mapped", "map": "squared"},
    {"scaling": "unit-norm", "fold": "scaled and mapped"},
    {"scaling": "auto", "fold": "scaled", "componentwise": True},
    {"scaling": "standard+quantile", "fold": "scaled and mapped", "map": "squared"},
    {"scaling": "minmax", "n_components": 10, "fold": "scaled"},
]
QUANTILES: list[dict[str, Any]] = [
    {"scaling": "quantile"},
    {"scaling": "auto", "fold": "scaled"},
    {"scaling": "standard+quantile", "fold": "mapped"},
    {"scaling": "quantile", "componentwise": True, "map": "squared"},
]
TOLERANCE = {"mixed": 1e-6, "single": 1e-5, "double": 1e-6}


def session_of(model: Model, path: Path, **options: Any) -> onnxruntime.InferenceSession:
    export_onnx(model, path, overwrite=True, **options)
    options_of_session = onnxruntime.SessionOptions()
    options_of_session.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options_of_session, providers=["CPUExecutionProvider"])


def run(session: onnxruntime.InferenceSession, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Labels and scores."""
    dtype = np.float64 if session.get_inputs()[0].type == "tensor(double)" else np.float32
    label, scores = session.run(["label", "scores"], {"features": rows.astype(dtype)})
    return label, scores


def codes_of(model: Model, label: np.ndarray) -> np.ndarray:
    return np.searchsorted(model.classes, label)


@pytest.mark.parametrize("precision", ["mixed", "single", "double"])
def test_every_family_agrees_on_digits(
    precision: str, digit_case: Fixture, tmp_path: Path, require_agreement: Fixture
) -> None:
    label, scores = run(session_of(digit_case.model, tmp_path / "m.onnx", precision=precision), digit_case.rows)
    require_agreement(digit_case, scores, codes_of(digit_case.model, label), TOLERANCE[precision])


@pytest.mark.parametrize("precision", ["mixed", "single"])
def test_every_family_agrees_on_a_thousand_rows_of_mnist(
    precision: str, mnist_case: Fixture, tmp_path: Path, require_agreement: Fixture
) -> None:
    label, scores = run(session_of(mnist_case.model, tmp_path / "m.onnx", precision=precision), mnist_case.rows)
    require_agreement(mnist_case, scores, codes_of(mnist_case.model, label), TOLERANCE[precision])


def test_trained_machines_agree(trained_case: Fixture, tmp_path: Path, require_agreement: Fixture) -> None:
    label, scores = run(session_of(trained_case.model, tmp_path / "m.onnx"), trained_case.rows)
    require_agreement(trained_case, scores, codes_of(trained_case.model, label), 2e-6)


@pytest.mark.parametrize("precision", ["mixed", "single"])
@pytest.mark.parametrize("map", ["exponential", "gaussian", "linear", "squared"])
def test_kernel_by_kernel_component_wise_machines_agree(
    map: str,
    precision: str,
    digits: Fixture,
    machine: Fixture,
    plain_case: Fixture,
    tmp_path: Path,
    require_agreement: Fixture,
) -> None:
    X, y = digits
    case = replace(plain_case, model=machine(X, y % 3, map, True), rows=X)
    label, scores = run(session_of(case.model, tmp_path / "m.onnx", form="direct", precision=precision), X)
    require_agreement(case, scores, label, TOLERANCE[precision])


@pytest.mark.parametrize("choice", PREPARATIONS, ids=lambda choice: "-".join(map(str, choice.values())))
def test_every_preparation_agrees(
    choice: dict[str, Any],
    digits: Fixture,
    machine: Fixture,
    plain_case: Fixture,
    tmp_path: Path,
    require_agreement: Fixture,
) -> None:
    X, y = digits
    rows = np.concatenate([X, np.zeros((1, X.shape[1])), X[:5] / 16384, X[:5] * 3])
    case = replace(plain_case, model=machine(X, y % 2, **choice), rows=rows)
    label, scores = run(session_of(case.model, tmp_path / "m.onnx"), rows)
    require_agreement(case, scores, label, 2e-6)


def test_what_cannot_be_tabulated_is_exported_directly(
    untabulated: Fixture, tmp_path: Path, require_agreement: Fixture
) -> None:
    label, scores = run(session_of(untabulated.model, tmp_path / "m.onnx"), untabulated.rows)
    require_agreement(untabulated, scores, label)


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        ([3, 7], "tensor(int64)"),
        ([2.0, 5.0], "tensor(int64)"),
        ([False, True], "tensor(int64)"),
        (np.array([1, 2], np.uint8), "tensor(int64)"),
        ([0.5, 1.5], "tensor(string)"),
        ([1.0, 2.0**70], "tensor(string)"),
        (["gut", "schön"], "tensor(string)"),
    ],
)
def test_labels_keep_their_values(classes: Any, expected: str, plain_case: Fixture, tmp_path: Path) -> None:
    model = replace(plain_case.model, classes=np.array(classes))
    session = session_of(model, tmp_path / "m.onnx")
    assert [output.type for output in session.get_outputs()] == [expected, "tensor(float)"]
    label, _ = run(session, plain_case.rows)
    wanted = model.predict(plain_case.rows).tolist()
    assert label.tolist() == ([str(value) for value in wanted] if "string" in expected else wanted)


def test_batches_of_any_size_have_the_same_scores(tiny_case: Fixture, tmp_path: Path) -> None:
    session = session_of(tiny_case.model, tmp_path / "m.onnx", precision="double")
    label, scores = run(session, tiny_case.rows)
    for n in (0, 1, 7):
        part_label, part = run(session, tiny_case.rows[:n])
        assert part_label.tolist() == label[:n].tolist()
        np.testing.assert_allclose(part, scores[:n], rtol=0, atol=1e-13)


@pytest.mark.parametrize("form", ["auto", "direct"])
def test_rows_that_are_not_finite_have_no_scores(form: str, digits: Fixture, machine: Fixture, tmp_path: Path) -> None:
    X, y = digits
    for componentwise in (False, True):
        session = session_of(machine(X, y % 3, "linear", componentwise, n_kernels=5), tmp_path / "m.onnx", form=form)
        rows = np.repeat(X[:1], 4, axis=0)
        rows[0, 3], rows[1, 3], rows[2, 3] = np.nan, np.inf, -np.inf
        _, scores = run(session, rows)
        assert np.isnan(scores).all(axis=1).tolist() == [True, True, True, False]


@pytest.fixture(scope="module")
def hostile(digits: Fixture, machine: Fixture, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, Any]]:
    X, y = digits
    folder, found = tmp_path_factory.mktemp("hostile"), []
    for number, choice in enumerate([("gaussian", False), ("linear", False), ("exponential", True), ("linear", True)]):
        model = machine(X, y % 3, *choice, n_kernels=8, scaling=("none", "unit-norm")[number % 2])
        found.append((model, session_of(model, folder / "m.onnx")))
    return found


@settings(max_examples=40)
@given(
    st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=64, max_size=64),
    st.sampled_from([0.0, 1e-30, 1e-6, 1.0]),
)
def test_hostile_rows_agree(hostile: Fixture, values: list[float], factor: float) -> None:
    row = np.float32(np.array(values) * factor)[None]
    for model, session in hostile:
        _, scores = run(session, row)
        np.testing.assert_allclose(scores, model.direct().decision_function(row), rtol=0, atol=2e-6)


def test_no_value_of_a_batch_is_larger_than_said(digits: Fixture, machine: Fixture, tmp_path: Path) -> None:
    X, y = digits
    for componentwise, form in ((False, "auto"), (True, "auto"), (True, "direct")):
        model = machine(X, y % 4, "linear", componentwise, n_kernels=30)
        session_of(model, tmp_path / "m.onnx", form=form)
        inferred = onnx.shape_inference.infer_shapes(onnx.load(tmp_path / "m.onnx"), data_prop=True)
        s, K, d = 30, 4, 64
        sizes = [
            np.prod([axis.dim_value for axis in value.type.tensor_type.shape.dim if axis.dim_value], initial=1)
            for value in inferred.graph.value_info
        ]
        assert len(sizes) >= 8
        assert max(sizes) <= s + 2 * K * d


def test_the_file_says_what_it_holds(plain_case: Fixture, tmp_path: Path) -> None:
    model = plain_case.model
    session = session_of(model, tmp_path / "m.onnx")
    facts = session.get_modelmeta().custom_metadata_map
    assert facts["model_checksum"] == model_checksum(model)
    assert float(facts["gap"]) == model.certificate.gap
    assert json.loads(facts["classes"]) == ["even", "odd"]
    assert facts["family"] == "gaussian, global"
    assert json.loads(facts["feature_names"]) is None
    names = [f"pixel {number}" for number in range(63)] + ['quo"te, é']
    named = session_of(replace(model, feature_names=names), tmp_path / "named.onnx")
    assert json.loads(named.get_modelmeta().custom_metadata_map["feature_names"]) == names
    assert session.get_inputs()[0].shape == ["rows", 64]
    file = onnx.load(tmp_path / "m.onnx")
    assert [(opset.domain, opset.version) for opset in file.opset_import] == [("", 13)]
    assert {node.domain for node in file.graph.node} == {""}


def test_equal_models_have_equal_files(plain_case: Fixture, tmp_path: Path) -> None:
    for name in ("a.onnx", "b.onnx"):
        export_onnx(plain_case.model, tmp_path / name)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_without_onnx_the_remedy_is_named(plain_case: Fixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ParameterError, match=r'needs the package onnx: pip install "mllkm-scale\[onnx\]"'):
        export_onnx(plain_case.model, tmp_path / "m.onnx")


def test_an_unknown_precision_is_refused(plain_case: Fixture, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="choose one of mixed, single, double"):
        export_onnx(plain_case.model, tmp_path / "m.onnx", precision="half")  # type: ignore[arg-type]


@pytest.mark.parametrize("precision", ["mixed", "single"])
@pytest.mark.parametrize("choice", QUANTILES, ids=lambda choice: "-".join(map(str, choice.values())))
def test_quantiles_of_features_with_long_tails_or_far_from_zero_agree(
    choice: dict[str, Any],
    precision: str,
    table: Fixture,
    machine: Fixture,
    plain_case: Fixture,
    tmp_path: Path,
    require_agreement: Fixture,
) -> None:
    X, y = table
    rows = np.float32(np.concatenate([X, X[:9] * 1.5, X[:9] - 1000])).astype(np.float64)
    case = replace(plain_case, model=machine(X, y, n_kernels=10, **choice), rows=rows)
    label, scores = run(session_of(case.model, tmp_path / "m.onnx", precision=precision), rows)
    require_agreement(case, scores, label, {"mixed": 2e-6, "single": 1e-5}[precision])
