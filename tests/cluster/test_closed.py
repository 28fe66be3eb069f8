"""Nobody without the certificate of a run talks to its scheduler or workers, and others cannot read the certificate."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from distributed.security import Security

from mllkm_scale.cluster import ClusterSpec, open_client
from mllkm_scale.cluster.certificates import security_beside, write_certificates
from mllkm_scale.errors import ClusterError
from tests.cluster.conftest import assert_closed

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start cluster/scheduler-file.sh with one worker; it ends with the test."""
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    monkeypatch.chdir(tmp_path)
    started: list[subprocess.Popen[bytes]] = []

    def start(**environment: str) -> subprocess.Popen[bytes]:
        command = [ROOT / "cluster" / "scheduler-file.sh", "-n", "1", "-m", "300MB", "-f", "scheduler.json"]
        there = os.environ | {"PYTHON": sys.executable} | environment
        started.append(subprocess.Popen(command, env=there, stderr=subprocess.DEVNULL))
        return started[0]

    yield start
    for process in started:
        process.terminate()
        process.wait(timeout=30)


def test_certificates_are_new_and_of_their_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "scheduler.json.tls"
    write_certificates(folder)
    assert [oct(path.stat().st_mode & 0o777) for path in (folder, *sorted(folder.iterdir()))] == [
        "0o700",
        "0o600",
        "0o600",
    ]
    key = (folder / "key.pem").read_text()
    write_certificates(folder)
    assert (folder / "key.pem").read_text() != key
    found = security_beside(tmp_path / "scheduler.json")
    assert found is not None
    assert found.require_encryption
    (folder / "key.pem").chmod(0o640)
    with pytest.raises(ClusterError, match="can be read by others: chmod 600"):
        security_beside(tmp_path / "scheduler.json")
    assert security_beside(tmp_path / "other.json") is None


def test_a_key_that_is_a_link_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    folder = tmp_path / "s.tls"
    folder.mkdir()
    (folder / "key.pem").symlink_to(tmp_path / "precious")
    write_certificates(folder)
    assert (tmp_path / "precious").read_text() == "precious"
    with pytest.raises(ClusterError, match="cannot be written"):
        write_certificates(tmp_path / "absent" / "s.tls")


def test_a_scheduler_of_a_script_answers_its_owner_alone(script: Callable[..., Any], eventually: Any) -> None:
    script()
    eventually(lambda: Path("scheduler.json").exists() and Path("scheduler.json").stat().st_size > 0, within_s=40)
    spec = ClusterSpec("scheduler-file", scheduler_file=Path("scheduler.json"))
    with open_client(spec, memory_budget=10**8, timeout_s=40) as client:
        assert client is not None
        assert client.submit(sum, [1, 2]).result(timeout=20) == 3
        addresses = [client.scheduler.address, *client.scheduler_info()["workers"]]
        addresses += [worker["nanny"] for worker in client.scheduler_info()["workers"].values()]
        assert all(address.startswith("tls://") for address in addresses)
        assert_closed(addresses, Path("scheduler.json.tls"))
    for security in (None, Security.temporary()):
        with pytest.raises((OSError, TypeError, RuntimeError)):
            Client(addresses[0], timeout=3, security=security, set_as_default=False)


def test_encryption_is_switched_off_by_name_and_that_is_said(script: Callable[..., Any], eventually: Any) -> None:
    script(INSECURE="yes")
    eventually(lambda: Path("scheduler.json").exists() and Path("scheduler.json").stat().st_size > 0, within_s=40)
    assert json.loads(Path("scheduler.json").read_text())["address"].startswith("tcp://")
    assert "no TLS" in Path("scheduler.json.logs/insecure.log").read_text()
    assert not Path("scheduler.json.tls").exists()


def test_from_another_host_no_port_of_a_run_is_open_without_the_certificate(
    other_host: tuple[str, str], tmp_path: Path, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler and the worker listen on an interface that the other host reaches."""
    name, interface = other_host
    monkeypatch.chdir(tmp_path)
    write_certificates(tmp_path / "s.json.tls")
    tls = [f"--tls-{what}={tmp_path}/s.json.tls/{file}.pem" for what, file in TLS_OPTIONS]
    module = [sys.executable, "-m"]
    scheduler = [*module, "distributed.cli.dask_scheduler", "--scheduler-file", "s.json", "--port", "0", *tls]
    worker = [*module, "distributed.cli.dask_worker", "--scheduler-file", "s.json", *tls, "--interface", interface]
    with subprocess.Popen(
        [*scheduler, "--host", "10.231.7.1", "--dashboard-address", "127.0.0.1:0"], stderr=subprocess.DEVNULL
    ) as first:
        eventually(lambda: Path("s.json").exists() and Path("s.json").stat().st_size > 0, within_s=40)
        with subprocess.Popen(
            [*worker, "--nworkers", "1", "--nthreads", "1", "--no-dashboard", "--dashboard-address", "127.0.0.1:0"],
            stderr=subprocess.DEVNULL,
        ) as second:
            try:
                spec = ClusterSpec("scheduler-file", scheduler_file=Path("s.json"))
                with open_client(spec, memory_budget=10**8, timeout_s=40) as client:
                    assert client is not None
                    addresses = [client.scheduler.address, *client.scheduler_info()["workers"]]
                    assert len(addresses) == sum("10.231.7.1" in address for address in addresses) == 2
                    assert_closed(addresses, tmp_path / "s.json.tls", namespace=name)
            finally:
                second.terminate()
                first.terminate()


TLS_OPTIONS = (("ca-file", "cert"), ("cert", "cert"), ("key", "key"))
