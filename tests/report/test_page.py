"""The page of a run: what it shows, from which files, and that nothing in it is loaded or run."""

from __future__ import annotations

import io
import json
import shutil
import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from mllkm_scale import MLLKMClassifier, load_model
from mllkm_scale.errors import DataError, ModelFileError, ParameterError, ScratchError
from mllkm_scale.report import write_report
from mllkm_scale.report.shape_pictures import _drawn

ALWAYS = ["Data and model", "Data", "Run", "Model", "Anchors", "Kernels", "Memory"]


def svgs(page, drawn):
    return [ET.fromstring(drawn(image)) for image in page.images if "svg" in image["src"][:20]]


def test_a_training_is_shown_with_its_test_rows_its_course_and_its_anchors(digits_run, parsed):
    page = parsed(digits_run / "report.html")
    for heading in (*ALWAYS, "Results on the test rows", "Most frequent mistakes", "Progress of training"):
        assert heading in page.headings
    assert "Shape functions" not in page.headings
    assert "digits.h5:X_test, 150 rows" in page.text
    evaluation = json.loads((digits_run / "evaluation.json").read_text())
    assert f"{100 * evaluation['error']:.3g} %" in page.text
    run = json.loads((digits_run / "run.json").read_text())
    assert f"{run['result']['n_kernels']}" in page.text
    alts = " ".join(image["alt"] for image in page.images)
    for what in ("Gap over time", "Objective over time", "Kernels over rounds", "Scan throughput", "Confusion matrix"):
        assert what in alts
    assert "anchors as images of 8x8" in alts


def test_a_component_wise_machine_has_a_curve_for_each_feature_by_its_name(additive_run, parsed):
    page = parsed(additive_run / "report.html")
    assert "Shape functions" in page.headings
    curves = [image["alt"] for image in page.images if image["alt"].startswith("Shape function of")]
    assert len(curves) == 7
    assert "Shape function of <script>alert(1)</script>" in curves
    assert "Shape function of $x_{" in curves


def test_a_stream_is_shown_by_its_prequential_error(stream_run, parsed):
    page = parsed(stream_run / "report.html")
    assert "The stream" in page.headings
    alts = " ".join(image["alt"] for image in page.images)
    for what in ("Prequential error over samples", "Kernels over samples", "Samples kept", "Samples per second"):
        assert what in alts
    assert "prequential error" in page.text
    assert "duality gap" not in page.text


@pytest.mark.parametrize("which", ["digits_run", "additive_run", "stream_run", "comparison"])
def test_a_page_loads_nothing_runs_nothing_and_says_what_its_images_show(which, request, parsed, drawn):
    path = request.getfixturevalue(which)
    path = path if path.suffix == ".html" else path / "report.html"
    page = parsed(path)
    assert not {"script", "iframe", "object", "embed", "form", "b"} & page.tags
    assert all(address.startswith("data:") for address in page.addresses)
    assert page.images
    assert all(len(image["alt"]) > 10 for image in page.images)
    assert path.stat().st_size < 3_000_000
    assert svgs(page, drawn)  # well-formed, whatever the names
    for image in page.images:
        assert int(image["width"]) > 0
        assert int(image["height"]) > 0


def test_names_of_the_user_are_shown_as_they_are_and_never_as_markup(additive_run, parsed):
    page = parsed(additive_run / "report.html")
    assert "<img src=x>.h5:X" in page.headings
    assert "<b>no & never</b>" in page.text
    assert "additive & <hostile>" in page.text
    assert "test & more, 150 rows" in page.text


def test_the_anchors_that_are_drawn_are_those_of_the_model(digits_run, parsed, drawn):
    page = parsed(digits_run / "report.html")
    [sheet] = [image for image in page.images if "anchors as images" in image["alt"]]
    with Image.open(io.BytesIO(drawn(sheet))) as image:
        grey = np.asarray(image.convert("L"))
    assert grey.std() > 20  # there is something to see


def test_a_shape_of_images_that_does_not_fit_is_refused(digits_run):
    with pytest.raises(ParameterError, match=r"28x28 has 784 pixels, but a row has 64 features"):
        write_report(digits_run, image_shape="28x28")


def test_a_run_of_an_earlier_version_is_reported_from_what_its_files_have(digits_run, tmp_path, parsed):
    old = tmp_path / "old"
    shutil.copytree(digits_run, old)
    run = json.loads((old / "run.json").read_text())
    run["data"] = {"name": "digits.h5:X", "rows": 250, "features": 64}
    del run["cluster"], run["plan"]
    (old / "run.json").write_text(json.dumps(run))
    (old / "evaluation.json").unlink()
    (old / "plan.json").unlink()
    page = parsed(write_report(old))
    assert "Results on the test rows" not in page.headings
    assert any("regions of 10 classes" in image["alt"] for image in page.images)


def test_a_model_alone_is_enough(digits_run, tmp_path, parsed):
    (tmp_path / "bare").mkdir()
    shutil.copy(digits_run / "model.mllkm", tmp_path / "bare")
    page = parsed(write_report(tmp_path / "bare", image_shape="4x16", out=tmp_path / "page.html"))
    assert any("images of 4x16" in image["alt"] for image in page.images)
    assert "Progress of training" not in page.headings


