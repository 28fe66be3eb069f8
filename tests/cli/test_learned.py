"""`mllkm train` and `mllkm run` with learned kernels: options, job files, and signals during the descent."""

from __future__ import annotations

import json
import os
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

from mllkm_scale import Dataset, train
from mllkm_scale.errors import InterruptedTraining, JobFileError
from mllkm_scale.learn.settings import learn_settings

Run = Callable[..., Result]
OPTIONS = ["--anchors", "learned:30", "--metric", "none", "--ridge", "0.1"]
OPTIONS += ["--finish", "mkl", "--C", "1", "--jobs", "1"]
ONE_SETTING = ["--metric", "diagonal", "--ridge", "0.1"]  # so that none compete
N_EPOCHS = learn_settings(5000, 20, None, 0).epochs
SETTINGS: dict[str, Any] = {"anchors": "learned:30", "metric": None, "ridge": 0.1}
SETTINGS |= {"finish": "mkl", "C": 1.0, "n_jobs": 1}


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mllkm_scale.learn.settings._MOST_EPOCHS", 20)


def test_train_learns_as_the_options_say(mllkm: Run, wine_h5: Path, tmp_path: Path) -> None:
    result = mllkm("train", wine_h5, "--out", tmp_path / "run", *OPTIONS)
    assert result.exit_code == 0, result.stderr
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"model.mllkm", "learning.npz", "learning.jsonl", "checkpoint.npz"} <= names
    assert "(converged" in result.stdout
    assert "weighed by MKL" in result.stderr
    train(Dataset.open(wine_h5), run_dir=tmp_path / "same", **SETTINGS)
    assert (tmp_path / "same" / "model.mllkm").read_bytes() == (tmp_path / "run" / "model.mllkm").read_bytes()


def test_json_progress_tells_every_epoch(mllkm: Run, wine_h5: Path, tmp_path: Path) -> None:
    words = [*ONE_SETTING, "--finish", "none", "--anchors", "learned:10", "--progress", "json", "--jobs", "1"]
    result = mllkm("train", wine_h5, "--out", tmp_path / "run", *words)
    assert result.exit_code == 0, result.stderr
    events = [json.loads(line, parse_constant=pytest.fail) for line in result.stdout.splitlines()]
    assert [event["number"] for event in events if event["event"] == "epoch"] == list(range(1, 21))
    [finished] = [event for event in events if event["event"] == "finished"]
    assert finished["status"] == "learned"


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--anchors", "learned:0", "learned:200"),
        ("--anchors", "learnt", "learned+all"),
        ("--metric", "round", "not a whole number"),
        ("--metric", "0", "metric=0"),
        ("--metric", "1.5", "not a whole number"),
        ("--finish", "later", "'auto', 'mkl', 'none'"),
    ],
)
def test_a_wrong_value_is_a_usage_error_that_names_the_option(
    mllkm: Run, wine_h5: Path, tmp_path: Path, option: str, value: str, said: str
) -> None:
    result = mllkm("train", wine_h5, "--out", tmp_path / "run", option, value)
    assert result.exit_code == 2
    assert f"Invalid value for '{option}'" in result.stderr
    assert said in result.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "words", [["--strategy", "paper"], ["--finish", "none", "--local-bias", "0"], ["--metric", "99"]], ids=str
)
def test_options_that_do_not_go_together_are_refused(
    mllkm: Run, wine_h5: Path, tmp_path: Path, words: list[str]
) -> None:
    result = mllkm("train", wine_h5, "--out", tmp_path / "run", "--anchors", "learned", *words)
    assert result.exit_code == 2
    assert words[-2].removeprefix("--").replace("-", "_") in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "run" / "learning.npz").exists()


@pytest.fixture
def write_job(tmp_path: Path, wine_h5: Path) -> Callable[[str], Path]:
    def write(parameters: str) -> Path:
        path = tmp_path / "job.toml"
        path.write_text(f'[data]\npath = "{wine_h5}"\n[parameters]\n{parameters}\n[output]\nrun = "run"\n')
        return path

    return write


def test_a_job_with_the_same_keys_trains_to_the_same_bits(
    mllkm: Run, write_job: Callable[[str], Path], wine_h5: Path, tmp_path: Path
) -> None:
    job = write_job('anchors = "learned:30"\nmetric = "none"\nridge = 0.1\nfinish = "mkl"\nC = 1\nn_jobs = 1')
    result = mllkm("run", job)
    assert result.exit_code == 0, result.stderr
    train(Dataset.open(wine_h5), run_dir=tmp_path / "same", **SETTINGS)
    assert (tmp_path / "same" / "model.mllkm").read_bytes() == (tmp_path / "run" / "model.mllkm").read_bytes()


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('anchors = "learned:0"', "anchors"),
        ('metric = "round"', "metric"),
        ("metric = 0", "metric"),
        ('finish = "later"', "finish"),
        ('anchors = "learned"\nstrategy = "paper"', "strategy"),
    ],
)
def test_a_wrong_value_of_a_job_is_named(
    mllkm: Run, write_job: Callable[[str], Path], tmp_path: Path, line: str, named: str
) -> None:
    result = mllkm("run", write_job(line))
    assert result.exit_code == JobFileError.exit_code
    assert named in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "run").exists()


def test_a_descent_that_was_to_be_replaced_is_not_pointed_to(
    mllkm: Run, wine_h5: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["train", wine_h5, "--out", tmp_path / "run", "--finish", "none", *OPTIONS[:6], "--jobs", "1"]
    assert mllkm(*words).exit_code == 0

    def interrupted(*arguments: object, **options: object) -> None:
        raise InterruptedTraining("training was interrupted: no round had ended")

    monkeypatch.setattr("mllkm_scale.training.train", interrupted)
    assert mllkm(*words, "--overwrite").stderr.rstrip().endswith("--overwrite")
    assert mllkm(*words, "--resume").stderr.rstrip().endswith("--resume")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_during_the_descent_keeps_it_and_says_how_to_go_on(
    tmp_path: Path,
    real_data: Callable[[str], Any],
    mllkm: Run,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    code: int,
) -> None:
    monkeypatch.undo()  # of the epochs, which are more in the other process, too
    X, y = real_data("digits")
    with h5py.File(tmp_path / "digits.h5", "w") as file:
        file["X"], file["y"] = np.tile(X, (3, 1))[:5000], np.tile(y, 3)[:5000]
    more = ["--anchors", "learned:20", *ONE_SETTING, "--finish", "none", "--jobs", "1", "--seed", "1"]
    words = ["train", str(tmp_path / "digits.h5"), "--out", str(tmp_path / "run"), *more]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "mllkm_scale.cli", *words], stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        deadline_s = time.monotonic() + 60
        while not (tmp_path / "run" / "learning.npz").exists() and time.monotonic() < deadline_s:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    assert "what was learned so far is kept" in errors
    assert errors.rstrip().endswith(f"to go on: mllkm {' '.join(words)} --resume")
    told = (tmp_path / "run" / "learning.jsonl").read_text().splitlines()
    assert 0 < len(told) < N_EPOCHS
    again = mllkm(*words)
    assert again.exit_code == 2
    assert "--resume" in again.stderr
    resumed = mllkm(*words, "--resume")
    assert resumed.exit_code == 0, resumed.stderr
    told = (tmp_path / "run" / "learning.jsonl").read_text().splitlines()
    assert [json.loads(line)["number"] for line in told] == list(range(1, N_EPOCHS + 1))
    assert "(learned, 20 kernels)" in resumed.stdout
