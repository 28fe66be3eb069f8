from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask
import distributed
import psutil
import pytest
from distributed import Client, LocalCluster
from packaging.version import Version

from mllkm_scale.cluster import (
    ClusterSpec,
    dashboard_link,
    describe,
    join,
    open_client,
    performance_report,
    settings,
    slurm,
)
from mllkm_scale.errors import ClusterError, ParameterError

BUDGET = 500_000_000


def since(version: str, why: str) -> pytest.MarkDecorator:
    """Skip a test with a distributed that is older, and say what it does not do."""
    found = distributed.__version__
    return pytest.mark.skipif(Version(found) < Version(version), reason=f"distributed {found}, before {version}, {why}")


def worker_settings() -> tuple[dict[str, str | None], dict[str, object]]:
    """The environment of a worker, and what it does about memory."""
    names = (*settings.BLAS_THREADS, "NUMBA_NUM_THREADS")
    memory = dask.config.get("distributed.worker.memory")
    return {name: os.environ.get(name) for name in names}, {
        name: memory[name] for name in ("target", "spill", "pause", "terminate")
    }


EXPECTED = (
    dict.fromkeys((*settings.BLAS_THREADS, "NUMBA_NUM_THREADS"), "1"),
    {"target": False, "spill": False, "pause": False, "terminate": 0.95},
)


# A cluster of this machine


def test_local_workers_have_one_thread_the_budget_and_no_spilling(local_client: Client) -> None:
    assert local_client.run(worker_settings) == dict.fromkeys(_workers(local_client), EXPECTED)
    for worker in _workers(local_client).values():
        assert (worker["nthreads"], worker["memory_limit"]) == (1, BUDGET)
    assert len(_workers(local_client)) == 2


def test_a_local_cluster_listens_on_this_machine_alone(local_client: Client) -> None:
    own = psutil.Process()
    listening = [
        connection.laddr.ip
        for process in (own, *own.children(recursive=True))
        for connection in process.net_connections()
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) >= 4
    assert set(listening) == {"127.0.0.1"}
    # Other users of the machine reach the loopback, and are refused.
    assert all(address.startswith("tls://") for address in [local_client.scheduler.address, *_workers(local_client)])
    with pytest.raises((OSError, TypeError)):
        Client(local_client.scheduler.address.replace("tls://", "tcp://"), timeout=3, set_as_default=False)


def test_a_cluster_is_described_in_one_line(local_client: Client) -> None:
    link = dashboard_link(local_client)
    assert describe(local_client) == f"2 workers, 2 threads, {local_client.scheduler.address}, dashboard {link}"
    with urllib.request.urlopen(str(link), timeout=20) as page:
        assert page.status == 200


def test_a_worker_that_is_killed_comes_back_with_the_same_settings(
    local_client: Client, eventually: Callable[..., Any]
) -> None:
    before = set(_workers(local_client))
    victim = next(iter(local_client.run(os.getpid).values()))
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: len(set(_workers(local_client)) ^ before) == 2)  # one has gone, another has come
    assert list(local_client.run(worker_settings).values()) == [EXPECTED, EXPECTED]


def test_a_port_that_is_taken_moves_the_dashboard_and_a_busy_worker_does_not_hold_up_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        spec = ClusterSpec("local", workers=1, dashboard_address=f":{port}")
        with open_client(spec, memory_budget=BUDGET, timeout_s=60) as client:
            assert client is not None
            link = str(dashboard_link(client))
            assert link.startswith("http://127.0.0.1:")
            assert f":{port}/" not in link
            client.submit(time.sleep, 60)
            time.sleep(0.3)
            ended = time.monotonic()
    assert time.monotonic() - ended < 20


def test_without_a_dashboard_there_is_no_link() -> None:
    spec = ClusterSpec("local", workers=1, threads_per_worker=2, dashboard_address=None)
    with open_client(spec, memory_budget=BUDGET, timeout_s=60) as client:
        assert client is not None
        assert dashboard_link(client) is None
        assert describe(client) == f"1 worker, 2 threads, {client.scheduler.address}"


def test_a_dashboard_that_is_asked_for_needs_bokeh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "find_spec", lambda name: None)
    spec = ClusterSpec("local", workers=1, dashboard_address=":8787")
    with pytest.raises(ClusterError, match=r'pip install "mllkm-scale\[dashboard\]"'), _opened(spec):
        pass


