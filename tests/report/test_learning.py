"""The part of the page on learned kernels: the descent, the importance of features, and the choice of C."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mllkm_scale import Dataset, train
from mllkm_scale.base.events import Epoch
from mllkm_scale.report import write_comparison, write_report
from mllkm_scale.report.learning import learning_section
from mllkm_scale.report.run_files import read_run

NAMES = ("radius", "texture & <b>", "perimeter", "area", "smoothness", "noise")


@pytest.fixture(scope="module")
def learned_runs(tmp_path_factory, real_data) -> dict[str, Path]:
    """Trainings with learned kernels, weighed by MKL and left as learned; the last feature is the same in all rows."""
    X, y = real_data("breast_cancer")
    X = np.column_stack([X[:260, :5], np.zeros(260)])
    folder = tmp_path_factory.mktemp("learned")
    for finish in ("mkl", "none"):
        train(
            Dataset.from_arrays(X, y[:260], name="cells.h5:X", feature_names=NAMES),
            anchors="learned:30",
            metric="diagonal",
            ridge=0.1,
            scaling="standard+quantile",
            finish=finish,
            run_dir=folder / finish,
            report=True,
            n_jobs=1,
        )
    return {finish: folder / finish for finish in ("mkl", "none")}


def record(folder: Path) -> dict:
    return json.loads((folder / "run.json").read_text())


def alts(page) -> str:
    return " ".join(image["alt"] for image in page.images)


@pytest.mark.parametrize("finish", ["mkl", "none"])
def test_learned_kernels_are_shown_with_their_descent_and_the_importance_of_features(learned_runs, finish, parsed):
    page = parsed(learned_runs[finish] / "report.html")
    assert "Learning" in page.headings
    n_epochs = len((learned_runs[finish] / "learning.jsonl").read_text().splitlines())
    assert f"Loss over {n_epochs} epochs" in alts(page)
    assert "Importance of 11 features" in alts(page)
    assert "held-out rows" not in alts(page)  # few rows: none are held out of the descent
    assert "learned" in page.text
    assert record(learned_runs[finish])["choice"]["reason"] in page.text


def test_a_machine_weighed_by_mkl_is_shown_with_all_that_was_tried(learned_runs, parsed):
    page, choice = parsed(learned_runs["mkl"] / "report.html"), record(learned_runs["mkl"])["choice"]
    assert "Machines on held-out rows" in page.headings
    for C, error in zip(choice["Cs"], choice["errors"], strict=True):
        assert f"weighed by MKL, C = {C:g}" in page.text
        assert f"{100 * error:.2f}" in page.text
    assert f"{100 * choice['learned_error']:.2f}" in page.text
    section = learning_section(read_run(learned_runs["mkl"]))
    assert [one.name for one in section.tried if one.chosen] == [f"weighed by MKL, C = {choice['C']:g}"]


def test_a_machine_left_as_learned_says_so_and_why(learned_runs, parsed):
    page = parsed(learned_runs["none"] / "report.html")
    assert "Gradient descent alone made the machine, without MKL: as asked for." in page.text
    assert "Machines on held-out rows" not in page.headings
    assert "Progress of training" not in page.headings
    candidates = read_run(learned_runs["none"]).model.certificate.n_open
    assert f"of {candidates:,} candidates" in page.text


def test_run_json_tells_what_was_learned(learned_runs):
    for finish, folder in learned_runs.items():
        learned, model = record(folder)["learned"], read_run(folder).model
        assert learned["n_kernels"] == 30
        assert learned["metric"] == "diagonal"
        assert learned["kept_kernels"] + learned["other_kernels"] == model.n_kernels
        assert learned["other_kernels"] == 0 or finish == "mkl"
        assert learned["features"] == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4]
        assert learned["quantile"] == [False] * 6 + [True] * 5
        assert max(learned["importance"]) == 1.0
        assert learned["importance"][5] == 0.0  # it never changes
        assert (learned["dropped_columns"], learned["dropped_features"]) == (1, 1)
        assert model.preprocessor.n_features_out == 10


def test_importance_is_the_spread_of_the_prepared_rows(learned_runs, real_data):
    X, _ = real_data("breast_cancer")
    X = np.column_stack([X[:260, :5], np.zeros(260)])
    learned, model = record(learned_runs["none"])["learned"], read_run(learned_runs["none"]).model
    spread = model.preprocessor.transform(X).std(axis=0)
    np.testing.assert_allclose(np.delete(learned["importance"], 5), spread / spread.max(), rtol=1e-4)


def test_bars_have_the_names_of_features_with_quantiles_marked(learned_runs, parsed, drawn):
    page = parsed(learned_runs["mkl"] / "report.html")
    [bars] = [image for image in page.images if image["alt"].startswith("Importance of")]
    text = drawn(bars).decode()
    for name in ("radius", "radius (quantile)", "texture &amp; &lt;b&gt; (quantile)", "noise"):
        assert f">{name}<" in text


def test_several_hundred_epochs_with_held_out_rows_are_drawn(learned_runs, tmp_path, parsed):
    long = tmp_path / "long"
    shutil.copytree(learned_runs["none"], long)
    epochs = [Epoch(k, 700, 1.0 / k, 0.5, 0.3 / np.sqrt(k), 1e4, 0.1 * k, 0.0) for k in range(1, 701)]
    (long / "learning.jsonl").write_text("".join(f"{json.dumps(vars(epoch))}\n" for epoch in epochs))
    page = parsed(write_report(long))
    assert "Loss over 700 epochs, 0.00143 in the last; error on held-out rows 1.13 % in the last" in alts(page)
    assert (long / "report.html").stat().st_size < 3_000_000


def test_a_descent_that_was_interrupted_is_shown_as_far_as_it_went(learned_runs, tmp_path, parsed):
    part = tmp_path / "part"
    part.mkdir()
    lines = (learned_runs["mkl"] / "learning.jsonl").read_text().splitlines()
    (part / "learning.jsonl").write_text("\n".join([*lines[:3], lines[3][:20]]))
    begun = record(learned_runs["mkl"]) | {"choice": None, "learned": None, "result": None}
    (part / "run.json").write_text(json.dumps(begun))
    page = parsed(write_report(part))
    assert "Loss over 3 epochs" in alts(page)
    assert "ended before it was decided" in page.text
    (part / "run.json").unlink()
    assert "Learning" in parsed(write_report(part)).headings


def test_importance_of_pixels_is_an_image(learned_runs):
    run = read_run(learned_runs["none"])
    section = learning_section(run, (2, 3))
    assert section.pictures[1].alt == "Importance of the pixels of images of 2x3"


@pytest.mark.parametrize("metric", [None, "full", 2])
def test_other_metrics_are_named_and_drawn_if_there_is_one(learned_runs, metric):
    run = read_run(learned_runs["none"])
    section = learning_section(replace(run, record={**run.record, "learned": {**run.learned, "metric": metric}}))
    words = {None: "none", "full": "linear map of 11 features", 2: "linear map of 11 features to 2"}
    assert section.facts["metric"] == words[metric]
    assert len(section.pictures) == (1 if metric is None else 2)


def test_a_later_model_of_a_path_chooses_nothing_and_is_weighed_by_mkl(learned_runs):
    run = read_run(learned_runs["mkl"])
    section = learning_section(replace(run, record={**run.record, "choice": None}))
    assert section.sentence == "The learned kernels were weighed by MKL."
    assert section.tried == []


def test_components_are_called_so(learned_runs):
    run = read_run(learned_runs["none"])
    section = learning_section(replace(run, record={**run.record, "learned": {**run.learned, "features": None}}))
    assert "principal component" in section.pictures[1].alt


def test_runs_with_and_without_learned_kernels_are_compared(learned_runs, digits_run, stream_run, tmp_path, parsed):
    page = parsed(write_comparison([*learned_runs.values(), digits_run, stream_run], out=tmp_path / "all.html"))
    assert "learned kernels" in page.text
    assert "finish" in page.text


def test_a_run_without_learned_kernels_has_no_such_part(digits_run, parsed):
    assert "Learning" not in parsed(digits_run / "report.html").headings


def test_inspect_tells_the_metric_and_the_finish(learned_runs):
    from mllkm_scale.model.describe import describe

    for finish, told in (("mkl", "weighed by MKL"), ("none", "left as learned")):
        assert f"learned:30, metric diagonal, {told}" in describe(read_run(learned_runs[finish]).model).as_text()
