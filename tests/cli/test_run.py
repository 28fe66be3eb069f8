from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

Run = Callable[..., Result]
WriteJob = Callable[..., Path]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def write_job(tmp_path: Path, wine_h5: Path) -> WriteJob:
    """Write a job that trains on wine, all samples as anchors, with more lines at its end."""

    def write(more: str = "", parameters: str = "n_jobs = 1") -> Path:
        path = tmp_path / "job.toml"
        path.write_text(
            f'[data]\npath = "{wine_h5}"\n[parameters]\nanchors = "all"\n{parameters}\n[budget]\nmemory = "1GB"\n'
            f'[output]\nrun = "runs/wine"\n{more}\n'
        )
        return path

    return write


def written(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_a_job_trains_and_evaluates_as_the_same_options_of_train_do(
    mllkm: Run, write_job: WriteJob, tmp_path: Path, trained: tuple[Path, Result]
) -> None:
    result = mllkm("run", write_job())
    assert result.exit_code == 0, result.stderr
    model = tmp_path / "runs" / "wine" / "model.mllkm"
    assert f"model: {model} (converged" in result.stdout
    assert "wine.h5:X_test: 40 rows, error" in result.stdout
    assert model.read_bytes() == (trained[0] / "model.mllkm").read_bytes()


def test_the_run_folder_is_relative_to_the_job_wherever_it_is_started(
    mllkm: Run, write_job: WriteJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = write_job(parameters="max_rounds = 1")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert mllkm("run", "../job.toml").exit_code == 0
    assert (job.parent / "runs" / "wine" / "model.mllkm").exists()
    assert written(tmp_path / "elsewhere") == set()


def test_a_dry_run_tells_data_plan_cluster_and_folder_and_writes_nothing(
    mllkm: Run, write_job: WriteJob, tmp_path: Path
) -> None:
    job = write_job('[cluster]\nkind = "local"\nworkers = 2')
    before = written(tmp_path)
    result = mllkm("run", job, "--dry-run")
    assert result.exit_code == 0, result.stderr
    for part in ("138 rows, 13 features, 40 rows held out", "of 1.0 GB", "inner form: ", "cluster: local, workers 2"):
        assert part in result.stdout
    assert f"run folder: {tmp_path / 'runs' / 'wine'}" in result.stdout
    assert written(tmp_path) == before


def test_a_dry_run_ends_with_the_error_that_the_run_would_end_with(
    mllkm: Run, write_job: WriteJob, tmp_path: Path
) -> None:
    job = write_job(parameters="max_rounds = 1\nn_jobs = 1")
    assert mllkm("run", job).exit_code == 0
    refused = mllkm("run", job, "--dry-run")
    assert refused.exit_code == mllkm("run", job).exit_code == 2
    assert "inner form: " in refused.stdout
    assert "continue it with --resume" in refused.stderr
    for option in ("--resume", "--overwrite"):
        assert mllkm("run", job, "--dry-run", option).exit_code == 0
    text = job.read_text()
    for change, code in (("wine.h5", 3), ("1GB", 4)):
        job.write_text(text.replace(change, {"wine.h5": "absent.h5", "1GB": "10MB"}[change]))
        assert mllkm("run", job, "--dry-run").exit_code == code


def test_every_problem_of_a_job_is_a_line_with_file_and_line(mllkm: Run, write_job: WriteJob, tmp_path: Path) -> None:
    job = write_job('progress = "loud"\n[clutser]', parameters="C = -1\nmax_round = 3")
    result = mllkm("run", job)
    assert result.exit_code == 9
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    places = [re.match(rf"mllkm: error: {re.escape(str(job))}:(\d+): ", line) for line in lines]
    assert [match and int(match[1]) for match in places] == [5, 6, 11, 12]
    assert "did you mean max_rounds?" in lines[1]
    assert "Traceback" in mllkm("run", job, "--debug").stderr
    assert written(tmp_path) == {"job.toml"}


def test_a_job_that_is_not_there_is_named(mllkm: Run, tmp_path: Path) -> None:
    result = mllkm("run", tmp_path / "absent.toml")
    assert result.exit_code == 9
    assert "absent.toml" in result.stderr


def test_resume_begins_a_training_goes_on_with_it_and_leaves_one_that_has_ended(
    mllkm: Run, write_job: WriteJob, tmp_path: Path, trained: tuple[Path, Result]
) -> None:
    folder = tmp_path / "runs" / "wine"
    folder.mkdir(parents=True)
    (folder / "run.log").write_text("of a job that was ended before its first round\n")
    assert mllkm("run", write_job(parameters="max_rounds = 2\nn_jobs = 1"), "--resume").exit_code == 0
    assert len((folder / "history.jsonl").read_text().splitlines()) == 2
    for _ in range(2):
        result = mllkm("run", write_job(), "--resume")
        assert result.exit_code == 0, result.stderr
        assert (folder / "model.mllkm").read_bytes() == (trained[0] / "model.mllkm").read_bytes()


def test_resume_of_a_folder_whose_checkpoint_is_gone_is_refused(
    mllkm: Run, write_job: WriteJob, tmp_path: Path
) -> None:
    job = write_job(parameters="max_rounds = 1\nn_jobs = 1")
    assert mllkm("run", job).exit_code == 0
    (tmp_path / "runs" / "wine" / "checkpoint.npz").unlink()
    assert mllkm("run", job, "--resume").exit_code == 6


def test_resume_and_overwrite_together_are_a_usage_error(mllkm: Run, write_job: WriteJob) -> None:
    result = mllkm("run", write_job(), "--resume", "--overwrite")
    assert result.exit_code == 2
    assert "--overwrite" in result.stderr


@pytest.mark.parametrize(("option", "shown"), [([], ""), (["--progress", "plain"], "round 1: gap")])
def test_the_progress_of_the_command_line_wins_over_the_files(
    mllkm: Run, write_job: WriteJob, option: list[str], shown: str
) -> None:
    result = mllkm("run", write_job('progress = "quiet"', parameters="max_rounds = 1"), *option)
    assert result.exit_code == 0
    assert shown in result.stderr
    assert bool(result.stderr) == bool(shown)


def test_the_cluster_of_the_command_line_wins_over_the_files(mllkm: Run, write_job: WriteJob) -> None:
    job = write_job('[cluster]\nkind = "address"\naddress = "tcp://nowhere:8786"')
    assert "cluster: address" in mllkm("run", job, "--dry-run").stdout
    assert "cluster: local, workers 3" in mllkm("run", job, "--dry-run", "--workers", "3").stdout
    assert "cluster: none" in mllkm("run", job, "--dry-run", "--workers", "0").stdout


def test_a_report_without_a_cluster_is_refused(mllkm: Run, write_job: WriteJob) -> None:
    assert mllkm("run", write_job(), "--performance-report", "r.html").exit_code == 2
    job = write_job('performance_report = "r.html"')
    result = mllkm("run", job)
    assert result.exit_code == 9
    assert f"{job}:10: performance_report" in result.stderr
    assert mllkm("run", job, "--dry-run", "--workers", "1").exit_code == 0


def test_workers_that_do_not_fit_the_budget_are_refused_by_a_dry_run(mllkm: Run, write_job: WriteJob) -> None:
    job = write_job('[cluster]\nkind = "local"\nworkers = 1\nthreads_per_worker = 1000')
    result = mllkm("run", job, "--dry-run")
    assert result.exit_code == 4
    assert "a worker needs" in result.stderr


@pytest.fixture
def own_data(tmp_path: Path, real_data: Callable[[str], tuple[np.ndarray, np.ndarray]], mllkm: Run) -> Path:
    """The template of the jobs folder, and beside it the data that it names, from a CSV file."""
    X, y = real_data("iris")
    with (tmp_path / "train.csv").open("w", newline="") as file:
        csv.writer(file).writerows([*row, f"kind {label}"] for row, label in zip(X.tolist(), y.tolist(), strict=True))
    (tmp_path / "data").mkdir()
    assert mllkm("convert", tmp_path / "train.csv", tmp_path / "data" / "own-data.h5").exit_code == 0
    shutil.copy(ROOT / "jobs" / "own-data.toml", tmp_path)
    return tmp_path / "own-data.toml"


def test_the_template_runs_on_a_csv_file_to_the_same_bits_with_and_without_workers(
    mllkm: Run, own_data: Path, tmp_path: Path
) -> None:
    model = tmp_path / "runs" / "own-data" / "model.mllkm"
    assert mllkm("run", own_data).exit_code == 0
    alone = model.read_bytes()
    result = mllkm("run", own_data, "--overwrite", "--workers", "1", "--progress", "json")
    assert result.exit_code == 0, result.stderr
    events = [json.loads(line) for line in result.stdout.splitlines()]
    cluster = next(event for event in events if event["event"] == "cluster")
    assert cluster["kind"] == "local"
    assert cluster["description"].startswith("1 worker, 1 thread, tls://127.0.0.1:")
    assert events[-1]["status"] in ("converged", "learned")  # as held-out rows decide
    assert model.read_bytes() == alone
