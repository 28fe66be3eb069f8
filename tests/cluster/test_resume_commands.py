"""The command line that an interrupted training prints goes on with it as it stands, also where a script started it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import h5py
import numpy as np
import pytest

from mllkm_scale import Dataset, train
from mllkm_scale.cli.ending import RESUME_WITH, WITHIN, _to_go_on
from mllkm_scale.cli.group import Invocation

ROOT = Path(__file__).parent.parent.parent


def test_a_command_line_is_repeated_by_the_script_that_started_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its scheduler file is gone by then: the command line of the master alone would wait for it in vain."""
    arguments = ("run", "job.toml", "--scheduler-file", "run/scheduler-7.json")
    context = click.Context(click.Command("run"), obj=Invocation(arguments))
    assert _to_go_on(context, True) == "mllkm run job.toml --scheduler-file run/scheduler-7.json --resume"
    monkeypatch.setenv(WITHIN, "cluster/ssh.sh -h hosts.txt -- ")
    assert _to_go_on(context, True) == f"cluster/ssh.sh -h hosts.txt -- mllkm {' '.join(arguments)} --resume"
    monkeypatch.setenv(RESUME_WITH, "jobs/submit/slurm.sh job.toml --workers 2 ")
    for resume in (True, False):
        assert _to_go_on(context, resume) == "jobs/submit/slurm.sh job.toml --workers 2"


def test_the_printed_command_goes_on_with_a_training_of_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
) -> None:
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    with h5py.File(tmp_path / "data set.h5", "w") as file:
        file["X"], file["y"] = X, (X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=600) > 0).astype(int)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    script = [ROOT / "cluster" / "scheduler-file.sh", "-n", "1", "-m", "500MB", "-f", "s.json", "--"]
    options = ["--anchors", "all", "--tol", "1e-6", "--C", "10", "--jobs", "1", "--memory", "500MB"]
    command = [*script, "mllkm", "train", "data set.h5", "--out", "run", *options, "--scheduler-file", "s.json"]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        eventually(Path("run/checkpoint.npz").exists)
        started.send_signal(signal.SIGINT)
        said, _ = started.communicate(timeout=60)
    finally:
        started.kill()
    assert started.returncode == 130, said
    [again] = re.findall(r"to go on: (.*)", said)
    assert not Path("s.json").exists()
    gone_on = subprocess.run(["bash", "-c", again], capture_output=True, text=True, timeout=90)
    assert gone_on.returncode == 0, gone_on.stderr
    with Dataset.open("data set.h5") as data:
        train(data, run_dir="whole", anchors="all", tol=1e-6, C=10.0, n_jobs=1, memory_budget="500MB")
    assert Path("run/model.mllkm").read_bytes() == Path("whole/model.mllkm").read_bytes()
