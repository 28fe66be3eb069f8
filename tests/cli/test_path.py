"""`mllkm path` and `mllkm choose`: from data to the model that is small enough."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from mllkm_scale import load_model

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def trained_path(mllkm: Run, wine_h5: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    folder = tmp_path_factory.mktemp("path") / "path"
    counts = ("--kernel-counts", "12,4,1", "--anchors", "all", "--jobs", "1", "--memory", "1GB")
    result = mllkm("path", wine_h5, "--out", folder, *counts)
    assert result.exit_code == 0, result.output
    return folder, result


def test_the_table_names_the_knee_which_is_evaluated_on_the_rows_held_out(trained_path: tuple[Path, Result]) -> None:
    folder, result = trained_path
    rows = [line for line in result.stdout.splitlines() if line.startswith("max_kernels=")]
    assert [row.split()[0] for row in rows] == ["max_kernels=12", "max_kernels=4", "max_kernels=1"]
    knee = json.loads((folder / "path.json").read_text())["knee"]
    assert [row.split()[0] for row in rows if "knee, chosen" in row] == [knee]
    assert f"knee: {folder / knee}," in result.stdout
    assert re.search(r"wine\.h5:X_test: 40 rows, error \S+ %", result.stdout)


def test_the_page_draws_error_against_cost(trained_path: tuple[Path, Result]) -> None:
    folder, _ = trained_path
    page = (folder / "report.html").read_text()
    assert page.count('<img src="data:image/svg+xml') == 1
    assert all(f'<th scope="row">max_kernels={count}</th>' in page for count in (12, 4, 1))
    assert (folder / "path.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_can_be_made_again(mllkm: Run, trained_path: tuple[Path, Result], tmp_path: Path) -> None:
    folder, _ = trained_path
    result = mllkm("report", folder, "--out", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "page.html").read_text() == (folder / "report.html").read_text()
    refused = mllkm("report", folder, "--image-shape", "8x8")
    assert (refused.exit_code, "a model of a path" in refused.stderr) == (2, True)


def test_a_path_along_C_may_be_measured_on_a_file_of_its_own(mllkm: Run, wine_h5: Path, tmp_path: Path) -> None:
    given = ("--anchors", "all", "--Cs", "2,0.1", "--validation", wine_h5, "--jobs", "1", "--report")
    result = mllkm("path", wine_h5, "--out", tmp_path / "path", *given, "--progress", "json")
    assert result.exit_code == 0, result.output
    events = [json.loads(line) for line in result.stdout.splitlines()]
    (told,) = (event for event in events if event["event"] == "path")
    assert [point["value"] for point in told["points"]] == [0.1, 2.0]
    assert load_model(tmp_path / "path" / "C=2" / "model.mllkm").certificate.n_train == 138
    assert '<a href="C%3D2/report.html">C=2</a>' in (tmp_path / "path" / "report.html").read_text()
    assert (tmp_path / "path" / "C=2" / "report.html").exists()


def test_models_have_the_same_bits_with_dask_workers(
    mllkm: Run, wine_h5: Path, trained_path: tuple[Path, Result], tmp_path: Path
) -> None:
    counts = ("--kernel-counts", "12,4,1", "--anchors", "all", "--memory", "1GB", "--workers", "1")
    assert mllkm("path", wine_h5, "--out", tmp_path / "path", *counts).exit_code == 0
    for count in (12, 4, 1):
        files = [folder / f"max_kernels={count}" / "model.mllkm" for folder in (tmp_path / "path", trained_path[0])]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_choose_takes_the_best_model_within_limits(
    mllkm: Run, trained_path: tuple[Path, Result], tmp_path: Path
) -> None:
    folder, _ = trained_path
    points = json.loads((folder / "path.json").read_text())["points"]
    smallest = min(point["model_bytes"] for point in points)
    result = mllkm("choose", folder, "--below", f"{smallest}B", "--out", tmp_path / "small.mllkm")
    assert result.exit_code == 0, result.output
    assert load_model(tmp_path / "small.mllkm").n_kernels == 1
    again = mllkm("choose", folder, "--out", tmp_path / "small.mllkm")
    assert (again.exit_code, "exists already" in again.stderr) == (2, True)
    told = json.loads(mllkm("choose", folder, "--below", "900ms", "--json").stdout)
    assert told["chosen"]["error"] == min(point["error"] for point in points)
    assert (folder / told["chosen"]["parameter"]).name == "max_kernels"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--below", "fast"], 2, "not a limit"),
        (["--Cs", "1,x"], 2, "not a list of numbers"),
        (["--Cs", "1", "--kernel-counts", "5"], 2, "three paths: give one"),
        (["--validation", "1.5"], 2, "between 0 and 1"),
        (["--validation", "nowhere.h5"], 3, "nowhere.h5"),
        (["--resume"], 6, "no path to resume"),
        (["--resume", "--overwrite"], 2, "give one of them"),
        (["--memory", "100MB"], 4, "at least"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused_and_leaves_no_models(
    mllkm: Run, wine_h5: Path, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    result = mllkm("path", wine_h5, "--out", tmp_path / "path", *arguments)
    assert result.exit_code == code, result.output
    assert message in result.stderr
    assert not list(tmp_path.rglob("model.mllkm"))


@pytest.mark.parametrize(
    ("make", "message"),
    [(lambda path: path.mkdir(), "holds no path.json"), (lambda path: None, "holds no path.json")],
    ids=["empty", "missing"],
)
def test_a_folder_without_a_path_is_refused(
    mllkm: Run, tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    make(tmp_path / "path")
    result = mllkm("choose", tmp_path / "path")
    assert (result.exit_code, message in result.stderr) == (3, True)


def test_ctrl_c_keeps_the_models_that_are_there_and_says_how_to_go_on(wine_h5: Path, tmp_path: Path) -> None:
    folder = tmp_path / "path"
    command = [sys.executable, "-m", "mllkm_scale", "path", str(wine_h5), "--out", str(folder), "--jobs", "1"]
    command += ["--anchors", "all", "--Cs", ",".join(f"{0.05 * 1.3**k:.4f}" for k in range(30)), "--tol", "1e-5"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        try:
            until = time.monotonic() + 60
            while len(list(folder.glob("*/end.npz"))) < 2 and time.monotonic() < until:
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert f"to go on: mllkm path {wine_h5} --out {folder}" in said
    assert said.rstrip().endswith("--resume")
    points = json.loads((folder / "path.json").read_text())["points"]
    assert len(points) >= 2
    for point in points:
        load_model(folder / point["name"] / "model.mllkm")
