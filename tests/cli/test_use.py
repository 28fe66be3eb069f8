from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import Result
from sklearn.datasets import load_iris

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
    assert lines[2].startswith("probabilities: log loss ")
    assert lines[4].split() == ["class", "rows", "precision", "recall", "f1"]
    assert [line.split()[0] for line in lines[5:8]] == ["0", "1", "2"]


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


@pytest.fixture(scope="module")
def iris(tmp_path_factory: pytest.TempPathFactory, mllkm: Run) -> Path:
    """A folder with a model of named features, the table that it was trained on, and the same in another order."""
    folder = tmp_path_factory.mktemp("named")
    frame = load_iris(as_frame=True).frame.sample(frac=1.0, random_state=0)
    frame["target"] = np.array(["setosa", "versicolor", "virginica"])[frame["target"]]
    frame.to_csv(folder / "train.csv", index=False)
    frame[frame.columns[::-1]].to_csv(folder / "reversed.csv", index=False)
    frame.drop(columns="target").to_csv(folder / "features.csv", index=False)
    assert mllkm("convert", folder / "train.csv", folder / "train.h5", "--hold-out", "0.3").exit_code == 0
    words = ["--anchors", "all", "--jobs", "1", "--progress", "quiet"]
    result = mllkm("train", folder / "train.h5", "--out", folder / "run", *words)
    assert result.exit_code == 0, result.output
    return folder


def test_a_table_in_another_order_gets_the_same_labels(mllkm: Run, iris: Path) -> None:
    plain = mllkm("predict", iris / "run", iris / "features.csv", "--out", "-", "--scores")
    assert plain.stderr == ""
    turned = mllkm("predict", iris / "run", iris / "reversed.csv", "--out", "-", "--scores")
    assert turned.stdout == plain.stdout
    assert turned.stderr == "reversed.csv: 1 column is ignored, which is no feature of the model: 'target'\n"


def test_a_table_that_lacks_a_feature_is_refused(mllkm: Run, iris: Path, tmp_path: Path) -> None:
    text = (iris / "features.csv").read_text().replace("petal width (cm)", "petal_width")
    (tmp_path / "new.csv").write_text(text)
    result = mllkm("predict", iris / "run", tmp_path / "new.csv", "--out", tmp_path / "out.csv")
    assert result.exit_code != 0
    assert "lacks 1 of the 4 features of the model: 'petal width (cm)' (is it 'petal_width'?)" in result.stderr
    assert not (tmp_path / "out.csv").exists()
    taken = mllkm("predict", iris / "run", tmp_path / "new.csv", "--by-position", "--out", "-")
    assert taken.stdout == mllkm("predict", iris / "run", iris / "features.csv", "--out", "-").stdout


def test_evaluate_scores_the_rows_that_were_held_out(mllkm: Run, iris: Path) -> None:
    held_out = json.loads(mllkm("evaluate", iris / "run", iris / "train.h5", "--json").stdout)
    assert (held_out["data"], held_out["n"]) == ("train.h5:X_test", 45)
    training = json.loads(mllkm("evaluate", iris / "run", iris / "train.h5", "--x", "X", "--json").stdout)
    assert (training["data"], training["n"]) == ("train.h5:X", 105)
    assert held_out == json.loads(mllkm("evaluate", iris / "run", iris / "train.h5", "--y", "y_test", "--json").stdout)


def test_names_are_shown_and_exported(mllkm: Run, iris: Path, tmp_path: Path) -> None:
    assert "sepal length (cm), sepal width (cm)" in mllkm("inspect", iris / "run").stdout
    names = json.loads(mllkm("inspect", iris / "run", "--json").stdout)["feature_names"]
    assert mllkm("export", iris / "run", "--out", tmp_path / "m.npz").exit_code == 0
    assert json.loads((tmp_path / "m.json").read_text())["feature_names"] == names


def test_integers_have_the_bits_that_were_chosen_for_a_device(mllkm: Run, wine_h5: Path, tmp_path: Path) -> None:
    run, header = tmp_path / "run", tmp_path / "wine.h"
    words = ["export", run, "--out", header, "--data", wine_h5, "--overwrite"]
    assert mllkm("train", wine_h5, "--out", run, "--max-bytes", "600", "--jobs", "1").exit_code == 0
    chosen = json.loads((run / "run.json").read_text())["parameters"]["bits"]
    result = mllkm(*words)
    assert result.exit_code == 0, result.stderr
    assert "more than max_bytes" not in result.stdout
    text = header.read_text()
    assert mllkm(*words, "--integer", str(chosen)).exit_code == 0
    assert header.read_text() == text
    assert (
        f"these are more than max_bytes=600, for which the training chose {chosen} bits"
        in mllkm(*words, "--integer", "16").stdout
    )


def test_rows_for_integers_are_asked_for_and_refused_where_nothing_says_the_bits(
    mllkm: Run, model: Path, wine_h5: Path, tmp_path: Path
) -> None:
    words = ["export", model, "--out", tmp_path / "wine.h"]
    assert "say with --integer how many bits" in mllkm(*words, "--data", wine_h5).stderr
    assert "--integer needs --data" in mllkm(*words, "--integer", "8").stderr


def test_explain_tells_what_makes_the_scores_of_rows(mllkm: Run, model: Path, wine_h5: Path) -> None:
    result = mllkm("explain", model, wine_h5, "--rows", "2:4")
    assert result.exit_code == 0, result.stderr
    assert [line.split(":")[0] for line in result.stdout.splitlines() if line.startswith("row ")] == ["row 2", "row 3"]
    assert result.stdout.count("constant") == 2
    found = json.loads(mllkm("explain", model, wine_h5, "--rows", "2", "--json").stdout)
    assert [one["row"] for one in found] == [2]
    added = np.array([feature["contributions"] for feature in found[0]["features"]]).sum(axis=0)
    np.testing.assert_allclose(added + found[0]["constants"], found[0]["scores"], atol=1e-9)


def test_explain_reads_csv_as_far_as_it_goes(mllkm: Run, model: Path, wine_h5: Path, tmp_path) -> None:
    with h5py.File(wine_h5) as data:
        rows = data["X"][:3]
    lines = [",".join(map(str, row.tolist())) for row in rows]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    first = json.loads(mllkm("explain", model, tmp_path / "rows.csv", "--rows", "0", "--json").stdout)
    same = json.loads(mllkm("explain", model, wine_h5, "--rows", "0", "--json").stdout)
    np.testing.assert_allclose(first[0]["scores"], same[0]["scores"], rtol=1e-9)
    result = mllkm("explain", model, tmp_path / "rows.csv", "--rows", "1:9")
    assert result.exit_code != 0
    assert "rows.csv ends before row 8 (0-based): ask for rows that it has, not 1:9" in result.stderr


@pytest.mark.parametrize(("rows", "why"), [("5:5", "has no rows"), ("a", "no range of rows"), ("-1:3", "no range")])
def test_explain_refuses_what_is_no_range_of_rows(mllkm: Run, model: Path, wine_h5: Path, rows: str, why: str) -> None:
    result = mllkm("explain", model, wine_h5, "--rows", rows)
    assert result.exit_code == 2
    assert why in result.stderr
