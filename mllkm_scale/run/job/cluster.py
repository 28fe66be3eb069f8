"""Which cluster a training run uses, as plain data: checked here, started or joined by `mllkm_scale.cluster.start`."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path

from mllkm_scale.errors import ParameterError

__all__ = ["KINDS", "ClusterSpec"]

_USES: dict[str, tuple[str, ...]] = {
    "none": (),
    "local": ("workers", "threads_per_worker", "local_directory", "dashboard_address"),
    "address": ("address",),
    "scheduler-file": ("scheduler_file",),
    "slurm": (
        "workers",
        "threads_per_worker",
        "queue",
        "account",
        "walltime",
        "directives",
        "interface",
        "local_directory",
        "dashboard_address",
        "insecure",
        "start_timeout",
    ),
}
_NEEDS: dict[str, dict[str, str]] = {
    "none": {},
    "local": {"workers": "how many worker processes to start"},
    "address": {"address": "where the scheduler listens, such as tcp://host:8786"},
    "scheduler-file": {"scheduler_file": "the file that `dask scheduler --scheduler-file` writes"},
    # By default, dask-jobqueue requests half an hour, and the workers would end in the middle of a training run.
    "slurm": {"workers": "how many jobs to ask for", "walltime": "how long a job may run, such as 04:00:00"},
}
KINDS = tuple(_USES)

_ADDRESS = re.compile(r"(?:(?P<protocol>\w+)://)?(?P<host>\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):(?P<port>\d{1,5})")
_PROTOCOLS = ("tcp", "tls", "ucx")
_DASHBOARD = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]*):(?P<port>\d{1,5})")
_WALLTIME = re.compile(r"(?:\d+-)?\d{1,3}:[0-5]\d:[0-5]\d")


@dataclass(frozen=True)
class ClusterSpec:
    """The dask cluster of a training run; fields that a kind does not use keep their defaults.

    Parameters
    ----------
    kind : {"none", "local", "address", "scheduler-file", "slurm"}
        No cluster; worker processes on this machine; a running scheduler, given by its address or its scheduler file
        (such as clusters started by ssh, a batch script or Kubernetes); or workers as SLURM jobs.
    workers : int, optional
        Number of worker processes (local) or jobs (slurm).
    threads_per_worker : int
        Threads of each worker (local, slurm).
    address : str, optional
        Address of the scheduler: tcp://, tls:// or ucx://host:port; host:port means tcp.
    scheduler_file : path, optional
        File that the scheduler writes; it need not exist yet.
    queue, account, walltime : str, optional
        Partition, account and time limit (HH:MM:SS or D-HH:MM:SS) of the jobs (slurm).
    directives : tuple of str
        Further options of sbatch, such as "--constraint=fast" (slurm).
    interface : str, optional
        Network interface of scheduler and workers, such as ib0 (slurm).
    local_directory : str, optional
        Folder for scratch files of the workers (local, slurm).
    dashboard_address : str, optional
        [HOST]:PORT of the dashboard (local, slurm), on 127.0.0.1 unless a host is given; port 0 means any free port,
        and None no dashboard.
    insecure : bool
        Whether scheduler and workers communicate without TLS (slurm); anyone who reaches their ports can then run code
        as you.
    start_timeout : float
        Seconds to wait until the first job leaves the queue; a day by default (slurm).

    Raises
    ------
    ParameterError
        If a field is invalid, or has no effect for this kind.

    Examples
    --------
    >>> ClusterSpec("address", address="node7:8786").address
    'tcp://node7:8786'
    >>> ClusterSpec("local")
    Traceback (most recent call last):
    mllkm_scale.errors.ParameterError: a cluster of kind 'local' needs workers: give how many worker processes to start
    """

    kind: str = "none"
    workers: int | None = None
    threads_per_worker: int = 1
    address: str | None = None
    scheduler_file: Path | None = None
    queue: str | None = None
    account: str | None = None
    walltime: str | None = None
    directives: tuple[str, ...] = ()
    interface: str | None = None
    local_directory: str | None = None
    dashboard_address: str | None = ":0"
    insecure: bool = False
    start_timeout: float = 86_400.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ParameterError(f"kind={self.kind!r} is no kind of cluster: choose one of {', '.join(KINDS)}")
        self._refuse_what_does_nothing()
        for name, meaning in _NEEDS[self.kind].items():
            if getattr(self, name) is None:
                raise ParameterError(f"a cluster of kind {self.kind!r} needs {name}: give {meaning}")
        if self.workers is not None:
            _check_count("workers", self.workers)
        _check_count("threads_per_worker", self.threads_per_worker)
        if self.address is not None:
            self._set("address", _full_address(self.address))
        if self.scheduler_file is not None:
            self._set("scheduler_file", _path(self.scheduler_file))
        if self.walltime is not None:
            _check_walltime(self.walltime)
        self._set("directives", _checked_directives(self.directives))
        for name in ("queue", "account", "interface"):
            _check_word(name, getattr(self, name))
        _check_folder(self.local_directory)
        _check_dashboard(self.dashboard_address)
        if not isinstance(self.insecure, bool):
            raise ParameterError(f"insecure={self.insecure!r}: give true or false")
        seconds = self.start_timeout
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
            raise ParameterError(f"start_timeout={seconds!r}: give a positive number of seconds")

    def _refuse_what_does_nothing(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "kind" and field.name not in _USES[self.kind] and value != field.default:
                kinds = " or ".join(kind for kind, used in _USES.items() if field.name in used)
                raise ParameterError(
                    f"{field.name}={value!r} does nothing for a cluster of kind {self.kind!r}: leave it out, or"
                    f" choose the kind {kinds}"
                )

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


def _check_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ParameterError(f"{name}={value!r}: give a whole number from 1")


def _full_address(address: object) -> str:
    match = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
    protocol = (match["protocol"] or "tcp") if match else None
    if match is None or protocol not in _PROTOCOLS or not 1 <= int(match["port"]) <= 65535:
        raise ParameterError(
            f"address={address!r} is not the address of a scheduler: write it as tcp://host:8786 (or tls://, ucx://)"
        )
    return f"{protocol}://{match['host']}:{match['port']}"


def _path(value: object) -> Path:
    if not isinstance(value, str | Path) or not str(value):
        raise ParameterError(f"scheduler_file={value!r}: give the path of the file that the scheduler writes")
    return Path(value)


def _check_walltime(value: object) -> None:
    if not isinstance(value, str) or not _WALLTIME.fullmatch(value) or not re.search("[1-9]", value):
        raise ParameterError(f"walltime={value!r}: write it as HH:MM:SS or D-HH:MM:SS, such as 04:00:00")


def _checked_directives(values: object) -> tuple[str, ...]:
    if not isinstance(values, tuple | list):
        raise ParameterError(f"directives={values!r}: give a list of options of sbatch, such as ['--constraint=fast']")
    for value in values:
        if not isinstance(value, str) or not value.startswith("-") or not value.isprintable():
            raise ParameterError(
                f"directives: {value!r} is not an option of sbatch: write it as in a batch script, without #SBATCH,"
                " such as --constraint=fast"
            )
    return tuple(values)


def _check_word(name: str, value: object) -> None:
    if value is not None and (not isinstance(value, str) or not re.fullmatch(r"[\w.,:@%+-]+", value)):
        raise ParameterError(f"{name}={value!r}: give a name without spaces, or leave it out")


def _check_folder(value: object) -> None:
    if value is not None and (not isinstance(value, str) or not value or not value.isprintable()):
        raise ParameterError(f"local_directory={value!r}: give the path of a folder on the workers, or leave it out")


def _check_dashboard(value: object) -> None:
    if value is None:
        return
    match = _DASHBOARD.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match["port"]) > 65535:
        raise ParameterError(
            f"dashboard_address={value!r}: write it as :8787 or host:8787, :0 for any free port, None for no dashboard"
        )
