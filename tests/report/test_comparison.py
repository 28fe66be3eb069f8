"""Runs side by side, and the command that writes both kinds of pages."""

from __future__ import annotations

import json
import shutil

import pytest
from click.testing import CliRunner

from mllkm_scale.cli import cli
from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.report import write_comparison


def run_cli(*words):
    return CliRunner().invoke(cli, [str(word) for word in words])


def test_runs_stand_side_by_side_with_what_differs(comparison, parsed, digits_run):
    page = parsed(comparison)
    assert page.headings[:2] == ["3 runs side by side", "Results"]
    for text in ("digits", "additive & <hostile>", "stream", "componentwise", "P, upper bound", "model file"):
        assert text in page.text
    run = json.loads((digits_run / "run.json").read_text())
    assert f"{run['result']['n_kernels']}" in page.text
    alts = [image["alt"] for image in page.images]
    assert alts == ["Gap over time of 3 runs", "Prequential error of 3 runs", "Test error against cost of 3 runs"]


def test_parameters_that_are_the_same_are_not_listed(digits_run, tmp_path, parsed):
    for C in (1.0, 10.0):
        folder = tmp_path / f"C{C:g}"
        shutil.copytree(digits_run, folder)
        run = json.loads((folder / "run.json").read_text())
        run["parameters"]["C"] = C
        (folder / "run.json").write_text(json.dumps(run))
    page = parsed(write_comparison([tmp_path / "C1", tmp_path / "C10"], out=tmp_path / "page.html"))
    after = page.text.split("Parameters that differ")[1]
    assert "C1" in after
    assert "n_components" not in after


def test_runs_that_are_called_alike_are_told_apart_by_their_paths(digits_run, tmp_path, parsed):
    for place in ("one", "two"):
        shutil.copytree(digits_run, tmp_path / place / "run")
    page = parsed(write_comparison([tmp_path / "one" / "run", tmp_path / "two" / "run"], out=tmp_path / "page.html"))
    assert str(tmp_path / "one" / "run") in page.text
    assert "None: what differs lies in the data" in page.text


def test_a_run_without_a_model_is_compared_as_far_as_it_went(digits_run, tmp_path, parsed):
    part = tmp_path / "part"
    part.mkdir()
    shutil.copy(digits_run / "history.jsonl", part)
    page = parsed(write_comparison([digits_run, part], out=tmp_path / "page.html"))
    assert "not finished" in page.text


def test_what_cannot_be_compared_is_refused(digits_run, tmp_path):
    with pytest.raises(ParameterError, match="at least two runs"):
        write_comparison([digits_run], out=tmp_path / "page.html")
    with pytest.raises(DataError, match="holds no training"):
        write_comparison([digits_run, tmp_path], out=tmp_path / "page.html")


def test_the_command_makes_the_report_of_a_training_again_to_the_byte(digits_run, tmp_path):
    folder = tmp_path / digits_run.name
    shutil.copytree(digits_run, folder)
    (folder / "report.html").unlink()
    result = run_cli("report", folder)
    assert result.exit_code == 0, result.output
    assert result.stdout == f"report: {folder / 'report.html'}\n"
    assert (folder / "report.html").read_bytes() == (digits_run / "report.html").read_bytes()


def test_the_command_compares_several_runs(digits_run, stream_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run_cli("report", digits_run, stream_run)
    assert result.exit_code == 0, result.output
    assert result.stdout == "report: comparison.html\n"
    assert (tmp_path / "comparison.html").exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["nowhere"], 3, "nowhere does not exist: name the folder of a run"),
        (["RUN", "--image-shape", "28x28"], 2, "784 pixels, but a row has 64 features"),
        (["RUN", "--image-shape", "large"], 2, "give height and width such as 28x28"),
        (["RUN", "--out", "nowhere/page.html"], 7, "cannot be written"),
        (["RUN", "RUN", "--image-shape", "8x8"], 2, "--image-shape is for the report of one run"),
        ([], 2, "Missing argument"),
    ],
)
def test_the_command_says_what_is_wrong_in_one_line(digits_run, tmp_path, monkeypatch, words, code, message):
    monkeypatch.chdir(tmp_path)
    result = run_cli("report", *(digits_run if word == "RUN" else word for word in words))
    assert result.exit_code == code, result.output
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
