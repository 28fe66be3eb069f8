"""NPZ and JSON, read as the page says: by the code that stands there, which uses the standard library alone."""

from __future__ import annotations

import hashlib
import json
import math
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mllkm_scale.export import export_npz
from mllkm_scale.model import ModelRecord, model_checksum

Fixture = Any
PAGE = Path(__file__).parents[2] / "docs" / "export.md"
FUNCTIONS = ("load", "prepare", "bump", "scores", "scores_by_tables", "decide")


@pytest.fixture(scope="module")
def page() -> dict[str, Callable[..., Any]]:
    """The functions of the page's reader."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    reader = next(block for block in blocks if "def load(stem)" in block)
    imports = set(re.findall(r"^import (\w+)$", reader, re.MULTILINE))
    assert imports == {"json", "math", "struct", "zipfile"}
    assert "from " not in re.sub(r'""".*?"""', "", reader)
    functions, _ = reader.split("\nabout, arrays = load(", 1)
    names: dict[str, Any] = {}
    exec(functions, names)
    return {name: names[name] for name in FUNCTIONS}


def test_the_page_reads_every_family(digit_case: Fixture, page: Fixture, tmp_path: Path) -> None:
    model = digit_case.model
    export_npz(model, tmp_path / "m.npz")
    about, arrays = page["load"](tmp_path / "m")
    for row, expected in zip(digit_case.rows[:3].tolist(), digit_case.expected, strict=False):
        found = page["scores"](about, arrays, row)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
        assert page["decide"](about, found) == model.predict([row])[0]
        if model.family.componentwise:
            by_tables = page["scores_by_tables"](about, arrays, row)
            np.testing.assert_allclose(by_tables, expected, rtol=0, atol=about["tables"]["deviation"])


@pytest.mark.parametrize(
    "choice",
    [
        {"scaling": "none"},
        {"scaling": "minmax", "n_components": 8},
        {"scaling": "unit-norm"},
        {"scaling": "standard", "n_components": 12, "whiten": True},
        {"scaling": "unit-norm", "n_components": 5, "whiten": True, "componentwise": True},
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
    ],
    ids=lambda choice: "-".join(map(str, choice.values())),
)
def test_the_test_vectors_check_every_preparation(
    choice: dict[str, Any], digits: Fixture, machine: Fixture, page: Fixture, tmp_path: Path
) -> None:
    model = machine(digits[0], digits[1] % 2, classes=["even", "odd"], n_kernels=10, **choice)
    export_npz(model, tmp_path / "m.npz")
    about, arrays = page["load"](tmp_path / "m")
    tests = about["test_vectors"]
    assert len(tests["rows"]) >= 6
    assert tests["labels"] == model.predict(tests["rows"]).tolist()
    for row, expected, label in zip(tests["rows"], tests["scores"], tests["labels"], strict=True):
        found = page["scores"](about, arrays, row)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
        assert page["decide"](about, found) == label
    assert np.ptp(tests["scores"]) > 0.01


def test_arrays_are_those_that_the_description_lists(tiny_case: Fixture, tmp_path: Path) -> None:
    summary = export_npz(tiny_case.model, tmp_path / "m.npz")
    about = json.loads((tmp_path / "m.json").read_text(encoding="ascii"))
    with np.load(tmp_path / "m.npz", allow_pickle=False) as archive:
        assert list(archive) == list(about["arrays"])
        for name, note in about["arrays"].items():
            assert list(archive[name].shape) == note["shape"]
            assert archive[name].dtype.str == note["dtype"]
            assert note["meaning"]
        assert summary.constant_bytes == sum(archive[name].nbytes for name in archive)
        np.testing.assert_array_equal(archive["coef"], tiny_case.model.coef)
    with zipfile.ZipFile(tmp_path / "m.npz") as archive:
        assert {member.compress_type for member in archive.infolist()} == {zipfile.ZIP_STORED}
    assert about["npz"]["sha256"] == hashlib.sha256((tmp_path / "m.npz").read_bytes()).hexdigest()
    assert about["model_checksum"] == model_checksum(tiny_case.model)
    assert about["certificate"]["gap"] == 0.005


def test_the_page_names_every_key_and_array(digits: Fixture, machine: Fixture, tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    model = machine(digits[0], digits[1] % 2, "linear", True, n_kernels=4, n_components=3, scaling="auto")
    export_npz(model, tmp_path / "m.npz")
    about = json.loads((tmp_path / "m.json").read_text())
    for key in [*about, *about["arrays"], *about["npz"], *about["family"], *about["test_vectors"]]:
        assert f"`{key}`" in text, key


@pytest.mark.parametrize(
    ("classes", "kind"),
    [([3, 7], "integer"), ([2.0, 5.0], "float"), ([False, True], "boolean"), (["gut", "schön"], "text")],
)
def test_classes_keep_type_and_value(classes: list[Any], kind: str, plain_case: Fixture, tmp_path: Path) -> None:
    export_npz(replace(plain_case.model, classes=np.array(classes)), tmp_path / "m.npz")
    about = json.loads((tmp_path / "m.json").read_text(encoding="ascii"))
    assert (about["classes"], about["class_type"]) == (classes, kind)
    assert [type(label) for label in about["classes"]] == [type(label) for label in classes]


def test_equal_models_have_equal_files(plain_case: Fixture, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        export_npz(plain_case.model, tmp_path / name / "m.npz")
    for name in ("m.npz", "m.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_tables_are_left_out_where_there_are_none(untabulated: Fixture, page: Fixture, tmp_path: Path) -> None:
    assert export_npz(untabulated.model, tmp_path / "m.npz").form == "kernels"
    about, arrays = page["load"](tmp_path / "m")
    assert about["tables"] is None
    assert "cell_edges" not in arrays


def test_a_certificate_without_a_gap_is_plain_json(plain_case: Fixture, tmp_path: Path) -> None:
    record = ModelRecord(math.inf, -math.inf, math.nan, 0.01, "streamed", 0, 10, 0)
    export_npz(replace(plain_case.model, certificate=record), tmp_path / "m.npz")
    about = json.loads((tmp_path / "m.json").read_text(), parse_constant=pytest.fail)
    assert about["certificate"]["gap"] is None
