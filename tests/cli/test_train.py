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
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import Result

from mllkm_scale.cli.training_run import TrainingRun
from mllkm_scale.errors import ClusterError, InterruptedTraining
from mllkm_scale.run.job.cluster import ClusterSpec

Run = Callable[..., Result]


def test_training_fills_the_run_folder_and_evaluates_on_the_rows_held_out(
    trained: tuple[Path, Result],
) -> None:
    folder, result = trained
    names = {"model.mllkm", "checkpoint.npz", "history.jsonl", "plan.json", "run.json", "evaluation.json", "run.log"}
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
    result = mllkm("train", wine_h5, "--out", trained[0], "--resume", "--anchors", "all", "--C", "3")
    assert result.exit_code == 6
    assert "other parameters" in result.stderr


def test_resume_without_a_checkpoint_is_refused(mllkm: Run, wine_h5: Path, tmp_path: Path) -> None:
    result = mllkm("train", wine_h5, "--out", tmp_path / "run", "--resume")
    assert result.exit_code == 6
    assert "train without --resume" in result.stderr


def test_json_progress_is_json_lines_on_stdout_and_nothing_else(mllkm: Run, wine_h5: Path, tmp_path: Path) -> None:
    options = ["--anchors", "all", "--progress", "json", "--max-rounds", "2", "--tol", "1e-5", "--jobs", "1"]
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
    options = ["--anchors", "all", "--progress", "quiet", "--max-rounds", "1", "--jobs", "1"]
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
        "--anchors",
        "all",
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


