from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import Result

Run = Callable[..., Result]
HELD_OUT = ["--x", "X_test", "--y", "y_test"]


@pytest.fixture(scope="module")
def model(trained: tuple[Path, Result]) -> Path:
    return trained[0] / "model.mllkm"


def test_evaluate_shows_accuracy_and_a_table_of_the_classes(mllkm: Run, model: Path, wine_h5: Path) -> None:
    result = mllkm("evaluate", model, wine_h5, *HELD_OUT, "--jobs", "1")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "wine.h5:X_test: 40 rows"
    assert lines[1].startswith("accuracy ")
    assert lines[3].split() == ["class", "rows", "precision", "recall", "f1"]
    assert [line.split()[0] for line in lines[4:7]] == ["0", "1", "2"]


def test_evaluate_as_json_agrees_with_the_predictions(mllkm: Run, model: Path, wine_h5: Path, tmp_path: Path) -> None:
    report = json.loads(mllkm("evaluate", model, wine_h5, *HELD_OUT, "--json").stdout)
    result = mllkm("predict", model, wine_h5, "--x", "X_test", "--scores", "--out", tmp_path / "p.h5")
    assert result.exit_code == 0, result.stderr
    assert "prediction and scores of 40 rows" in result.stdout
    with h5py.File(tmp_path / "p.h5") as predicted, h5py.File(wine_h5) as data:
        assert report["accuracy"] == np.mean(predicted["prediction"][:] == data["y_test"][:])
        assert predicted["scores"].shape == (40, 3)
    assert report["n"] == np.sum(report["confusion"]) == 40


def test_a_run_folder_stands_for_its_model(mllkm: Run, model: Path) -> None:
    assert mllkm("inspect", model.parent).stdout == mllkm("inspect", model).stdout


def test_predict_replaces_a_file_only_when_told(mllkm: Run, model: Path, wine_h5: Path, tmp_path: Path) -> None:
    words = ["predict", model, wine_h5, "--out", tmp_path / "p.h5"]
    assert mllkm(*words).exit_code == 0
    assert mllkm(*words).exit_code == 2
    assert mllkm(*words, "--overwrite").exit_code == 0


def test_inspect_tells_kernels_classes_and_certificate(mllkm: Run, model: Path) -> None:
    text = mllkm("inspect", model).stdout
    for part in ("kernels", "classes", "certificate", "gamma"):
        assert part in text
    facts = json.loads(mllkm("inspect", model, "--json").stdout)
    assert facts["classes"] == [0, 1, 2]
    assert facts["n_kernels"] > 0
    assert facts["file_bytes"] == model.stat().st_size


@pytest.mark.parametrize("command", ["inspect", "evaluate", "predict"])
def test_a_damaged_or_missing_model_is_named(
    mllkm: Run, model: Path, wine_h5: Path, tmp_path: Path, command: str
) -> None:
    rest = {
        "inspect": [],
        "evaluate": [wine_h5],
        "predict": [wine_h5, "--out", tmp_path / "p.h5"],
    }[command]
    (tmp_path / "cut.mllkm").write_bytes(model.read_bytes()[:1000])
    for name in ("cut.mllkm", "absent.mllkm"):
        result = mllkm(command, tmp_path / name, *rest)
        assert result.exit_code == 5
        assert name in result.stderr
        assert len(result.stderr.splitlines()) == 1


def test_data_that_does_not_fit_the_model_is_refused(mllkm: Run, model: Path, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "d.h5", "w") as file:
        file["X"], file["y"] = np.zeros((4, 5)), np.zeros(4)
    result = mllkm("evaluate", model, tmp_path / "d.h5")
    assert result.exit_code == 3
    assert "d.h5:X" in result.stderr
