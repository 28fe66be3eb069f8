"""Trainings on a real SLURM: the same bytes, whatever happens to the job, its nodes and its environment."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from mllkm_scale.cluster import open_client
from mllkm_scale.run.job.cluster import ClusterSpec
from tests.cluster.conftest import assert_closed
from tests.cluster.real.conftest import ROOT, Bench, frozen_master

Eventually = Callable[..., Any]
KIND = '[cluster]\nkind = "slurm"\nworkers = 2\nwalltime = "00:10:00"\n'


def submit(*options: str, **environment: str) -> str:
    """Submit the job; the number that SLURM gives it."""
    command = [ROOT / "jobs" / "submit" / "slurm.sh", "job.toml", *options]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | environment)
    assert said.returncode == 0, said.stderr
    return said.stdout.split()[-1]


def state(job: str) -> str:
    said = subprocess.run(["scontrol", "show", "job", job], capture_output=True, text=True, timeout=20, check=True)
    fields = dict(word.split("=", 1) for word in said.stdout.split() if "=" in word)
    return f"{fields['JobState']} {fields['ExitCode']}"


def log(job: str) -> str:
    path = Path(f"mllkm-{job}.log")
    return path.read_text() if path.exists() else ""


def workers() -> list[psutil.Process]:
    """Processes of workers in this folder, without their nannies."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        words = " ".join(process.info["cmdline"] or [])
        if "spawn_main" in words and process.info["cwd"] == os.getcwd():
            found.append(process)
    return found


def completed(job: str, eventually: Eventually, within_s: float = 90.0) -> None:
    eventually(lambda: not state(job).startswith(("PENDING", "RUNNING", "COMPLETING", "CONFIGURING")), within_s)
    assert state(job) == "COMPLETED 0:0", log(job)


@pytest.mark.parametrize("options", [(), ("--export=NONE", "--mem=1500M")])
def test_a_training_has_the_bytes_of_one_without_a_cluster(
    slurm: Bench, eventually: Eventually, options: tuple[str, ...]
) -> None:
    job = submit("--workers", "2", *options)
    completed(job, eventually)
    assert slurm.model == slurm.expected
    assert ", tls://" in log(job)
    assert sorted(path.name for path in Path("run").glob("scheduler*")) == []


@pytest.mark.slow  # SLURM lets a job that is requeued wait for two minutes
def test_a_job_whose_time_is_up_is_requeued_and_goes_on_to_the_same_bytes(slurm: Bench, eventually: Eventually) -> None:
    job = submit("--workers", "2", MLLKM_REQUEUE="1")
    eventually(lambda: "round 1:" in log(job), within_s=60)
    subprocess.run(["scancel", "--batch", "--signal=TERM", job], check=True, timeout=20)
    eventually(lambda: "jobs/submit/slurm.sh job.toml" in log(job))  # how to go on, as printed
    completed(job, eventually, within_s=200)
    assert slurm.model == slurm.expected


@pytest.mark.slow
def test_the_printed_command_goes_on_with_a_job_that_was_ended(slurm: Bench, eventually: Eventually) -> None:
    job = submit("--workers", "2", "--job-name=two words")
    eventually(lambda: "round 1:" in log(job), within_s=60)
    subprocess.run(["scancel", "--batch", "--signal=TERM", job], check=True, timeout=20)
    eventually(lambda: state(job).startswith("FAILED"), within_s=60)
    [again] = re.findall(r"to go on: (.*)", log(job))
    assert again.endswith("job.toml --workers 2 --job-name=two\\ words")
    said = subprocess.run(["bash", "-c", again], capture_output=True, text=True, timeout=60, check=True)
    completed(said.stdout.split()[-1], eventually)
    assert slurm.model == slurm.expected