def test_a_signal_before_the_first_round_does_not_point_to_the_checkpoint_that_was_to_be_replaced(
    mllkm: Run, wine_h5: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["train", wine_h5, "--out", tmp_path / "run", "--anchors", "all", "--max-rounds", "1", "--jobs", "1"]
    assert mllkm(*words).exit_code == 0

    def interrupted(*arguments: object, **options: object) -> None:
        raise InterruptedTraining("training was interrupted: no round had ended")

    monkeypatch.setattr("mllkm_scale.training.train", interrupted)
    result = mllkm(*words, "--overwrite")
    assert result.exit_code == 130
    assert result.stderr.rstrip().endswith("--overwrite")
    result = mllkm(*words, "--resume")
    assert result.stderr.rstrip().endswith("--resume")


def test_workers_train_to_the_same_bits_and_the_cluster_is_told_on_stderr(
    mllkm: Run, wine_h5: Path, tmp_path: Path, trained: tuple[Path, Result]
) -> None:
    result = mllkm("train", wine_h5, "--out", tmp_path / "run", "--anchors", "all", "--memory", "1GB", "--workers", "2")
    assert result.exit_code == 0, result.stderr
    assert "cluster: 2 workers, 2 threads, tls://127.0.0.1:" in result.stderr
    assert "cluster" not in result.stdout
    assert (tmp_path / "run" / "model.mllkm").read_bytes() == (trained[0] / "model.mllkm").read_bytes()


@pytest.mark.parametrize(("options", "code"), [([], 2), (["--overwrite", "--memory", "10MB"], 4)])
def test_what_cannot_work_is_refused_before_a_cluster_is_waited_for(
    mllkm: Run, wine_h5: Path, trained: tuple[Path, Result], tmp_path: Path, options: list[str], code: int
) -> None:
    absent = ["--scheduler-file", tmp_path / "absent.json"]
    for folder, words, expected in ((trained[0], options, code), (tmp_path / "empty", ["--resume"], 6)):
        result = mllkm("train", wine_h5, "--out", folder, *absent, *words)
        assert result.exit_code == expected
        assert "waiting" not in result.stderr


@pytest.mark.parametrize(
    ("parameters", "cluster", "n_jobs"),
    [
        ({}, None, None),
        ({}, ClusterSpec(kind="local", workers=1), 3),
        ({}, ClusterSpec(kind="local", workers=1, threads_per_worker=2), 2),
        ({}, ClusterSpec(kind="local", workers=9), 1),
        ({"n_jobs": 4}, ClusterSpec(kind="local", workers=9), 4),
        ({}, ClusterSpec(kind="address", address="tcp://host:8786"), None),
    ],
)
def test_the_master_takes_the_cores_that_local_workers_leave_unless_told(
    parameters: dict[str, int], cluster: ClusterSpec | None, n_jobs: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mllkm_scale.base.threads.n_threads", lambda n_jobs: 4)
    run = TrainingRun(Path("a.h5"), "X", "y", Path("run"), parameters, cluster=cluster)
    assert run.settings().get("n_jobs") == n_jobs


@pytest.mark.parametrize("kept", [True, False])
def test_a_lost_cluster_ends_with_its_code_and_says_how_to_go_on_if_a_round_had_ended(
    mllkm: Run, wine_h5: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    from mllkm_scale.training import train

    def lose_the_cluster(*arguments: Any, **options: Any) -> None:
        if kept:
            train(*arguments, **options | {"max_rounds": 1})
        raise ClusterError("no worker has answered for 300 s: see that they run")

    monkeypatch.setattr("mllkm_scale.training.train", lose_the_cluster)
    words = [
        "train",
        str(wine_h5),
        "--out",
        str(tmp_path / "run"),
        "--anchors",
        "all",
        "--jobs",
        "1",
        "--progress",
        "quiet",
    ]
    result = mllkm(*words, "--overwrite")
    assert result.exit_code == 8
    how = f"; to go on: mllkm {' '.join(words)} --resume" if kept else ""
    assert result.stderr == f"mllkm: error: no worker has answered for 300 s: see that they run{how}\n"


def run_until(shown: str, arguments: list[str], then: Callable[[int], object]) -> tuple[int, str]:
    """Run a command in a group of processes of its own, as a terminal does, and act on it when a text is shown."""
    command = [sys.executable, "-m", "mllkm_scale.cli", *arguments]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        assert process.stderr is not None
        errors = ""
        while shown not in errors and (line := process.stderr.readline()):
            errors += line
        then(process.pid)
        errors += process.stderr.read()
        return process.wait(timeout=60), errors


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_that_reaches_the_workers_too_leaves_the_checkpoint_to_go_on_from(
    slow_training: list[str], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    found, errors = run_until("round 1", [*slow_training, "--workers", "1"], lambda group: os.killpg(group, number))
    assert found == code, errors
    assert "Traceback" not in errors
    assert errors.rstrip().endswith("--workers 1 --resume")
    assert (tmp_path / "run" / "checkpoint.npz").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_the_cluster_is_waited_for_ends_at_once(
    slow_training: list[str], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    absent = ["--scheduler-file", str(tmp_path / "absent.json")]
    found, errors = run_until(
        "waiting for the cluster", [*slow_training, *absent], lambda group: os.killpg(group, number)
    )
    assert found == code, errors
    assert "Traceback" not in errors
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_scheduler_that_dies_ends_the_training_in_one_line_that_says_how_to_go_on(
    slow_training: list[str], tmp_path: Path
) -> None:
    file = str(tmp_path / "scheduler.json")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    dask = [sys.executable, "-m", "distributed.cli.dask_"]
    scheduler = [f"{dask[2]}scheduler", "--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0"]
    worker = [f"{dask[2]}worker", "--nthreads", "1", "--no-dashboard", "--local-directory", str(tmp_path)]
    with (
        subprocess.Popen([*dask[:2], *scheduler, "--scheduler-file", file], **quiet) as first,
        subprocess.Popen([*dask[:2], *worker, "--scheduler-file", file], **quiet) as second,
    ):
        try:
            options = ["--scheduler-file", file, "--worker-timeout", "30"]
            code, errors = run_until("round 1", [*slow_training, *options], lambda group: first.kill())
        finally:
            first.kill()
            second.terminate()
    assert code == 8, errors
    assert "Traceback" not in errors
    assert errors.splitlines()[-1].startswith("mllkm: error: the scheduler")
    assert errors.rstrip().endswith(f"to go on: mllkm {' '.join([*slow_training, *options])} --resume")


def test_on_a_terminal_the_rounds_stay_as_a_table_and_the_live_line_goes(wine_h5: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mllkm_scale.cli", "train", str(wine_h5), "--out", str(tmp_path / "run")]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "80", "OPENBLAS_NUM_THREADS": "1"}
    terminal, theirs = os.openpty()
    with subprocess.Popen(
        [*command, "--anchors", "all", "--jobs", "1"], stdout=subprocess.PIPE, stderr=theirs, env=environment
    ) as process:
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


def test_a_training_in_the_background_of_a_script_ignores_ctrl_c_and_heeds_sigterm(
    slow_training: list[str], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "mllkm_scale.cli", *slow_training, "--overwrite"]
    with subprocess.Popen(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command], stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for(tmp_path / "run" / "checkpoint.npz", process)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 143, errors
    assert "SIGINT" not in errors
    assert "SIGTERM: ending at the next safe point" in errors
