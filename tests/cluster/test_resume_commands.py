"""The command line that an interrupted training prints goes on with it as it stands, also where a script started it."""

from __future__ import annotations

import os
import re
import shlex
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


def test_a_program_that_the_path_does_not_lead_to_is_told_by_its_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    context = click.Context(click.Command("train"), obj=Invocation(("train", "a b.h5")))
    monkeypatch.setenv("PATH", "/nowhere")
    assert _to_go_on(context, True) == f"{sys.executable} -m mllkm_scale train 'a b.h5' --resume"


@pytest.mark.parametrize("script", ["cluster/ssh.sh", "jobs/submit/ssh.sh", "jobs/submit/slurm.sh"])
def test_scripts_tell_the_settings_that_their_environment_has_given_them(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without PYTHON, the printed command would not find the package where no environment is active."""
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    commands = {
        "python a": f'exec {shlex.quote(sys.executable)} "$@"',
        "sbatch": 'printf "%s\\n" "$@"',
        "ssh": "exit 0",
        "mllkm": 'echo "MLLKM_RESUME_WITH=${MLLKM_RESUME_WITH:-$MLLKM_WITHIN}"',
    }
    for name, does in commands.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("PYTHON", "./python a")
    for name in ("OPENBLAS_L2_SIZE", "MKL_CBWR", "NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    Path("hosts.txt").write_text("nobody\n")
    Path("job.toml").write_text('data.path = "data.h5"\noutput.run = "run"\nbudget.memory = "500MB"\n')
    Path("run").mkdir()
    words = {"cluster/ssh.sh": "-h hosts.txt -- mllkm train", "jobs/submit/ssh.sh": "job.toml -h hosts.txt"}
    command = [ROOT / script, *words.get(script, "job.toml --workers 2").split()]
    told = subprocess.run(command, capture_output=True, text=True, timeout=90)
    [again] = re.findall(r"MLLKM_RESUME_WITH=(.*)", told.stdout)
    expected = " ".join(map(str, command)).removesuffix("mllkm train")
    assert again.strip() == rf"PYTHON=./python\ a OPENBLAS_CORETYPE=Haswell {expected}".strip(), told.stderr


def test_the_printed_command_goes_on_with_a_training_of_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
) -> None:
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    with h5py.File(tmp_path / "data set.h5", "w") as file:
        file["X"], file["y"] = X, (X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=300) > 0).astype(int)
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
