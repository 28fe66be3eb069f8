"""Weights of rows and classes on the command line, from the CSV file to the evaluation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from mllkm_scale import Dataset, train
from mllkm_scale.run.job import load_job

Run = Callable[..., Result]
QUICK = ["--anchors", "all", "--C", "1", "--jobs", "1", "--no-report"]


@pytest.fixture(scope="module")
def weighted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(120, 2)), rng.integers(1, 5, 120)
    y = np.where(X[:, 0] + 0.7 * rng.normal(size=120) > 0.6, "yes", "no")
    path = tmp_path_factory.mktemp("data") / "weighted.csv"
    lines = (f"{a},{b},{weight},{label}" for (a, b), weight, label in zip(X, w, y, strict=True))
    path.write_text("a,b,w,label\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def weighted_h5(weighted: Path, mllkm: Run) -> Path:
    target = weighted.with_suffix(".h5")
    result = mllkm("convert", weighted, target, "--sample-weight", "w", "--hold-out", "0.25")
    assert result.exit_code == 0, result.stderr
    return target


def test_training_and_evaluation_go_by_the_weights(mllkm: Run, weighted_h5: Path, tmp_path: Path) -> None:
    words = ["--sample-weight", "sample_weight", "--class-weight", "no:1,yes:3"]
    result = mllkm("train", weighted_h5, "--out", tmp_path / "run", *QUICK, *words)
    assert result.exit_code == 0, result.stderr
    assert "weighted error" in result.stdout
    with Dataset.open(weighted_h5, sample_weight="sample_weight") as data:
        how = {"anchors": "all", "C": 1.0, "n_jobs": 1}
        train(data, run_dir=tmp_path / "same", class_weight={"no": 1.0, "yes": 3.0}, report=False, **how)
    assert (tmp_path / "same" / "model.mllkm").read_bytes() == (tmp_path / "run" / "model.mllkm").read_bytes()
    recorded = json.loads((tmp_path / "run" / "run.json").read_text())
    assert recorded["parameters"]["class_weight"] == "no:1,yes:3"
    assert recorded["data"]["weights"]["largest_weight"] == 12.0
    words = ["--x", "X_test", "--sample-weight", "sample_weight_test", "--json"]
    told = json.loads(mllkm("evaluate", tmp_path / "run", weighted_h5, *words).stdout)
    assert told["weighted_error"] == pytest.approx(
        json.loads((tmp_path / "run" / "evaluation.json").read_text())["weighted_error"]
    )
    assert "largest_weight" in mllkm("inspect", tmp_path / "run" / "model.mllkm", "--json").stdout


def test_a_training_with_other_weights_is_not_resumed(mllkm: Run, weighted_h5: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = [*QUICK, "--tol", "1e-5", "--sample-weight", "sample_weight"]
    assert mllkm("train", weighted_h5, "--out", run, *words, "--max-rounds", "1").exit_code == 0
    refused = mllkm("train", weighted_h5, "--out", run, *QUICK, "--tol", "1e-5", "--resume")
    assert refused.exit_code != 0
    assert "other data or with other parameters" in refused.stderr
    assert mllkm("train", weighted_h5, "--out", run, *words, "--resume").exit_code == 0


def test_a_job_file_names_them(mllkm: Run, weighted_h5: Path, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(
        f"""
        [data]
        path = "{weighted_h5}"
        sample_weight = "sample_weight"
        [parameters]
        anchors = "all"
        C = 1
        n_jobs = 1
        class_weight = {{no = 1, yes = 3}}
        [output]
        run = "run"
        report = false
        """
    )
    job = load_job(tmp_path / "job.toml")
    assert (job.sample_weight, job.parameters["class_weight"]) == ("sample_weight", {"no": 1.0, "yes": 3.0})
    assert mllkm("run", tmp_path / "job.toml").exit_code == 0
    words = [*QUICK, "--sample-weight", "sample_weight", "--class-weight", "no:1,yes:3"]
    assert mllkm("train", weighted_h5, "--out", tmp_path / "same", *words).exit_code == 0
    assert (tmp_path / "same" / "model.mllkm").read_bytes() == (tmp_path / "run" / "model.mllkm").read_bytes()


def test_the_plan_has_room_for_them(mllkm: Run, weighted_h5: Path) -> None:
    assert "weights of the samples" in mllkm("plan", weighted_h5, "--sample-weight", "sample_weight").stdout
    assert "weights of the samples" in mllkm("plan", weighted_h5, "--class-weight", "balanced").stdout
    assert "weights of the samples" not in mllkm("plan", weighted_h5).stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--class-weight", "even"], "neither balanced nor labels with weights such as no:1,yes:5"),
        (["--class-weight", "no:-1"], "give a positive number for each label"),
        (["--class-weight", "maybe:2"], "class_weight names 'maybe', which is not a label of weighted.h5:y"),
        (["--sample-weight", "w"], "has no data set 'w'"),
        (["--sample-weight", "X"], "weighted.h5:X has shape"),
    ],
)
def test_what_cannot_be_used_is_named(
    mllkm: Run, weighted_h5: Path, tmp_path: Path, words: list[str], said: str
) -> None:
    result = mllkm("train", weighted_h5, "--out", tmp_path / "run", *QUICK, *words)
    assert result.exit_code != 0
    assert said in result.stderr


def test_a_table_is_trained_on_with_a_column_of_weights(mllkm: Run, weighted: Path, tmp_path: Path) -> None:
    result = mllkm("train", weighted, "--out", tmp_path / "run", *QUICK, "--sample-weight", "w")
    assert result.exit_code == 0, result.stderr
    recorded = json.loads((tmp_path / "run" / "run.json").read_text())["data"]
    assert (recorded["feature_names"], recorded["weights"]["largest_weight"]) == (["a", "b"], 4.0)
