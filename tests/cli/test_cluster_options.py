from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import h5py
import numpy as np
import pytest
from click.testing import Result

from mllkm_scale.cli.cluster_options import cluster_options, cluster_spec, in_words
from mllkm_scale.run.job.cluster import ClusterSpec

Run = Callable[..., Result]


def given(*arguments: str) -> ClusterSpec | None:
    """The cluster that a command line names."""
    found: list[ClusterSpec | None] = []

    @click.command()
    @cluster_options
    @click.pass_context
    def command(context: click.Context, /, **options: Any) -> None:
        found.append(cluster_spec(context))

    command.main([*arguments], standalone_mode=False)
    return found[0]


@pytest.mark.parametrize(
    ("arguments", "spec"),
    [
        ([], None),
        (["--workers", "3"], ClusterSpec(kind="local", workers=3)),
        (["--workers", "0"], ClusterSpec()),
        (["--scheduler", "tcp://node1:8786"], ClusterSpec(kind="address", address="tcp://node1:8786")),
        (
            ["--scheduler-file", "s.json"],
            ClusterSpec(kind="scheduler-file", scheduler_file=Path("s.json")),
        ),
    ],
)
def test_an_option_names_the_cluster(arguments: list[str], spec: ClusterSpec | None) -> None:
    assert given(*arguments) == spec


@pytest.mark.parametrize("command", ["train", "run", "predict"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["--scheduler", "tcp://a:1", "--workers", "2"],
        ["--scheduler", "tcp://a:1", "--scheduler-file", "s.json"],
        ["--scheduler-file", "s.json", "--workers", "0"],
    ],
)
def test_two_clusters_are_a_usage_error_that_names_both_options(
    mllkm: Run, tmp_path: Path, command: str, arguments: list[str]
) -> None:
    words = {"train": ["a.h5", "--out", "run"], "run": ["job.toml"], "predict": ["m", "a.h5", "--out", "p.h5"]}
    result = mllkm(command, *words[command], *arguments)
    assert result.exit_code == 2
    assert arguments[0] in result.stderr
    assert arguments[2] in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", [["--workers", "-1"], ["--workers", "two"], ["--scheduler", "nowhere"], ["--scheduler", ""]]
)
def test_a_cluster_that_cannot_be_is_a_usage_error_that_names_the_option(mllkm: Run, arguments: list[str]) -> None:
    result = mllkm("train", "a.h5", "--out", "run", *arguments)
    assert result.exit_code == 2
    assert arguments[0] in result.stderr


def test_a_report_needs_a_cluster(mllkm: Run) -> None:
    for workers in ([], ["--workers", "0"]):
        result = mllkm("train", "a.h5", "--out", "run", "--performance-report", "r.html", *workers)
        assert result.exit_code == 2
        assert "--performance-report" in result.stderr
        assert "--workers" in result.stderr


def test_a_cluster_is_told_by_its_kind_and_what_is_not_usual_of_it() -> None:
    assert in_words(ClusterSpec()) == "none"
    assert in_words(ClusterSpec(kind="local", workers=2)) == "local, workers 2"


def test_workers_predict_what_this_process_predicts(
    mllkm: Run, wine_h5: Path, tmp_path: Path, trained: tuple[Path, Result]
) -> None:
    words = ["predict", trained[0], wine_h5, "--x", "X_test", "--scores", "--out"]
    assert mllkm(*words, tmp_path / "alone.h5").exit_code == 0
    result = mllkm(*words, tmp_path / "together.h5", "--workers", "1")
    assert result.exit_code == 0, result.stderr
    assert "cluster: 1 worker, 1 thread, tls://127.0.0.1:" in result.stderr
    with h5py.File(tmp_path / "alone.h5") as alone, h5py.File(tmp_path / "together.h5") as together:
        for name in ("prediction", "scores"):
            np.testing.assert_array_equal(together[name][:], alone[name][:])


def test_a_command_without_a_cluster_does_not_import_distributed(wine_h5: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from mllkm_scale.cli import cli\n"
        f"cli(['train', {str(wine_h5)!r}, '--out', {str(tmp_path / 'run')!r}, '--max-rounds', '1', '--jobs', '1'],"
        " standalone_mode=False)"
    )
    watcher = "import atexit, sys; atexit.register(lambda: print('distributed' in sys.modules))"
    done = subprocess.run([sys.executable, "-c", f"{watcher}\n{program}"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