def test_ctrl_c_leaves_the_workers_to_the_master_and_a_killed_master_leaves_none(
    tmp_path: Path, eventually: Callable[..., Any], has_ended: Callable[[psutil.Process], bool]
) -> None:
    script = tmp_path / "master.py"
    script.write_text(f"""
import os, signal, time
from mllkm_scale.run.job.cluster import ClusterSpec
from mllkm_scale.cluster.start import open_client

if __name__ == "__main__":
    heard = []
    signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    with open_client(ClusterSpec("local", workers=2), memory_budget={BUDGET}, timeout_s=60) as client:
        print(*client.run(os.getpid).values(), flush=True)
        deadline = time.monotonic() + 30
        while not heard and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        print(*client.run(os.getpid).values(), flush=True)
        client.submit(time.sleep, 30)
        time.sleep(30)
""")
    master = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert master.stdout is not None
        workers = sorted(int(word) for word in master.stdout.readline().split())
        processes = [psutil.Process(worker) for worker in workers]
        assert len(processes) == 2
        os.killpg(master.pid, signal.SIGINT)  # as a terminal does
        assert sorted(int(word) for word in master.stdout.readline().split()) == workers
        master.send_signal(signal.SIGKILL)
        eventually(lambda: all(has_ended(process) for process in processes), within_s=15)
    finally:
        master.kill()
        master.communicate(timeout=15)


@since("2026.7.1", "waits without end where no worker can start")
def test_a_script_without_a_main_guard_ends_with_the_remedy(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(f"""
from mllkm_scale.run.job.cluster import ClusterSpec
from mllkm_scale.cluster.start import open_client
with open_client(ClusterSpec("local", workers=2), memory_budget={BUDGET}, timeout_s=60):
    print("opened")
""")
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "ClusterError: the worker processes could not be started" in ended.stderr.splitlines()[-1]
    assert "if __name__ == '__main__':" in ended.stderr.splitlines()[-1]
    piped = subprocess.run(
        [sys.executable, "-"], input=script.read_text(), capture_output=True, text=True, timeout=60, check=False
    )
    assert "which is <stdin>: write it to a file" in piped.stderr.splitlines()[-1]


# A cluster that runs already


@pytest.fixture(scope="module")
def open_cluster() -> Iterator[LocalCluster]:
    """A cluster that does not ask for a certificate."""
    with LocalCluster(n_workers=1, threads_per_worker=1, memory_limit="500MB", dashboard_address=":0") as cluster:
        yield cluster


def test_a_cluster_that_was_joined_goes_on(open_cluster: LocalCluster) -> None:
    for _ in range(2):
        with _opened(ClusterSpec("address", address=open_cluster.scheduler_address)) as client:
            assert client.submit(sum, [1, 2]).result(timeout=20) == 3


def test_a_scheduler_file_may_come_late_and_be_of_an_earlier_scheduler_first(
    open_cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join, "TRY_S", 1.0)
    file = tmp_path / "scheduler.json"

    def write() -> None:
        time.sleep(0.5)
        file.write_text('{"addr')
        time.sleep(0.5)
        file.write_text(json.dumps({"address": f"tcp://127.0.0.1:{_free_port()}"}))
        time.sleep(0.5)
        file.write_text(json.dumps({"address": open_cluster.scheduler_address}))

    writer = threading.Thread(target=write)
    writer.start()
    with _opened(ClusterSpec("scheduler-file", scheduler_file=file), timeout_s=40) as client:
        assert client.submit(sum, [1, 2]).result(timeout=20) == 3
    writer.join()


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "has not appeared"), (b"{", "is damaged"), (b"[]", "is damaged"), (b"\xff", "damaged")],
)
def test_a_scheduler_file_that_is_missing_or_damaged_is_named(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    file = tmp_path / "scheduler.json"
    if content is not None:
        file.write_bytes(content)
    with (
        pytest.raises(ClusterError, match=rf"{file} .*{problem}.* after 1 s: start `dask scheduler"),
        _opened(ClusterSpec("scheduler-file", scheduler_file=file), timeout_s=0.6),
    ):
        pass


def test_a_scheduler_that_is_gone_is_named_with_its_file(tmp_path: Path) -> None:
    file, address = tmp_path / "scheduler.json", f"tcp://127.0.0.1:{_free_port()}"
    file.write_text(json.dumps({"address": address}))
    with (
        pytest.raises(ClusterError, match=rf"{address} of {file} is not reached after 2 s .*remove the file"),
        _opened(ClusterSpec("scheduler-file", scheduler_file=file), timeout_s=1.5),
    ):
        pass


@pytest.mark.parametrize("answer", [None, b"HTTP/1.0 400 Bad Request\r\n\r\n"])
def test_what_listens_but_is_no_scheduler_is_not_waited_for(answer: bytes | None) -> None:
    with _server(answer) as port:
        started = time.monotonic()
        with (
            pytest.raises(ClusterError, match=rf"tcp://127.0.0.1:{port} is not reached .*does not answer as dask does"),
            _opened(ClusterSpec("address", address=f"127.0.0.1:{port}"), timeout_s=1.5),
        ):
            pass
        assert time.monotonic() - started < 10


def test_a_protocol_that_is_not_set_up_is_told_at_once() -> None:
    with (
        pytest.raises(ClusterError, match=r"tls://127.0.0.1:8786 is not reached .*TLS configuration"),
        _opened(ClusterSpec("address", address="tls://127.0.0.1:8786"), timeout_s=60),
    ):
        pass


def test_a_scheduler_without_workers_is_not_waited_for_any_longer() -> None:
    with LocalCluster(
        n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs=logging.ERROR
    ) as empty:
        address = empty.scheduler_address
        with (
            pytest.raises(ClusterError, match=f"{address} has no worker after 2 s: start some with `dask worker"),
            _opened(ClusterSpec("address", address=address), timeout_s=1.6),
        ):
            pass


def test_a_time_or_budget_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ParameterError, match="timeout_s=0"), _opened(ClusterSpec("local", workers=1), timeout_s=0):
        pass


