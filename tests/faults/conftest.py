"""A dask cluster of real processes to be killed, small real data, and the model bytes that every training must give.

All processes listen on 127.0.0.1 and are ended by their ids. Every test has a time limit: one that is passed is a hang.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from distributed import Client

from mllkm_scale import Dataset, train
from mllkm_scale.cluster import DaskExecutor

HERE = Path(__file__).parent
LIMIT_S = 60
ROWS = 160
SETTINGS: dict[str, Any] = {"anchors": "all", "tol": 0.02, "overlap": "always", "n_jobs": 1, "memory_budget": "1GB"}


@pytest.fixture(autouse=True)
def time_limit() -> Iterator[None]:
    """A hang fails its test; one that does not even take a signal ends the whole session."""

    def fail(number: int, frame: object) -> None:
        pytest.fail(f"a wait without end: the test runs for {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(LIMIT_S)
    faulthandler.dump_traceback_later(2 * LIMIT_S, exit=True)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory, real_data: Callable[[str], tuple[np.ndarray, np.ndarray]]) -> Path:
    """Rows of digits, ten classes, in an HDF5 file."""
    X, y = real_data("digits")
    path = tmp_path_factory.mktemp("data") / "digits.h5"
    with h5py.File(path, "w") as file:
        file["X"], file["y"] = X[:ROWS], y[:ROWS]
    return path


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 32 rows: a pass over little data has several units, which are cut into as many ranges as workers."""
    monkeypatch.setattr("mllkm_scale.data.grid.CHUNK_BYTES", 2**14)


