from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import Result

Run = Callable[..., Result]


def test_training_fills_the_run_folder_and_evaluates_on_the_rows_held_out(
    trained: tuple[Path, Result],
) -> None:
    folder, result = trained
    names = {"model.mllkm", "checkpoint.npz", "history.jsonl", "plan.json", "run.json", "run.log"}
    assert {path.name for path in folder.iterdir()} == names
    assert f"model: {folder / 'model.mllkm'} (converged" in result.stdout
    error = re.search(r"wine\.h5:X_test: 40 rows, error (\S+) %", result.stdout)
    assert error is not None
    assert float(error[1]) <= 10


def test_progress_goes_to_stderr_one_line_a_round(trained: tuple[Path, Result]) -> None:
    folder, result = trained
    rounds = [line for line in result.stderr.splitlines() if line.startswith("round ")]
    assert len(rounds) == len((folder / "history.jsonl").read_text().splitlines()) > 0
    assert "round" not in result.stdout


def test_a_folder_that_holds_a_training_is_refused_and_kept(
    mllkm: Run, wine_h5: Path, trained: tuple[Path, Result]
) -> None:
    folder, _ = trained
    before = (folder / "model.mllkm").read_bytes()
    result = mllkm("train", wine_h5, "--out", folder)
    assert result.exit_code == 2
    assert "--resume" in result.stderr
    assert "--overwrite" in result.stderr
    assert (folder / "model.mllkm").read_bytes() == before


def test_resume_with_other_parameters_is_refused(mllkm: Run, wine_h5: Path, trained: tuple[Path, Result]) -> None:
    result = mllkm("train", wine_h5, "--out", trained[0], "--resume", "--C", "3")
    assert result.exit_code == 6
    assert "other parameters" in result.stderr


def test_resume_without_a_checkpoint_is_refused(mllkm: Run, wine_h5: Path, tmp_path: Path) -> None:
    result = mllkm("train", wine_h5, "--out", tmp_path / "run", "--resume")
    assert result.exit_code == 6
    assert "train without --resume" in result.stderr


def test_json_progress_is_json_lines_on_stdout_and_nothing_else(mllkm: Run, wine_h5: Path, tmp_path: Path) -> None:
    options = ["--progress", "json", "--max-rounds", "2", "--tol", "1e-5", "--jobs", "1"]
    result = mllkm("train", wine_h5, "--out", tmp_path / "run", *options)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    events = [json.loads(line, parse_constant=pytest.fail) for line in result.stdout.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds[0] == "phase"
    assert kinds.count("round") == 2
    assert kinds[-2:] == ["finished", "evaluation"]
    assert events[-2]["status"] == "max_rounds"
    assert events[-1]["n"] == 40


def test_quiet_progress_prints_results_only(mllkm: Run, wine_h5: Path, tmp_path: Path) -> None:
    options = ["--progress", "quiet", "--max-rounds", "1", "--jobs", "1"]
    result = mllkm("train", wine_h5, "--out", tmp_path / "run", *options)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    assert "(max_rounds, " in result.stdout


@pytest.mark.parametrize(
    ("rows", "labels", "problem"),
    [
        (np.zeros((4, 2)), [0, 1, 0, 1], "2 features instead of 3"),
        (np.zeros((4, 3)), [0, 1, 0, 7], "the label 7"),
        (np.zeros((4, 3)), [0, 1, 0], "3 labels"),
    ],
)
def test_held_out_rows_that_cannot_be_evaluated_are_refused_before_the_training(
    mllkm: Run, tmp_path: Path, rows: np.ndarray, labels: list[int], problem: str
) -> None:
    with h5py.File(tmp_path / "d.h5", "w") as file:
        file["X"], file["y"] = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
        file["X_test"], file["y_test"] = rows, labels
    result = mllkm("train", tmp_path / "d.h5", "--out", tmp_path / "run")
    assert result.exit_code == 3
    assert problem in result.stderr
    assert not (tmp_path / "run").exists()


@pytest.fixture
def slow_training(tmp_path: Path, real_data: Callable[[str], tuple[np.ndarray, np.ndarray]]) -> list[str]:
    """Arguments of a training that takes many rounds."""
    X, y = real_data("digits")
    with h5py.File(tmp_path / "digits.h5", "w") as file:
        file["X"], file["y"] = X[:600], y[:600]
    words = [
        "train",
        tmp_path / "digits.h5",
        "--out",
        tmp_path / "run",
        "--tol",
        "1e-4",
        "--seed",
        "1",
        "--jobs",
        "1",
    ]
    return [str(word) for word in words]


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline_s = time.monotonic() + 60
    while not path.exists() and process.poll() is None and time.monotonic() < deadline_s:
        time.sleep(0.02)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_training_with_a_checkpoint_and_says_how_to_go_on(
    slow_training: list[str], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    command = [sys.executable, "-m", "mllkm_scale.cli", *slow_training, "--overwrite"]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        wait_for(tmp_path / "run" / "checkpoint.npz", process)
        process.send_signal(number)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert output == ""
    assert "Traceback" not in errors
    assert f"{number.name}: ending at the next safe point" in errors
    assert errors.rstrip().endswith(f"to go on: mllkm {' '.join(slow_training)} --resume")
    assert not (tmp_path / "run" / "model.mllkm").exists()
    assert not (tmp_path / "run" / ".lock").exists()
    assert (tmp_path / "run" / "checkpoint.npz").exists()


def test_on_a_terminal_the_rounds_stay_as_a_table_and_the_live_line_goes(wine_h5: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mllkm_scale.cli", "train", str(wine_h5), "--out", str(tmp_path / "run")]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "80", "OPENBLAS_NUM_THREADS": "1"}
    terminal, theirs = os.openpty()
    with subprocess.Popen([*command, "--jobs", "1"], stdout=subprocess.PIPE, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # how a terminal says that nobody writes any more
            while part := os.read(terminal, 4096):
                shown += part
        os.close(terminal)
        assert process.stdout is not None
        results = process.stdout.read().decode()
    assert process.returncode == 0
    assert results.startswith("model: ")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert re.search(r"round +gap +kernels +support +scan/s +memory +elapsed +left", text)
    rows = re.findall(r"\r *(\d+) +\S+ % +\d+/\d+", text)
    assert rows == [str(number) for number in range(1, len(rows) + 1)]
    assert "converged: gap" in text
    assert shown.count(b"\x1b[?25l") == shown.count(b"\x1b[?25h") == 1  # the cursor is back
