"""Test rows, image shapes and reports as the command line and job files ask for them."""

from __future__ import annotations

import io
import json

import h5py
import pytest
from click.testing import CliRunner

from mllkm_scale.cli import cli
from mllkm_scale.errors import JobFileError
from mllkm_scale.online import CSVSamples, JSONSamples
from mllkm_scale.run.job import load_job


@pytest.fixture
def folder(tmp_path, monkeypatch, real_data):
    """train.h5, which has rows held out, and test.h5; reports have no pictures."""
    X, y = real_data("iris")
    with h5py.File(tmp_path / "train.h5", "w") as file:
        file["X"], file["y"], file["X_test"], file["y_test"] = X[::2], y[::2], X[1:9:2], y[1:9:2]
        file["feature_names"] = list("abcd")
    with h5py.File(tmp_path / "test.h5", "w") as file:
        file["X"], file["y"] = X[1::2], y[1::2]
    monkeypatch.setattr("mllkm_scale.report.page.write_report", lambda run, *, model: (run / "report.html").touch())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_cli(*words):
    return CliRunner().invoke(cli, [*words])


TRAIN = ("train", "train.h5", "--out", "run", "--anchors", "all", "--tol", "0.3", "--n-jobs", "1")


def test_a_test_file_wins_over_rows_held_out_of_the_training_file(folder):
    result = run_cli(*TRAIN, "--test", "test.h5", "--report", "--image-shape", "2x2")
    assert result.exit_code == 0, result.output
    assert "test.h5:X: 75 rows, error" in result.stdout
    assert "report: run/report.html" in result.stdout
    assert json.loads((folder / "run" / "evaluation.json").read_text())["n"] == 75
    data = json.loads((folder / "run" / "run.json").read_text())["data"]
    assert data["image_shape"] == [2, 2]
    assert data["feature_names"] == [*"abcd"]


def test_without_one_the_rows_held_out_are_taken_and_no_report_may_be_asked_for(folder):
    result = run_cli(*TRAIN, "--no-report")
    assert result.exit_code == 0, result.output
    assert "train.h5:X_test: 4 rows, error" in result.stdout
    assert "report:" not in result.stdout
    assert not (folder / "run" / "report.html").exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--test", "nowhere.h5"), 3, "nowhere.h5 does not exist"),
        (("--image-shape", "3x3"), 2, "9 pixels, but a row has 4 features"),
        (("--image-shape", "square"), 2, "give height and width such as 28x28"),
    ],
)
def test_what_cannot_work_is_refused_before_the_training(folder, words, code, message):
    result = run_cli(*TRAIN, *words)
    assert result.exit_code == code
    assert message in result.stderr
    assert not (folder / "run" / "model.mllkm").exists()


JOB = """
[data]
path = "train.h5"
test = "test.h5"
image_shape = "2x2"
[parameters]
tol = 0.3
n_jobs = 1
[output]
run = "run"
report = {report}
"""


@pytest.mark.parametrize("report", [True, False])
def test_a_job_file_says_all_of_it(folder, report):
    (folder / "job.toml").write_text(JOB.format(report=str(report).lower()))
    result = run_cli("run", "job.toml")
    assert result.exit_code == 0, result.output
    assert "test.h5:X: 75 rows, error" in result.stdout
    assert (folder / "run" / "report.html").exists() == report
    assert "75 rows held out" in run_cli("run", "job.toml", "--dry-run", "--overwrite").stdout


def test_a_job_file_with_wrong_values_is_refused_with_their_lines(folder):
    (folder / "job.toml").write_text(JOB.format(report='"yes"').replace('"2x2"', '"wide"'))
    with pytest.raises(JobFileError) as caught:
        load_job(folder / "job.toml")
    lines = str(caught.value).splitlines()
    assert [line.split(":")[1] for line in lines] == ["5", "11"]
    assert "give height and width" in lines[0]
    assert "report must be true or false" in lines[1]


def test_a_stream_has_them_too(folder):
    words = (
        "stream",
        "train.h5",
        "--out",
        "run",
        "--warm-up",
        "20",
        "--n-jobs",
        "1",
        "--report",
        "--image-shape",
        "2x2",
    )
    result = run_cli(*words)
    assert result.exit_code == 0, result.output
    assert "report: run/report.html" in result.stdout
    assert json.loads((folder / "run" / "run.json").read_text())["data"]["feature_names"] == [*"abcd"]
    assert json.loads((folder / "run" / "evaluation.json").read_text())["n"] == 4


@pytest.mark.parametrize(
    ("kind", "text", "names"),
    [
        (CSVSamples, "weight,height,kind\n3.5,25,cat\n20,60,dog\n", ("weight", "height")),
        (CSVSamples, "3.5,25,0\n20,60,1\n", None),
        (JSONSamples, '{"weight": 3.5, "height": 25, "y": 1}\n', ("weight", "height")),
        (JSONSamples, '{"x": [3.5, 25], "y": 1}\n', None),
    ],
)
def test_text_names_its_features_from_its_first_line_on(kind, text, names):
    samples = kind(io.StringIO(text))
    assert samples.feature_names is None
    assert list(samples.chunks())
    assert samples.feature_names == names