def test_a_training_that_was_interrupted_is_reported_as_far_as_it_went(digits_run, tmp_path, parsed):
    part = tmp_path / "part"
    shutil.copytree(digits_run, part)
    for name in ("model.mllkm", "evaluation.json", "report.html"):
        (part / name).unlink()
    run = json.loads((part / "run.json").read_text())
    (part / "run.json").write_text(json.dumps(run | {"result": None}))
    rounds = (part / "history.jsonl").read_text().splitlines()
    (part / "history.jsonl").write_text("\n".join([rounds[0], rounds[1][:30]]))
    page = parsed(write_report(part))
    assert "not finished" in page.text
    assert "1 round" in page.text
    assert "Progress of training" in page.headings
    assert "Anchors" not in page.headings


def test_a_folder_that_holds_no_run_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"holds no training: it has neither model\.mllkm nor"):
        write_report(tmp_path)
    with pytest.raises(DataError, match="does not exist: name the folder of a run"):
        write_report(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="is a file: name the folder of a run"):
        write_report(tmp_path / "file")


def test_files_that_are_damaged_are_named(digits_run, tmp_path):
    for name, content, error in (
        ("run.json", "{", DataError),
        ("evaluation.json", '{"classes": [1, 2], "confusion": [[1]]}', DataError),
        ("model.mllkm", "no model", ModelFileError),
    ):
        folder = tmp_path / name
        shutil.copytree(digits_run, folder)
        (folder / name).write_text(content)
        with pytest.raises(error, match=name):
            write_report(folder)


def test_a_page_that_cannot_be_written_is_an_error_that_names_it(digits_run, tmp_path):
    with pytest.raises(ScratchError, match=r"nowhere/page\.html cannot be written"):
        write_report(digits_run, out=tmp_path / "nowhere" / "page.html")
    with pytest.raises(ParameterError, match="is a folder: name a file"):
        write_report(digits_run, out=tmp_path)


def test_shape_functions_tell_where_no_row_was_seen_and_all_can_be_drawn(additive_run, tmp_path):
    some = write_report(additive_run, out=tmp_path / "some.html").read_text()
    every = write_report(additive_run, out=tmp_path / "every.html", all_shapes=True).read_text()
    assert "over the training rows, as a share" in some
    assert "returns to 0 because no kernel is near" in some
    assert every.count("<figure") >= some.count("<figure")


def test_what_is_drawn_of_a_shape_function_is_the_density_of_the_rows(additive_run):
    model = load_model(additive_run / "model.mllkm")
    drawn = _drawn(model, 0)
    quantiles = model.profile.quantiles[0]
    assert drawn.ticks[drawn.seen][[0, -1]].tolist() == quantiles[[0, -1]].tolist()
    assert drawn.shares.sum() == pytest.approx(1.0)
    assert drawn.ticks[0] < quantiles[0] < quantiles[-1] < drawn.ticks[-1]
    middle = drawn.edges[20]
    assert drawn.shares[:20].sum() == pytest.approx(np.mean(quantiles < middle), abs=0.05)


def test_the_page_has_curves_calibration_importances_and_explained_rows(digits_run, parsed):
    page = parsed(digits_run / "report.html")
    alts = " ".join(image["alt"] for image in page.images)
    for what in ("ROC and precision-recall curves", "Calibration plot", "Error on test rows over rounds"):
        assert what in alts
    for heading in ("Features", "Explained test rows"):
        assert heading in page.headings
    evaluation = json.loads((digits_run / "evaluation.json").read_text())
    assert f"row {evaluation['explained'][0]['row']}:" in page.text
    errors = [json.loads(line)["held_error"] for line in (digits_run / "history.jsonl").read_text().splitlines()]
    assert [number for number, error in enumerate(errors, 1) if error is not None] == [
        number for number in (1, 2, 4, 8, 16, 32) if number <= len(errors)
    ]


@pytest.mark.parametrize("parameters", [{}, {"componentwise": True, "anchors": 40}])
def test_a_fitted_estimator_writes_its_report(real_data, parsed, tmp_path, parameters):
    X, y = real_data("breast_cancer")
    table = pd.DataFrame(X[:, :5], columns=["one", "two", "<b>three</b>", "four", "five"])
    table["kind"] = np.where(table["two"] > 19, "high", "low")
    machine = MLLKMClassifier(n_jobs=1, **parameters).fit(table[:300], y[:300])
    page = parsed(machine.report(tmp_path / "page.html", table[300:], y[300:]))
    for heading in ("Results on the test rows", "Features", "Explained test rows", "Kernels", "Memory"):
        assert heading in page.headings
    assert "kind" in page.text
    assert "b" not in page.tags
    assert "of a fitted estimator" in page.text
    alone = parsed(machine.report(tmp_path / "alone.html"))
    assert "Results on the test rows" not in alone.headings
    with pytest.raises(ParameterError, match="give a label for each row of X"):
        machine.report(tmp_path / "page.html", table)