@pytest.fixture
def many_tasks(small_chunks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each unit is a task."""
    monkeypatch.setattr("mllkm_scale.cluster.task.TASK_S", 1e-9)


@pytest.fixture(scope="session")
def trained() -> Callable[..., bytes]:
    """The bytes of the model of a training."""

    def model_bytes(data: Path, run_dir: Path, **settings: Any) -> bytes:
        train(Dataset.open(data), run_dir=run_dir, **(SETTINGS | settings))
        return (run_dir / "model.mllkm").read_bytes()

    return model_bytes


@pytest.fixture(scope="session")
def reference(
    tmp_path_factory: pytest.TempPathFactory, data: Path, trained: Callable[..., bytes]
) -> Callable[..., bytes]:
    """The bytes that a training without a cluster gives, under the grid of `small_chunks`."""
    known: dict[str, bytes] = {}

    def model_bytes(**settings: Any) -> bytes:
        name = repr(sorted(settings.items()))
        if name not in known:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("mllkm_scale.data.grid.CHUNK_BYTES", 2**14)
                known[name] = trained(data, tmp_path_factory.mktemp("reference") / "run", **settings)
        return known[name]

    return model_bytes


class Nursery:
    """Forks processes that have imported all and begin at once; see nursery.py."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log.txt"
        self.server = subprocess.Popen(
            [sys.executable, str(HERE / "nursery.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        )

    def start(self, role: str, log: Path | None = None, **job: Any) -> int:
        """The process id of a scheduler, a worker or a master."""
        return int(self._ask({"role": role, "log": log or self.log, **job}, 30.0)["pid"])

    def wait(self, pid: int, timeout_s: float = 40.0) -> int:
        """How it ended: its exit code, or the signal as a negative number."""
        code = self._ask({"wait": pid, "timeout_s": timeout_s}, timeout_s + 5.0)["exit"]
        assert code is not None, f"process {pid} has not ended within {timeout_s:g} s"
        return int(code)

    def end(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        self.wait(pid, 10.0)

    def close(self) -> None:
        assert self.server.stdin is not None
        self.server.stdin.close()
        self.server.wait(timeout=10)
        assert self.server.stdout is not None
        self.server.stdout.close()

    def _ask(self, job: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps(job, default=str) + "\n")
        self.server.stdin.flush()
        there, _, _ = select.select([self.server.stdout], [], [], timeout_s)
        assert there, f"no answer to {job} for {timeout_s:g} s"
        return dict(json.loads(self.server.stdout.readline()))


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    nursery = Nursery(tmp_path_factory.mktemp("nursery"))
    try:
        yield nursery
    finally:
        nursery.close()


class Farm:
    """A scheduler and workers, each a process of its own that the tests may kill."""

    def __init__(self, nursery: Nursery, folder: Path) -> None:
        self.nursery, self.folder, self.port = nursery, folder, free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.workers: list[int] = []
        self.start_scheduler()

    def start_scheduler(self) -> None:
        self.scheduler = self.nursery.start("scheduler", port=self.port)

    def start_worker(self, memory_limit: str = "1GB", keep: bool = False) -> int:
        """A worker; if it is kept, another one comes when it is killed."""
        job = {"scheduler": self.address, "memory_limit": memory_limit, "folder": self.folder, "keep": keep}
        self.workers.append(self.nursery.start("worker", **job))
        return self.workers[-1]

    def kill_scheduler(self) -> None:
        self.nursery.end(self.scheduler)

    @contextlib.contextmanager
    def client(self, timeout_s: float = 10.0) -> Iterator[Client]:
        """A client; the seconds are also those in which it looks for a scheduler that is gone."""
        client = Client(self.address, timeout=timeout_s, set_as_default=False)
        try:
            yield client
        finally:
            client.close(timeout=10)

    def scale(self, client: Client, number: int) -> list[int]:
        """Exactly so many workers, which are kept; the ids of their processes."""
        while len(self.workers) > number:
            self.nursery.end(self.workers.pop())
        while len(self.workers) < number:
            self.start_worker(keep=True)
        return self.settle(client, number)

    def settle(self, client: Client, number: int) -> list[int]:
        """The ids of the processes, once the scheduler knows so many workers, and all of them answer."""
        pids: list[int] = []

        def there() -> bool:
            known = client.scheduler_info(n_workers=-1)["workers"]
            if len(known) == number:
                pids[:] = client.run(os.getpid, on_error="ignore").values()
            return len(pids) == number

        until(there, f"{number} workers")
        return pids

    def close(self) -> None:
        for pid in (*self.workers, self.scheduler):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(condition: Callable[[], bool], what: str, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s in vain: {what}"
        time.sleep(0.05)


@pytest.fixture(scope="session", name="until")
def until_fixture() -> Callable[..., None]:
    """Wait for a condition."""
    return until


@pytest.fixture(scope="session")
def farm(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    """The cluster that most tests share; `scale` mends what the test before has killed."""
    farm = Farm(nursery, tmp_path_factory.mktemp("farm"))
    try:
        yield farm
    finally:
        farm.close()


@pytest.fixture
def client(farm: Farm) -> Iterator[Client]:
    with farm.client() as client:
        yield client


@pytest.fixture
def own_farm(nursery: Nursery, tmp_path: Path) -> Iterator[Farm]:
    """A cluster of the test's own, without workers."""
    farm = Farm(nursery, tmp_path)
    try:
        yield farm
    finally:
        farm.close()


@pytest.fixture
def at_scan(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Do something in the middle of the scans of the given numbers, from 1.

    The processes `frozen` stand still from before the tasks are submitted: none of these tasks can be over when the
    action is done. Returns the list of the scans in which it was.
    """

    def arrange(action: Callable[[], object], *numbers: int, frozen: Callable[[], list[int]] = list) -> list[int]:
        start, seen, landed = DaskExecutor.start, 0, []

        def disturbed(executor: DaskExecutor, work: Any, n_units: int) -> Any:
            nonlocal seen
            seen += type(work).__name__ == "ScanWork"
            if type(work).__name__ != "ScanWork" or seen not in numbers:
                return start(executor, work, n_units)
            pids = frozen()
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            under_way = start(executor, work, n_units)
            if pids:
                client: Any = executor.client
                until(lambda: any(client.processing().values()), "tasks at the workers")
            action()
            landed.append(seen)
            return under_way

        monkeypatch.setattr(DaskExecutor, "start", disturbed)
        return landed

    return arrange
