"""The master is killed, interrupted, or finds no room: what it leaves can be resumed to the same bits."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from mllkm_scale import Dataset, train
from mllkm_scale.errors import ScratchError

SETTINGS: dict[str, Any] = {"anchors": "all", "tol": 0.02, "overlap": "always", "n_jobs": 1, "memory_budget": "1GB"}


def exchange_files(run: Path) -> list[Path]:
    return list((run / "exchange").glob("*"))


@pytest.mark.parametrize("where", ["begun", "written", "named"])
def test_a_master_killed_while_it_writes_a_checkpoint_resumes_to_the_same_bits(
    farm, client, nursery, data, tmp_path, reference, where
):
    farm.scale(client, 2)
    run, log = tmp_path / "run", tmp_path / "log"
    job = {"data": data, "run": run, "scheduler": farm.address, "settings": SETTINGS, "log": log}
    pid = nursery.start("master", die=[where, 2], **job)
    assert nursery.wait(pid) == -signal.SIGKILL, log.read_text()
    assert exchange_files(run)
    left = nursery.start("master", resume=True, **job)
    assert nursery.wait(left) == 0, log.read_text()
    assert (run / "model.mllkm").read_bytes() == reference()
    assert not list(run.glob(".*"))
    assert not (run / "exchange").exists()


@pytest.mark.parametrize("seed", range(2))
def test_a_master_killed_at_any_time_resumes_to_the_same_bits(
    farm, client, nursery, data, tmp_path, reference, seed, until
):
    farm.scale(client, 2)
    chance = random.Random(seed)
    run, log, killed = tmp_path / "run", tmp_path / "log", 0
    while True:
        resume = (run / "checkpoint.npz").exists()
        pid = nursery.start(
            "master", data=data, run=run, scheduler=farm.address, resume=resume, settings=SETTINGS, log=log
        )
        if killed < 3:
            time.sleep(chance.uniform(0.05, 1.0))
            os.kill(pid, signal.SIGKILL)
            killed += 1
        ended = nursery.wait(pid)
        if ended == 0:
            break
        assert ended == -signal.SIGKILL, log.read_text()
    assert (run / "model.mllkm").read_bytes() == reference()
    assert not (run / "exchange").exists()
    until(lambda: not any(client.processing().values()), "the scheduler to forget what a dead master asked for")


@pytest.mark.parametrize(
    ("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)], ids=["INT", "TERM", "KILL"]
)
def test_the_command_ends_with_its_workers_and_can_be_resumed(data, tmp_path, reference_of_command, how, code, until):
    run = tmp_path / "run"
    command = subprocess.Popen(
        [*COMMAND, "train", str(data), "--out", str(run), "--workers", "1", *OPTIONS],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )
    try:
        until((run / "checkpoint.npz").exists, "a checkpoint", 40)
        family = psutil.Process(command.pid).children(recursive=True)
        assert family
        os.kill(command.pid, how)
        _, said = command.communicate(timeout=30)
    finally:
        if command.poll() is None:
            command.kill()
            command.communicate(timeout=10)
    assert command.returncode == code, said
    _, alive = psutil.wait_procs(family, timeout=15)
    assert not alive
    assert bool(exchange_files(run)) == (how == signal.SIGKILL)
    if how != signal.SIGKILL:
        assert re.search(r"checkpoint of round \d+ is kept; to go on: mllkm train .* --resume", said)
    assert (run / "model.mllkm").exists() == (how != signal.SIGKILL)  # that of its machines so far
    train(Dataset.open(data), run_dir=run, resume=True, **COMMANDED)
    assert (run / "model.mllkm").read_bytes() == reference_of_command


COMMAND = [sys.executable, "-m", "mllkm_scale.cli"]
OPTIONS = ["--anchors", "all", "--tol", "1e-6", "--overlap", "always", "--jobs", "1", "--memory", "1GB"]
COMMANDED: dict[str, Any] = {"anchors": "all", "tol": 1e-6, "overlap": "always", "n_jobs": 1, "memory_budget": "1GB"}


@pytest.fixture(scope="module")
def reference_of_command(data, tmp_path_factory):
    run = tmp_path_factory.mktemp("command") / "run"
    train(Dataset.open(data), run_dir=run, **COMMANDED)
    return (run / "model.mllkm").read_bytes()


@pytest.mark.parametrize(
    ("file", "file_bytes", "job"),
    [
        ("rows", 20_000, {"in_memory": True}),
        ("reference", 20_000, {}),
        ("support", 12_000, {"settings": SETTINGS | {"n_components": 2}}),
    ],
    ids=["rows", "reference", "support"],
)
def test_a_full_disk_is_a_scratch_error(farm, client, nursery, data, tmp_path, file, file_bytes, job):
    farm.scale(client, 2)
    run, log = tmp_path / "run", tmp_path / "log"
    job = {"data": data, "run": run, "scheduler": farm.address, "settings": SETTINGS, "log": log} | job
    pid = nursery.start("master", file_bytes=file_bytes, many_tasks=False, **job)
    assert nursery.wait(pid) == ScratchError.exit_code, log.read_text()
    [said] = [line for line in log.read_text().splitlines() if line.startswith("ScratchError")]
    assert re.search(rf"{run}/exchange.*: free space or choose another", said)
    assert file in said or "unable to extend file" in said
    assert not (run / "exchange").exists()


def test_an_exchange_folder_that_cannot_be_made_is_refused(farm, client, data, tmp_path):
    farm.scale(client, 1)
    run = tmp_path / "run"
    run.mkdir()
    (run / "exchange").write_text("in the way")
    with pytest.raises(ScratchError, match=rf"{run} cannot be written .*: choose another"):
        train(Dataset.open(data), client=client, run_dir=run, **SETTINGS)
    assert (run / "exchange").read_text() == "in the way"