# Jobs of SLURM


def test_slurm_workers_are_jobs_that_end_with_the_block_and_are_replaced_before(
    commands: Path, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
) -> None:
    monkeypatch.setattr(slurm, "REPLACE_S", 0.5)
    spec = ClusterSpec(
        "slurm",
        workers=2,
        queue="short",
        account="physics",
        walltime="00:10:00",
        directives=("--constraint=fast",),
        interface="lo",
        local_directory=str(commands / "scratch of workers"),
    )
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "500 ms"}),
        open_client(spec, memory_budget=1_500_000_000, timeout_s=60) as client,
    ):
        assert client is not None
        client.wait_for_workers(2, timeout=40)
        assert client.run(worker_settings) == dict.fromkeys(_workers(client), EXPECTED)
        assert {worker["memory_limit"] for worker in _workers(client).values()} == {1_500_000_000}
        assert (commands / "scratch of workers").is_dir()
        subprocess.run(["scancel", "1"], check=True, timeout=30)
        eventually((commands / "jobs" / "3" / "session").exists)
        eventually(lambda: len(_workers(client)) == 2)
    script = (commands / "jobs" / "1" / "slurm_script").read_text()
    for line in ("-p short", "-A physics", "-t 00:10:00", "--cpus-per-task=1", "--mem=1622M", "--constraint=fast"):
        assert f"#SBATCH {line}\n" in script
    assert sorted(job.name for job in (commands / "jobs").iterdir()) == ["1", "2", "3"]
    for number in "123":
        eventually((commands / "jobs" / number / "code").exists, within_s=15)


def test_jobs_that_slurm_refuses_are_told_in_its_words(commands: Path) -> None:
    with (
        pytest.raises(ClusterError, match=r"invalid partition specified: closed.*correct queue"),
        _opened(ClusterSpec("slurm", workers=1, walltime="00:10:00", queue="closed", interface="lo")),
    ):
        pass
    assert list((commands / "jobs").iterdir()) == []


