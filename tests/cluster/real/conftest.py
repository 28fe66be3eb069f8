"""Real SLURM with three nodes on this machine, and ssh hosts in network namespaces; skipped where not installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import psutil
import pytest

from mllkm_scale.run.job import load_job

ROOT = Path(__file__).parent.parent.parent.parent
NETWORK = "10.231.8"
INTERFACE = "mllkm-bridge"
JOB = """
data.path = "data.h5"
output.run = "run"
budget.memory = "500MB"
parameters.anchors = "all"
parameters.C = {C}
"""


@dataclass(frozen=True)
class Bench:
    """A working folder with a job, and the bytes of the model that it leads to without a cluster."""

    folder: Path
    expected: bytes

    @property
    def model(self) -> bytes:
        return (self.folder / "run" / "model.mllkm").read_bytes()


def mllkm(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "mllkm_scale", *words], check=True, capture_output=True, timeout=120)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, a job of a few seconds and its model."""
    folder = tmp_path_factory.mktemp("undisturbed")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 6))
    with h5py.File(folder / "data.h5", "w") as file:
        file["X"], file["y"] = X, (X[:, 0] * X[:, 1] + X[:, 2] + 0.3 * rng.normal(size=1500) > 0).astype(int)
    (folder / "job.toml").write_text(JOB.format(C=10))
    mllkm("run", str(folder / "job.toml"))
    return folder


@pytest.fixture
def bench(undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    for name in ("data.h5", "job.toml"):
        shutil.copy(undisturbed / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    monkeypatch.setenv("PYTHON", sys.executable)
    assert load_job(tmp_path / "job.toml").run == tmp_path / "run"
    return Bench(tmp_path, (undisturbed / "run" / "model.mllkm").read_bytes())


@contextmanager
def daemon(*words: str | Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as output:
        process = subprocess.Popen([*map(str, words)], stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()


@contextmanager
def frozen_master() -> Iterator[None]:
    """The process that trains in this folder stands still, so that scheduler and workers stay and can be looked at."""
    masters = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        words = process.info["cmdline"] or []
        if process.info["cwd"] == os.getcwd() and words[2:4] == ["run", "job.toml"]:
            masters.append(process)
    [master] = masters
    master.suspend()
    try:
        yield
    finally:
        master.resume()


def require(*programs: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("daemons and network namespaces need root")
    if missing := [name for name in programs if shutil.which(name) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")


# SLURM

SLURM_CONF = """
ClusterName=mllkm
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
KillWait=5
NodeName=n[1-3] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=2 RealMemory=4000
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@pytest.fixture(scope="session")
def slurm_conf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The configuration of a SLURM that runs for these tests: three nodes of two cores, all on this machine."""
    require("munged", "slurmctld", "slurmd", "sbatch", "srun")
    folder = tmp_path_factory.mktemp("slurm")
    for path in (folder, *folder.parents[:2]):
        path.chmod(0o755)  # munge refuses a socket in a folder that not all can enter
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    (folder / "state").mkdir()
    port = free_port()
    first = port + 1
    host = socket.gethostname().partition(".")[0]
    conf = folder / "slurm.conf"
    conf.write_text(SLURM_CONF.format(host=host, port=port, first=first, last=first + 2, folder=folder))
    log = folder / "daemons.log"
    files = [f"--{name}={folder}/munge.{name.partition('-')[0]}" for name in ("socket", "pid-file", "log-file")]
    files += [f"--seed-file={folder}/munge.seed", f"--key-file={key}"]
    environment = os.environ | {"SLURM_CONF": str(conf)}
    with ExitStack() as running:
        running.enter_context(daemon("munged", "--foreground", "--force", *files, log=log))
        running.enter_context(daemon("slurmctld", "-D", "-f", conf, log=log))
        for node in ("n1", "n2", "n3"):
            (folder / f"spool-{node}").mkdir()
            running.enter_context(daemon("slurmd", "-D", "-N", node, "-f", conf, log=log))
        deadline = time.monotonic() + 30
        while True:
            seen = subprocess.run(["sinfo", "-h", "-o", "%T %D"], env=environment, capture_output=True, text=True)
            if seen.stdout.split() == ["idle", "3"]:
                break
            if time.monotonic() > deadline:
                pytest.skip(f"SLURM does not start here: {seen.stdout}{seen.stderr}{log.read_text()[-500:]}")
            time.sleep(0.2)
        yield conf
        subprocess.run(["scancel", "--user=root"], env=environment, capture_output=True)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def slurm(slurm_conf: Path, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("SLURM_CONF", str(slurm_conf))
    return bench


# Hosts


@dataclass(frozen=True)
class Hosts:
    """Hosts that ssh reaches, each a network namespace on a bridge of this machine."""

    bench: Bench
    names: list[str]
    link: Callable[[str, str], None]
    """Set the link of a host up or down."""


SSHD_CONF = """
ListenAddress {address}:22
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile {folder}/{name}.pid
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
"""
SSH_CONF = """
Host *
    User root
    IdentityFile {folder}/user_key
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
"""


@pytest.fixture
def hosts(bench: Bench, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    """Three hosts, and `hosts.txt` with their addresses; `ssh` on the PATH uses keys of these tests."""
    require("ip", "sshd", "ssh", "ssh-keygen")
    folder = tmp_path_factory.mktemp("ssh")
    for key in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-N", "", "-t", "ed25519", "-f", folder / key], check=True, timeout=20)
    (folder / "ssh.conf").write_text(SSH_CONF.format(folder=folder))
    (folder / "bin").mkdir()
    (folder / "bin" / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh.conf "$@"\n')
    (folder / "bin" / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
    names = [f"mllkm-{os.getpid()}-{i}" for i in range(1, 4)]
    privilege_separation = Path("/run/sshd")
    privilege_separation.mkdir(exist_ok=True)
    with ExitStack() as made:
        configure(made, f"ip link add {INTERFACE} type bridge", f"ip link delete {INTERFACE}")
        configure(made, f"ip addr add {NETWORK}.254/24 dev {INTERFACE}")
        configure(made, f"ip link set {INTERFACE} up")
        for i, name in enumerate(names, 1):
            configure(made, f"ip netns add {name}", f"ip netns delete {name}")
            veth = f"ip link add mllkm-host{i} type veth peer name {INTERFACE} netns {name}"
            configure(made, veth, f"ip link delete mllkm-host{i}")  # which outlives its namespace for a moment
            configure(made, f"ip link set mllkm-host{i} master {INTERFACE} up")
            configure(made, f"ip -n {name} addr add {NETWORK}.{i}/24 dev {INTERFACE}")
            for device in (INTERFACE, "lo"):
                configure(made, f"ip -n {name} link set {device} up")
            conf = folder / f"{name}.conf"
            conf.write_text(SSHD_CONF.format(address=f"{NETWORK}.{i}", folder=folder, name=name))
            inside = ["ip", "netns", "exec", name]
            made.enter_context(daemon(*inside, shutil.which("sshd") or "", "-D", "-e", "-f", conf, log=folder / "log"))
        Path("hosts.txt").write_text("".join(f"{NETWORK}.{i}\n" for i in range(1, 4)))
        yield Hosts(bench, names, lambda name, state: set_link(names.index(name) + 1, state))


def configure(made: ExitStack, command: str, undo: str = "") -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"`{command}` fails here: {done.stderr.strip()}")
    if undo:
        made.callback(subprocess.run, undo.split(), capture_output=True)


def set_link(number: int, state: str) -> None:
    subprocess.run(["ip", "link", "set", f"mllkm-host{number}", state], check=True, timeout=10)
