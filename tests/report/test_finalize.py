"""What follows when a model is there: the test rows, the report, and that neither can lose the model."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mllkm_scale import Dataset, load_model, train
from mllkm_scale.base.events import Finished, Notice, Phase
from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.model import evaluate
from mllkm_scale.online import DatasetSamples, stream

SETTINGS = {"anchors": "all", "tol": 0.3, "n_jobs": 1}


@pytest.fixture(scope="module")
def iris(real_data):
    X, y = real_data("iris")
    return X, y


def data_of(iris, name="iris.h5:X"):
    return Dataset.from_arrays(*iris, name=name)


def test_the_model_is_measured_on_the_test_rows(iris, tmp_path):
    test = Dataset.from_arrays(iris[0][::3], iris[1][::3], name="iris.h5:X_test")
    result = train(data_of(iris), test=test, run_dir=tmp_path / "run", report=False, **SETTINGS)
    expected = evaluate(result.model, test)
    np.testing.assert_array_equal(result.evaluation.confusion, expected.confusion)
    written = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    explained = written.pop("explained")
    assert written == {"data": "iris.h5:X_test"} | expected.as_dict()
    assert [one["row"] for one in explained] == list(expected.telling)
    for one in explained:
        added = sum(part["added"] for part in one["features"]) + one["rest"] + one["constant"]
        assert added == pytest.approx(one["score"])
    assert train(data_of(iris), **SETTINGS).evaluation is None


def test_nothing_of_the_training_depends_on_the_test_rows(iris, tmp_path):
    for name, test in (("with", data_of(iris)), ("without", None)):
        train(data_of(iris), test=test, **SETTINGS).model.save(tmp_path / name)
    assert (tmp_path / "with").read_bytes() == (tmp_path / "without").read_bytes()


@pytest.mark.parametrize(
    ("rows", "labels", "message"),
    [
        (np.ones((2, 3)), [0, 1], "3 features instead of 4: correct it, or leave it out"),
        (np.ones((2, 4)), [0, 7], "the label 7, which y of iris.h5:X does not have"),
        (np.array([[0.0, np.nan, 1.0, 1.0]]), [0], "NaN at row 0, column 1"),
    ],
)
def test_test_rows_that_cannot_be_used_are_refused_before_the_training(iris, tmp_path, rows, labels, message):
    told = []
    with pytest.raises(DataError, match=message):
        train(data_of(iris), test=Dataset.from_arrays(rows, labels), run_dir=tmp_path / "run", listener=told.append)
    assert told == []
    assert not (tmp_path / "run").exists()


def test_a_shape_that_does_not_fit_is_refused_before_the_training(iris, tmp_path):
    with pytest.raises(ParameterError, match="3x3 has 9 pixels, but a row has 4 features"):
        train(data_of(iris), image_shape="3x3", run_dir=tmp_path / "run")
    with pytest.raises(ParameterError, match="3x3 has 9 pixels, but a row has 4 features"):
        stream(DatasetSamples(data_of(iris)), image_shape="3x3", run_dir=tmp_path / "run", n_jobs=1)
    assert not (tmp_path / "run" / "model.mllkm").exists()


def test_a_report_that_fails_is_told_of_and_loses_nothing(iris, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("no\nink")

    monkeypatch.setattr("mllkm_scale.report.page.write_report", fail)
    told = []
    result = train(data_of(iris), run_dir=tmp_path / "run", report=True, listener=told.append, **SETTINGS)
    [notice] = [event for event in told if isinstance(event, Notice)]
    assert "the report could not be written (RuntimeError: no ink): try again with mllkm report" in notice.text
    assert isinstance(told[-1], Finished)
    assert load_model(tmp_path / "run" / "model.mllkm").n_kernels == result.model.n_kernels
    assert json.loads((tmp_path / "run" / "run.json").read_text())["result"]["status"] == "converged"
    assert "no ink" in (tmp_path / "run" / "run.log").read_text()


@pytest.fixture
def blank_pages(monkeypatch):
    """Reports without pictures: for tests of when they are written."""

    def write(run_dir, *, model):
        assert (run_dir / "model.mllkm").exists()
        assert json.loads((run_dir / "run.json").read_text())["result"] is not None
        (run_dir / "report.html").touch()

    monkeypatch.setattr("mllkm_scale.report.page.write_report", write)


@pytest.mark.usefixtures("blank_pages")
def test_the_report_comes_after_the_model_and_before_the_end_is_told(iris, tmp_path):
    told = []
    train(data_of(iris), test=data_of(iris), run_dir=tmp_path / "run", report=True, listener=told.append, **SETTINGS)
    phases = [event.name for event in told if isinstance(event, Phase)]
    assert phases[-2:] == ["evaluate", "report"]
    assert isinstance(told[-1], Finished)
    assert (tmp_path / "run" / "report.html").exists()


def test_what_a_resumed_training_does_not_make_again_does_not_stay(iris, tmp_path):
    run = tmp_path / "run"
    train(data_of(iris), test=data_of(iris), run_dir=run, report=False, anchors="all", max_rounds=2, n_jobs=1)
    (run / "report.html").touch()
    train(data_of(iris), run_dir=run, resume=True, report=False, anchors="all", n_jobs=1)
    assert not (run / "evaluation.json").exists()
    assert not (run / "report.html").exists()


@pytest.mark.usefixtures("blank_pages")
def test_the_configuration_decides_where_nothing_else_does(iris, tmp_path):
    import dask

    for wanted in (True, False):
        with dask.config.set({"mllkm.report": wanted}):
            train(data_of(iris), run_dir=tmp_path / str(wanted), **SETTINGS)
        assert (tmp_path / str(wanted) / "report.html").exists() == wanted


def test_run_json_tells_of_the_data_from_the_beginning_on(iris, tmp_path):
    X, y = iris
    data = Dataset.from_arrays(X, y, name="iris.h5:X", feature_names=["a", "b", "c", "d"])
    seen = []

    def look(event):
        if isinstance(event, Phase) and event.name == "train":
            seen.append(json.loads((tmp_path / "run" / "run.json").read_text()))

    train(data, run_dir=tmp_path / "run", report=False, image_shape=(2, 2), listener=look, **SETTINGS)
    expected = {"name": "iris.h5:X", "rows": 150, "features": 4, "feature_names": [*"abcd"], "image_shape": [2, 2]}
    assert seen[0]["data"] == expected
    assert seen[0]["result"] is None
    ended = json.loads((tmp_path / "run" / "run.json").read_text())
    assert ended["data"] == expected
    assert ended["result"]["status"] == "converged"
