"""`mllkm stream` from end to end: its sources, its folder, its errors, and what a signal leaves."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import CliRunner, Result

from mllkm_scale.cli import cli
from mllkm_scale.errors import ClusterError
from mllkm_scale.model import load_model, model_checksum

Run = Callable[..., Result]
SMALL = ("--warm-up", "150", "--max-kernels", "40", "--gammas", "0.005,0.02", "--jobs", "1")
FIRST = 1000  # rows that are streamed; 100 after them are held out


@pytest.fixture(scope="module")
def digits(real_data: Callable[[str], tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    X, y = real_data("digits")
    return X[: FIRST + 100], y[: FIRST + 100] % 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, digits: tuple[np.ndarray, np.ndarray]) -> Path:
    """The digits as HDF5, CSV with a header, and JSON lines."""
    place, (X, y) = tmp_path_factory.mktemp("data"), digits
    with h5py.File(place / "digits.h5", "w") as file:
        file["X"], file["y"] = X[:FIRST], y[:FIRST]
        file["X_test"], file["y_test"] = X[FIRST:], y[FIRST:]
    rows = [(row.astype(int).tolist(), int(label)) for row, label in zip(X[:FIRST], y[:FIRST], strict=True)]
    names = ",".join([f"pixel{i}" for i in range(X.shape[1])] + ["digit"])
    (place / "digits.csv").write_text("\n".join([names] + [",".join(map(str, [*row, label])) for row, label in rows]))
    (place / "digits.jsonl").write_text("\n".join(json.dumps({"x": row, "y": label}) for row, label in rows))
    return place


@pytest.fixture(scope="module")
def streamed(folder: Path, tmp_path_factory: pytest.TempPathFactory, mllkm: Run) -> tuple[Path, Result]:
    """The run folder of a stream, and what the command printed."""
    run = tmp_path_factory.mktemp("stream") / "run"
    return run, mllkm("stream", folder / "digits.h5", "--out", run, *SMALL)


def model_bytes(run: Path) -> str:
    """The checksum of the model, without the names that only some of the files have."""
    return model_checksum(replace(load_model(run / "model.mllkm"), feature_names=None))


def test_hdf5_is_learned_recorded_and_evaluated_on_the_rows_held_out(streamed: tuple[Path, Result]) -> None:
    run, result = streamed
    assert result.exit_code == 0, result.output
    names = {"model.mllkm", "checkpoint.npz", "stream.jsonl", "plan.json", "run.json", "evaluation.json", "run.log"}
    assert {path.name for path in run.iterdir()} == names
    assert re.fullmatch(rf"model: {run / 'model.mllkm'} \(\d+ kernels\)", result.stdout.splitlines()[0])
    error = re.search(r"digits\.h5:X_test: 100 rows, error (\S+) %", result.stdout)
    assert error is not None
    assert float(error[1]) < 20
    told = result.stderr.splitlines()
    assert told[0] == f"stream: {result.stdout.splitlines()[1].split(':X_test')[0]}:X, from sample 0"
    assert told[-1].startswith("ended: samples 1,000, error ")


@pytest.mark.parametrize("source", ["digits.csv", "digits.jsonl", "standard input"])
def test_text_is_learned_to_the_bits_of_hdf5(
    folder: Path, tmp_path: Path, streamed: tuple[Path, Result], source: str
) -> None:
    standard = source == "standard input"
    data = "-" if standard else str(folder / source)
    words = ["stream", data, "--out", str(tmp_path / "run"), "--classes", "0,1,2", "--progress", "quiet", *SMALL]
    result = CliRunner().invoke(cli, words, input=(folder / "digits.csv").read_bytes() if standard else None)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert model_bytes(tmp_path / "run") == model_bytes(streamed[0])


def test_without_classes_the_labels_of_a_text_are_text(mllkm: Run, folder: Path, tmp_path: Path) -> None:
    options = ["--label-column", "digit", "--progress", "json"]
    result = mllkm("stream", folder / "digits.csv", "--out", tmp_path / "run", *options, *SMALL)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    events = [json.loads(line, parse_constant=pytest.fail) for line in result.stdout.splitlines()]
    assert [event["event"] for event in events][:2] == ["phase", "streamed"]
    assert events[-1]["event"] == "streamended"
    assert events[-1]["n_samples"] == FIRST
    assert events[1]["error"] is None  # none of the warm-up is predicted
    inspected = mllkm("inspect", tmp_path / "run")
    assert inspected.exit_code == 0, inspected.stderr
    assert "online" in inspected.stdout


def test_an_existing_folder_is_refused_resumed_or_replaced(
    mllkm: Run, folder: Path, tmp_path: Path, streamed: tuple[Path, Result]
) -> None:
    with h5py.File(folder / "digits.h5") as file, h5py.File(tmp_path / "short.h5", "w") as short:
        short["X"], short["y"] = file["X"][:600], file["y"][:600]
    run = tmp_path / "run"
    assert mllkm("stream", tmp_path / "short.h5", "--out", run, *SMALL).exit_code == 0
    before = model_bytes(run)
    for words, code, said in (
        ([], 2, "--overwrite"),
        (["--resume", "--overwrite"], 2, "give one of them"),
        (["--resume", "--C", "3"], 6, "other parameters"),
        (["--overwrite", "--memory", "30MB"], 4, "is too small"),
    ):
        absent = ["--scheduler-file", tmp_path / "absent.json"] if code == 2 else []  # which is not waited for
        result = mllkm("stream", folder / "digits.h5", "--out", run, *SMALL, *words, *absent)
        assert result.exit_code == code, result.output
        assert said in result.stderr
        assert model_bytes(run) == before
    result = mllkm("stream", folder / "digits.h5", "--out", run, *SMALL, "--resume")
    assert "from sample 600" in result.stderr
    assert model_bytes(run) == model_bytes(streamed[0])
    assert mllkm("stream", tmp_path / "short.h5", "--out", run, *SMALL, "--overwrite").exit_code == 0
    assert model_bytes(run) == before


@pytest.mark.parametrize(
    ("data", "options", "code", "said"),
    [
        ("absent.csv", [], 3, "absent.csv does not exist"),
        ("absent.h5", [], 3, "absent.h5"),
        ("digits.csv", ["--classes", "0,1"], 3, r"digits\.csv: line 4, column 65 'digit' .*, the label, is '2'"),
        ("digits.jsonl", ["--classes", "0,1"], 3, r"digits\.jsonl: line 3, the label 'y', is '2'"),
        ("digits.h5", ["--classes", "0,1"], 3, r"row 2 \(0-based\), is '2', none of the classes 0, 1"),
        ("digits.csv", ["--classes", "1"], 3, r"classes=\[1\]: give all possible labels"),
        ("digits.csv", ["--passes", "2"], 2, "passes does not belong to the format csv"),
        ("digits.csv", ["--warm-up", "none"], 2, "--warm-up"),
        ("digits.h5", ["--memory", "30MB"], 4, "at least"),
        ("digits.csv", ["--memory", "30MB"], 4, "at least"),
        ("digits.h5", ["--resume"], 6, "nothing to resume"),
    ],
    ids=str,
)
def test_what_cannot_work_is_one_line_that_names_it(
    mllkm: Run, folder: Path, tmp_path: Path, data: str, options: list[str], code: int, said: str
) -> None:
    result = mllkm("stream", folder / data, "--out", tmp_path / "run", "--progress", "quiet", *options)
    assert result.exit_code == code, result.output
    assert len(result.stderr.splitlines()) == 1
    assert re.search(said, result.stderr), result.stderr
    assert result.stdout == ""
    assert {path.name for path in (tmp_path / "run").glob("*")} <= {"run.log", "plan.json"}


def test_a_bad_line_in_mid_stream_loses_nothing_of_what_was_learned_before_it(
    mllkm: Run, folder: Path, tmp_path: Path, streamed: tuple[Path, Result]
) -> None:
    good = (folder / "digits.csv").read_text().splitlines(keepends=True)
    bad = tmp_path / "digits.csv"
    bad.write_text("".join([*good[:400], "no numbers\n", *good[400:]]))
    words = ["stream", bad, "--out", tmp_path / "run", "--classes", "0,1,2", *SMALL]
    result = mllkm(*words)
    assert (result.exit_code, "line 401" in result.stderr) == (3, True), result.stderr
    assert (tmp_path / "run" / "checkpoint.npz").exists()
    bad.write_text("".join(good))
    result = mllkm(*words, "--resume")
    assert result.exit_code == 0, result.stderr
    assert model_bytes(tmp_path / "run") == model_bytes(streamed[0])


def test_scaling_may_be_taken_from_a_file(
    mllkm: Run, folder: Path, tmp_path: Path, streamed: tuple[Path, Result]
) -> None:
    words = ["stream", folder / "digits.csv", "--out", tmp_path / "run", "--classes", "0,1,2", *SMALL]
    result = mllkm(*words, "--prepare-from", folder / "digits.h5")
    assert result.exit_code == 0, result.stderr
    assert model_bytes(tmp_path / "run") != model_bytes(streamed[0])
    result = mllkm(*words, "--overwrite", "--prepare-from", tmp_path / "absent.h5")
    assert result.exit_code == 3
    assert "absent.h5" in result.stderr


def test_lines_that_are_skipped_are_told_at_the_end(mllkm: Run, folder: Path, tmp_path: Path) -> None:
    text = (folder / "digits.csv").read_text().splitlines()
    (tmp_path / "bad.csv").write_text("\n".join([*text[:300], "what is this", *text[300:400]]))
    words = ["stream", tmp_path / "bad.csv", "--out", tmp_path / "run", "--bad-lines", "skip", *SMALL]
    result = mllkm(*words)
    assert result.exit_code == 0, result.stderr
    assert "1 bad line was skipped; the first: line 301" in result.stderr
    assert "ended: samples 399" in result.stderr


@contextmanager
def running(*words: str | Path) -> Iterator[subprocess.Popen[str]]:
    """The command as a process in a group of its own, as a terminal starts it; it has ended when the block ends."""
    with subprocess.Popen(
        [sys.executable, "-m", "mllkm_scale.cli", *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def wait_for(process: subprocess.Popen[str], there: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 60
    while not there() and process.poll() is None and time.monotonic() < deadline_s:
        time.sleep(0.02)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_samples_are_waited_for_ends_at_once_and_keeps_what_came(
    folder: Path, tmp_path: Path, streamed: tuple[Path, Result], number: signal.Signals, code: int
) -> None:
    run = tmp_path / "run"
    words = ["stream", "-", "--out", str(run), "--classes", "0,1,2", *SMALL]
    text = (folder / "digits.csv").read_text()
    with running(*words, "--checkpoint-every", "0") as process:
        assert process.stdin is not None
        process.stdin.write(text[: len(text) // 2])
        process.stdin.flush()  # and nothing more comes, but the pipe stays open
        wait_for(process, (run / "model.mllkm").exists)
        time.sleep(0.3)
        os.killpg(process.pid, number)
        wait_for(process, lambda: False)
        assert process.poll() == code
        assert process.stderr is not None
        errors = process.stderr.read()
    assert re.search(r"interrupted after \d+ samples: the checkpoint is written; to go on: mllkm stream - ", errors)
    assert errors.rstrip().endswith(" --checkpoint-every 0 --resume")
    assert "Traceback" not in errors
    assert not (run / ".lock").exists()
    result = CliRunner().invoke(cli, [*words, "--resume"], input=text)
    assert result.exit_code == 0, result.output
    assert model_bytes(run) == model_bytes(streamed[0])


def test_ctrl_c_before_the_first_sample_says_to_begin_again(tmp_path: Path) -> None:
    words = ["stream", "-", "--out", str(tmp_path / "run"), "--overwrite"]
    with running(*words) as process:
        wait_for(process, lambda: (tmp_path / "run" / "run.log").exists() and "from sample 0" in log(tmp_path / "run"))
        os.killpg(process.pid, signal.SIGINT)
        wait_for(process, lambda: False)
        assert process.poll() == 130
        assert process.stderr is not None
        assert process.stderr.read().splitlines()[-1] == (
            f"mllkm: the stream was interrupted before its first sample; to go on: mllkm {' '.join(words)}"
        )


def log(run: Path) -> str:
    return (run / "run.log").read_text()


def test_a_signal_in_the_middle_ends_at_the_next_safe_point(folder: Path, tmp_path: Path, mllkm: Run) -> None:
    run = tmp_path / "run"
    words = ["stream", str(folder / "digits.h5"), "--out", str(run), "--passes", "40", *SMALL]
    with running(*words, "--checkpoint-every", "0") as process:
        wait_for(process, (run / "model.mllkm").exists)
        os.killpg(process.pid, signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 143, errors
    assert output == ""
    assert "SIGTERM: ending at the next safe point" in errors
    assert errors.rstrip().endswith(f"to go on: mllkm {' '.join(words)} --checkpoint-every 0 --resume")
    samples = re.search(r"interrupted after ([\d,]+) samples: the checkpoint is written", errors)
    assert samples is not None
    n = int(samples[1].replace(",", ""))
    passes = str(n // FIRST + 1)
    resumed = mllkm("stream", folder / "digits.h5", "--out", run, "--passes", passes, *SMALL, "--resume")
    assert resumed.exit_code == 0, resumed.stderr
    assert f"from sample {n:,}" in resumed.stderr


@pytest.mark.parametrize("kept", [True, False])
def test_a_lost_cluster_ends_with_its_code_and_says_how_to_go_on_if_there_is_a_checkpoint(
    mllkm: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    from mllkm_scale.online import stream

    def lose_the_cluster(*arguments: Any, **options: Any) -> None:
        if kept:
            stream(*arguments, **options)
        raise ClusterError("no worker has answered for 300 s: see that they run")

    monkeypatch.setattr("mllkm_scale.online.stream", lose_the_cluster)
    words = ["stream", str(folder / "digits.h5"), "--out", str(tmp_path / "run"), "--progress", "quiet", *SMALL]
    result = mllkm(*words, "--overwrite")
    assert result.exit_code == 8
    how = f"; to go on: mllkm {' '.join(words)} --resume" if kept else ""
    assert result.stderr == f"mllkm: error: no worker has answered for 300 s: see that they run{how}\n"