def test_a_job_that_cannot_begin_fails_at_once_and_says_why(slurm: Bench, eventually: Eventually) -> None:
    job = submit("--workers", "2", MLLKM_INTERFACE="absent0")
    eventually(lambda: state(job).startswith("FAILED"))
    assert "MLLKM_INTERFACE=absent0: `ip -brief address` on a node lists its interfaces" in log(job)
    refused = subprocess.run(
        [ROOT / "jobs" / "submit" / "slurm.sh", "job.toml"],
        env=os.environ | {"PYTHON": "absent"},
        capture_output=True,
        text=True,
    )
    assert (refused.returncode, "activate the environment, or set PYTHON" in refused.stderr) == (2, True)


def test_workers_that_are_jobs_of_their_own_train_to_the_same_bytes(slurm: Bench) -> None:
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
    with Path("job.toml").open("a") as file:
        file.write(KIND)
    ended = subprocess.run(
        [sys.executable, "-m", "mllkm_scale", "run", "job.toml"], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    assert slurm.model == slurm.expected
    assert "tls://" in ended.stderr + ended.stdout
    assert not list(Path().glob(".tls-*"))


def test_from_another_host_no_port_of_a_job_is_open_without_the_certificate(
    slurm: Bench, eventually: Eventually, other_host: tuple[str, str]
) -> None:
    job = submit("--workers", "2")
    try:
        eventually(lambda: "train:" in log(job), within_s=60)
        with frozen_master():
            addresses = listening(here="10.231.7.1")
            assert len(addresses) >= 5  # of the scheduler, and of two workers and their nannies
            [certificates] = Path("run").absolute().glob("scheduler-*.tls")
            assert_closed([f"tls://{address}" for address in addresses], certificates, other_host[0])
    finally:
        subprocess.run(["scancel", job], check=True, timeout=20)
        eventually(lambda: not state(job).startswith(("RUNNING", "COMPLETING")), within_s=60)


def test_from_another_host_no_port_of_workers_that_are_jobs_is_open_without_the_certificate(
    slurm: Bench, other_host: tuple[str, str]
) -> None:
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
    spec = ClusterSpec("slurm", workers=2, walltime="00:10:00", interface=other_host[1])
    with open_client(spec, memory_budget=600_000_000, timeout_s=60.0) as client:
        assert client is not None
        client.wait_for_workers(2, timeout=60)
        addresses = listening(here="10.231.7.1")
        assert len(addresses) >= 5  # of the scheduler, and of two workers and their nannies
        [certificates] = Path().absolute().glob(".tls-*")
        assert_closed([f"tls://{address}" for address in addresses], certificates, other_host[0])


def listening(here: str) -> set[str]:
    """Where processes of dask in this folder listen, but for loopback; `here` stands for all addresses."""
    found = set()
    for process in psutil.process_iter(["cmdline", "cwd"]):
        program, *words = process.info["cmdline"] or [""]
        if process.info["cwd"] == os.getcwd() and "python" in program and words:  # srun listens, too, by means of SLURM
            for at in process.net_connections("tcp"):
                if at.status == psutil.CONN_LISTEN and not at.laddr.ip.startswith("127."):
                    found.add(f"{here if at.laddr.ip in ('0.0.0.0', '::') else at.laddr.ip}:{at.laddr.port}")
    return found


@pytest.mark.slow
def test_a_node_that_fails_takes_its_workers_and_not_the_training(slurm: Bench, eventually: Eventually) -> None:
    job = submit("--workers", "2", "--ntasks-per-node=1", "--nodes=3")
    eventually(lambda: "train:" in log(job), within_s=60)
    subprocess.run(["scontrol", "update", "nodename=n3", "state=down", "reason=test"], check=True, timeout=20)
    try:
        completed(job, eventually, within_s=150)
        assert slurm.model == slurm.expected
    finally:  # unless it has come back by itself
        subprocess.run(["scontrol", "update", "nodename=n3", "state=resume"], capture_output=True, timeout=20)


@pytest.mark.slow
def test_a_frozen_worker_is_given_up_and_the_training_ends_well(slurm: Bench, eventually: Eventually) -> None:
    job = submit("--workers", "2")
    eventually(lambda: "train:" in log(job), within_s=60)
    frozen, *_ = workers()
    frozen.send_signal(signal.SIGSTOP)
    completed(job, eventually, within_s=180)
    assert slurm.model == slurm.expected
