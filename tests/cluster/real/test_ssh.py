"""Trainings on hosts that a real ssh reaches: the same bytes, also when hosts are cut off; closed ports for others."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cluster.conftest import assert_closed
from tests.cluster.real.conftest import INTERFACE, NETWORK, ROOT, Hosts, frozen_master

Eventually = Callable[..., Any]
OPTIONS = ("-h", "hosts.txt", "-i", INTERFACE)


@contextmanager
def training() -> Iterator[subprocess.Popen[bytes]]:
    with Path("log").open("wb") as log:
        script = subprocess.Popen(
            [ROOT / "jobs" / "submit" / "ssh.sh", "job.toml", *OPTIONS],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
    try:
        yield script
    finally:
        script.terminate()
        script.wait(timeout=60)


def log() -> str:
    return Path("log").read_text()


def test_a_training_has_the_bytes_of_one_without_a_cluster(hosts: Hosts) -> None:
    with training() as script:
        assert script.wait(timeout=120) == 0, log()
    assert hosts.bench.model == hosts.bench.expected
    logs = sorted(path.name for path in Path("run/scheduler.json.logs").glob("worker-*"))
    assert [name.partition("-")[2] for name in logs] == [f"{i}-{NETWORK}.{i}.log" for i in range(1, 4)]


def test_from_another_host_no_port_of_a_run_is_open_without_the_certificate(
    hosts: Hosts, eventually: Eventually
) -> None:
    with training():
        eventually(lambda: "train:" in log(), within_s=60)
        with frozen_master():
            addresses = listening()
            assert len(addresses) >= 4  # of the scheduler and of three workers, whose nannies listen too
            certificates = Path("run/scheduler.json.tls").absolute()
            assert_closed([f"tls://{address}" for address in addresses], certificates, hosts.names[0])


def listening() -> set[str]:
    """Ports that the processes of this folder listen at, on the network of the hosts."""
    found = set()
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any("distributed" in word or "spawn_main" in word for word in words):
            inside = subprocess.run(
                ["nsenter", f"--net=/proc/{process.pid}/ns/net", "ss", "-Hltn"], capture_output=True, text=True
            )
            found |= {line.split()[3] for line in inside.stdout.splitlines() if line.split()[3].startswith(NETWORK)}
    return {address for address in found if not address.endswith(":22")}


@pytest.mark.slow
@pytest.mark.parametrize("cut_s", [5, 90])
def test_a_host_that_is_cut_off_changes_no_byte(hosts: Hosts, eventually: Eventually, cut_s: int) -> None:
    """After a minute it is given up, and others do its tasks."""
    with training() as script:
        eventually(lambda: "train:" in log(), within_s=60)
        hosts.link(hosts.names[0], "down")
        time.sleep(cut_s)
        hosts.link(hosts.names[0], "up")
        assert script.wait(timeout=200) == 0, log()
    assert hosts.bench.model == hosts.bench.expected
    assert not os.path.exists("run/scheduler.json")


@pytest.mark.slow
def test_the_workers_of_a_host_that_was_cut_off_come_back(hosts: Hosts, eventually: Eventually) -> None:
    with Path("log").open("wb") as said:
        command = [ROOT / "cluster" / "ssh.sh", *OPTIONS, "-m", "500MB"]
        cluster = subprocess.Popen(command, stdout=said, stderr=said, stdin=subprocess.DEVNULL)
    try:
        eventually(lambda: joined(1) == 1)
        hosts.link(hosts.names[0], "down")
        eventually(lambda: f"Remove worker addr: tls://{NETWORK}.1:" in scheduler_log(), within_s=120)
        time.sleep(20)
        hosts.link(hosts.names[0], "up")
        eventually(lambda: joined(1) == 2, within_s=90)
    finally:
        cluster.terminate()
        cluster.wait(timeout=60)
    assert [joined(host) for host in (1, 2, 3)] == [2, 1, 1]


def joined(host: int) -> int:
    """How often a worker of this host has come to the scheduler."""
    return scheduler_log().count(f"Register worker addr: tls://{NETWORK}.{host}:")


def scheduler_log() -> str:
    path = Path("scheduler.json.logs/scheduler.log")
    return path.read_text() if path.exists() else ""