def test_jobs_that_bring_no_worker_are_ended(commands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with (
        pytest.raises(ClusterError, match="none of 2 SLURM jobs has started a worker after 2 s: `squeue`"),
        _opened(ClusterSpec("slurm", workers=2, walltime="00:10:00", interface="lo", start_timeout=2.0)),
    ):
        pass


def test_what_slurm_needs_is_named(commands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ClusterSpec("slurm", workers=1, walltime="00:10:00", interface="no-such-0")
    with pytest.raises(ClusterError, match=r"no-such-0.*correct interface"), _opened(spec):
        pass
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ClusterError, match="sbatch is not on the PATH"), _opened(spec):
        pass
    monkeypatch.setitem(sys.modules, "dask_jobqueue.slurm", None)
    with pytest.raises(ClusterError, match=r'pip install "mllkm-scale\[slurm\]"'), _opened(spec):
        pass


# The report


@since("2026.3", "looks for a template that bokeh 3.9 does not have")
def test_a_report_is_written_also_when_the_block_fails(local_client: Client, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    with pytest.raises(KeyError, match="broken"), performance_report(local_client, file):
        raise KeyError("broken")
    text = file.read_text()
    assert "Dask Performance Report" in text
    assert not re.search("<script[^>]* src=", text)  # it opens without the internet


def test_a_report_that_cannot_be_written_costs_a_warning_only(
    local_client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)  # dask may have raised that of pytest's handlers, which it takes for its own
    with performance_report(local_client, tmp_path / "report.html"):
        (tmp_path / "report.html").mkdir()
    assert "report.html was not written" in caplog.text


def test_a_report_of_a_scheduler_that_was_lost_costs_a_warning_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalCluster(
        n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs=logging.ERROR
    ) as lost:
        caplog.set_level(logging.WARNING)
        client = Client(lost, timeout=20, set_as_default=False)
        with performance_report(client, tmp_path / "report.html"):
            client.close(timeout=20)
    assert "report.html was not written" in caplog.text


def test_a_report_that_cannot_work_is_refused_before_the_training(
    local_client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(client: Client | None, path: Path) -> str:
        with pytest.raises(ParameterError) as caught, performance_report(client, path):
            raise AssertionError("the block was entered")
        return str(caught.value)

    assert "needs a cluster: train with --workers" in refused(None, tmp_path / "report.html")
    assert f"make {tmp_path / 'none'} first" in refused(local_client, tmp_path / "none" / "report.html")
    assert "is a folder: name a file" in refused(local_client, tmp_path)
    monkeypatch.setattr("mllkm_scale.cluster.client._scheduler_draws", lambda client: False)
    assert "by the scheduler, which has no bokeh" in refused(local_client, tmp_path / "report.html")
    monkeypatch.setattr("mllkm_scale.cluster.client.find_spec", lambda name: None)
    assert 'pip install "mllkm-scale[dashboard]"' in refused(local_client, tmp_path / "report.html")


def _opened(spec: ClusterSpec, timeout_s: float = 30.0) -> Any:
    return open_client(spec, memory_budget=BUDGET, timeout_s=timeout_s)


def _workers(client: Client) -> dict[str, Any]:
    return dict(client.scheduler_info()["workers"])


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class _server:
    """Something that listens, and says `answer` or nothing to all who come."""

    def __init__(self, answer: bytes | None) -> None:
        self.answer = answer

    def __enter__(self) -> int:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()
        return int(self.socket.getsockname()[1])

    def __exit__(self, *error: object) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.socket.close()

    def _serve(self) -> None:
        kept = []
        while True:
            try:
                visitor, _ = self.socket.accept()
            except OSError:
                break
            kept.append(visitor)
            if self.answer is not None:
                visitor.sendall(self.answer)
        for visitor in kept:
            visitor.close()


@since("2026.8", "waits without end for a worker that it could not stop")
def test_a_worker_that_freezes_while_it_starts_is_an_error_in_time_and_leaves_no_process(
    eventually: Callable[..., Any], has_ended: Callable[[psutil.Process], bool]
) -> None:
    here = psutil.Process()
    before, frozen, over = set(here.children(recursive=True)), [], threading.Event()

    def freeze() -> None:
        while not over.wait(0.02) and not frozen:
            for process in set(here.children(recursive=True)) - before:
                if "spawn_main" in " ".join(process.cmdline()):
                    process.suspend()
                    frozen.append(process)
                    break

    with ThreadPoolExecutor(1) as thread:
        thread.submit(freeze)
        said, spec = "not all of the 2 worker processes have started after 10 s", ClusterSpec("local", workers=2)
        with pytest.raises(ClusterError, match=said), open_client(spec, memory_budget=BUDGET, timeout_s=10):
            over.set()
        over.set()
    assert frozen
    _, alive = psutil.wait_procs(set(here.children(recursive=True)) - before - {frozen[0]}, timeout=20)
    assert not [process for process in alive if "spawn_main" in " ".join(process.cmdline())]
    eventually(lambda: has_ended(frozen[0]))
