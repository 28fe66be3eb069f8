"""A local cluster, commands that stand in for those of a cluster, and a check that nothing is left running."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import dask
import psutil
import pytest

from mllkm_scale.cluster import ClusterSpec, open_client

ROOT = Path(__file__).parent.parent.parent
STAND_INS = Path(__file__).parent / "stand_ins"


@pytest.fixture(autouse=True, scope="module")
def default_scheduler() -> Iterator[None]:
    """No client of a file stays the default of dask for the files after it."""
    before = dask.config.get("scheduler", None)
    yield
    assert dask.config.get("scheduler", None) == before


@pytest.fixture(scope="module")
def local_client() -> Iterator[Any]:
    """A client of two worker processes, started where the environment asks for four BLAS threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "4")
        patch.delenv("NUMBA_NUM_THREADS", raising=False)
        before = dict(os.environ)
        with open_client(ClusterSpec("local", workers=2), memory_budget=500_000_000, timeout_s=60) as client:
            assert dict(os.environ) == before
            yield client


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder, and on the PATH stand-ins for sbatch, srun, scancel, scontrol, ssh, kubectl and mllkm.

    When the test ends, no process that works in the folder may be left.
    """
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "jobs").mkdir()
    bare = os.pathsep.join([str(STAND_INS), str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"])
    monkeypatch.setenv("PATH", bare)
    monkeypatch.setenv("SLURM_STAND_IN", str(folder / "jobs"))
    monkeypatch.setenv("SSH_STAND_IN", str(folder / "ssh-calls"))
    monkeypatch.setenv("KUBECTL_STAND_IN", str(folder / "kubectl-calls"))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.chdir(folder)
    yield folder
    left = _left_in(folder)
    for process in left:
        with suppress(psutil.Error):
            process.kill()
    assert not left


def _left_in(folder: Path) -> list[psutil.Process]:
    """Processes that name the folder, or work in it, once they have had ten seconds to end."""
    deadline = time.monotonic() + 10
    while True:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.pid == os.getpid() or has_ended(process):
                    continue
                if str(folder) in " ".join(process.cmdline()) or process.cwd() == str(folder):
                    found.append(process)
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def has_ended(process: psutil.Process) -> bool:
    """Whether a process has ended; in a container there may be nobody who asks an orphan for its exit code."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture(scope="session", name="has_ended")
def has_ended_fixture() -> Callable[[psutil.Process], bool]:
    return has_ended


@pytest.fixture
def run(commands: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a script of the project to its end, within a minute."""

    def run(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [ROOT / script, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            env=os.environ | environment,
            check=False,
        )

    return run


@pytest.fixture
def job(commands: Path) -> Path:
    """A job file; its run folder is `run`."""
    (commands / "run").mkdir()
    file = commands / "job.toml"
    file.write_text('data.path = "data.h5"\noutput.run = "run"\nbudget.memory = "300MB"\n')
    return file


def eventually(condition: Callable[[], Any], within_s: float = 40.0) -> Any:
    """What a condition gives as soon as it holds."""
    deadline = time.monotonic() + within_s
    while True:
        if found := condition():
            return found
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


@pytest.fixture(scope="session", name="eventually")
def eventually_fixture() -> Callable[..., Any]:
    return eventually


KNOCK = """
import asyncio, sys
from pathlib import Path
from distributed.comm.core import connect
from distributed.security import Security
from mllkm_scale.cluster.certificates import security_in

async def knock(address, security):
    try:
        comm = await connect(address, timeout=15, **security.get_connection_args("client"))
    except Exception as error:
        return type(error).__name__
    comm.abort()
    return "connected"

certificates, *addresses = sys.argv[1:]
for address in addresses:
    print(asyncio.run(knock(address.replace("tls://", "tcp://"), Security())), end=" ")
    print(asyncio.run(knock(address, Security.temporary())), end=" ")
    print(asyncio.run(knock(address, security_in(Path(certificates)))))
"""


def assert_closed(addresses: list[str], certificates: Path, namespace: str = "") -> None:
    """What listens is reached with the certificates of its run, and neither without any nor with others."""
    inside = ["ip", "netns", "exec", namespace] if namespace else []
    command = [*inside, sys.executable, "-c", KNOCK, str(certificates), *addresses]
    said = subprocess.run(command, capture_output=True, text=True, timeout=90 * len(addresses))
    assert len(said.stdout.splitlines()) == len(addresses) > 0, said.stderr
    for address, line in zip(addresses, said.stdout.splitlines(), strict=True):
        without, with_others, with_its_own = line.split()
        assert (address, with_its_own) == (address, "connected")
        assert "connected" not in (without, with_others)


def namespaces() -> str:
    """Why network namespaces cannot be made here; nothing if they can."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        return "network namespaces need `ip` and root"
    made = subprocess.run(["ip", "netns", "add", "mllkm-try"], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "delete", "mllkm-try"], capture_output=True)
    return f"`ip netns add` fails here: {made.stderr.strip()}" if made.returncode else ""


@pytest.fixture
def other_host() -> Iterator[tuple[str, str]]:
    """A second network namespace, joined to this one by a pair of interfaces: its name, and the address of this end."""
    if why := namespaces():
        pytest.skip(why)
    name, here = f"mllkm-{os.getpid()}", f"mllkm{os.getpid() % 10000}"
    commands = [
        f"ip netns add {name}",
        f"ip link add {here} type veth peer name eth0 netns {name}",
        f"ip addr add 10.231.7.1/24 dev {here}",
        f"ip link set {here} up",
        f"ip -n {name} addr add 10.231.7.2/24 dev eth0",
        f"ip -n {name} link set eth0 up",
        f"ip -n {name} link set lo up",
        f"ip -n {name} route add default via 10.231.7.1",
    ]
    try:
        for command in commands:
            made = subprocess.run(command.split(), capture_output=True, text=True)
            if made.returncode:
                pytest.skip(f"`{command}` fails here: {made.stderr.strip()}")
        yield name, here
    finally:
        subprocess.run(["ip", "link", "delete", here], capture_output=True)
        subprocess.run(["ip", "netns", "delete", name], capture_output=True)
