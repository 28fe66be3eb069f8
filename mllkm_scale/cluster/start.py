"""From a `ClusterSpec` to a client of a running cluster, and back to nothing: processes and jobs end with the block.

    local            a scheduler in this process, worker processes beside it, all on 127.0.0.1
    address          join a scheduler that runs already
    scheduler-file   the same, its address read from the file that it wrote
    slurm            a scheduler in this process, one SLURM job a worker

Every wait has an end: what has not come up within `timeout_s` is a `ClusterError` that says what to look at.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import multiprocessing
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mllkm_scale.cluster.spec import ClusterSpec
from mllkm_scale.errors import ClusterError, ParameterError

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["dashboard_link", "describe", "open_client"]

LOGGER = logging.getLogger("mllkm_scale")
LOOPBACK = "127.0.0.1"
TRY_S, POLL_S, CLOSE_S = 10.0, 0.2, 30.0

BLAS_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""Variables that hold BLAS to one thread: dask owns the parallelism, and bits depend on the number of threads."""

WORKER_MEMORY = {
    # Results are small and go to the master at once: there is nothing worth writing to disk.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    # A worker may rightly use most of its budget for as long as it lives. Paused for that, it would never go on.
    "distributed.worker.memory.pause": False,
    # One that is about to leave its budget is restarted before it harms its machine.
    "distributed.worker.memory.terminate": 0.95,
}
"""Shares of a worker's memory limit at which dask acts."""

NANNY_BYTES = 200_000_000  # the process beside a worker that watches over it: 60 MB were measured
REPLACE_S = 30.0  # between two looks at whether jobs have ended


@contextmanager
def open_client(spec: ClusterSpec, *, memory_budget: int, timeout_s: float = 300.0) -> Iterator[Client | None]:
    """Open the cluster of `spec`, or join it; its client is there for the length of the block.

    Parameters
    ----------
    spec : ClusterSpec
        Which cluster.
    memory_budget : int
        Bytes that each worker may use: the limit of workers that are started. Those that run already have theirs.
    timeout_s : float
        Seconds until the scheduler must be reached and at least one worker be there.

    Yields
    ------
    distributed.Client or None
        None for the kind "none". Workers and scheduler that were started end with the block; a cluster that was
        joined goes on.

    Raises
    ------
    ClusterError
        If there is no scheduler, or no worker, in time.

    Examples
    --------
    >>> with open_client(ClusterSpec(), memory_budget=10**9) as client:
    ...     print(client)
    None
    """
    if memory_budget < 1 or not timeout_s > 0:
        raise ParameterError(f"memory_budget={memory_budget!r}, timeout_s={timeout_s!r}: give positive numbers")
    if spec.kind == "none":
        yield None
        return
    _refuse_imported_main()
    patience = _Patience(timeout_s)
    with ExitStack() as opened:
        if spec.kind == "local":
            client = _local(spec, memory_budget, patience, opened)
        elif spec.kind == "slurm":
            client = _slurm(spec, memory_budget, patience, opened)
        else:
            client = _joined(spec, patience, opened)
        yield client


def dashboard_link(client: Client) -> str | None:
    """The address of the cluster's dashboard in a browser; None if it has none."""

    def shows_pages(dask_scheduler: Any) -> bool:
        return bool(dask_scheduler.http_application.applications)

    # A scheduler without bokeh serves HTTP, too, and the client would give a link to it that leads nowhere.
    with contextlib.suppress(Exception):
        if client.run_on_scheduler(shows_pages):
            return str(client.dashboard_link)
    return None


def describe(client: Client) -> str:
    """The cluster in one line, such as "2 workers, 2 threads, tcp://127.0.0.1:8786"."""
    info = client.scheduler_info()
    workers = info["workers"].values()
    words = [_count(len(workers), "worker"), _count(sum(worker["nthreads"] for worker in workers), "thread")]
    link = dashboard_link(client)
    return ", ".join([*words, info["address"], *([f"dashboard {link}"] if link else [])])


def dask_setup(worker: Any) -> None:
    """Called by dask in each worker process that `_local` starts.

    Ctrl-C reaches every process of a terminal. The master takes it as a wish to end at the next safe point, for
    which it still needs its workers; they end with it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class _Patience:
    """How long something may still take."""

    def __init__(self, total_s: float) -> None:
        self.total_s = total_s
        self._end_s = time.monotonic() + total_s

    @property
    def left_s(self) -> float:
        return max(0.1, self._end_s - time.monotonic())

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._end_s


def _local(spec: ClusterSpec, memory_budget: int, patience: _Patience, opened: ExitStack) -> Client:
    import dask
    from distributed import Client, LocalCluster

    _require_file_of_main()
    settings = WORKER_MEMORY | {f"distributed.nanny.pre-spawn-environ.{name}": 1 for name in BLAS_THREADS}
    address, dashboard = _dashboard(spec)
    try:
        with _single_threaded_environment(), _silence(), dask.config.set(settings):
            cluster = LocalCluster(
                n_workers=spec.workers,
                threads_per_worker=spec.threads_per_worker,
                processes=True,
                host=LOOPBACK,
                memory_limit=memory_budget,
                local_directory=spec.local_directory,
                dashboard_address=address,
                scheduler_kwargs={"dashboard": dashboard},
                silence_logs=logging.ERROR,
                env={"NUMBA_NUM_THREADS": "1"},
                config=WORKER_MEMORY,  # for workers that are started again, when `settings` is over
                preload=[__name__],  # for dask_setup
                death_timeout=patience.left_s,
            )
    except (OSError, RuntimeError, ValueError) as error:
        raise ClusterError(
            f"the worker processes could not be started on this machine ({_reason(error)}): a script that trains must"
            " do so under `if __name__ == '__main__':`, for each worker imports it; otherwise ask for fewer workers, or"
            " train without"
        ) from error
    opened.callback(_close, cluster)
    client = Client(cluster, timeout=patience.left_s)
    opened.callback(_close, client)
    return client


def _joined(spec: ClusterSpec, patience: _Patience, opened: ExitStack) -> Client:
    client, address = _connect(spec, patience)
    opened.callback(_close, client)
    _wait_for_a_worker(
        client,
        patience,
        f"the scheduler {address} has no worker after {patience.total_s:.0f} s: start some with `dask worker"
        f" {address}`, and look at their output",
    )
    return client


def _connect(spec: ClusterSpec, patience: _Patience) -> tuple[Client, str]:
    """A client, and the address of its scheduler.

    A scheduler file may be of an earlier scheduler, and be written anew meanwhile: it is read before each try.
    """
    from distributed import Client

    file = spec.scheduler_file
    while True:
        address = _address_in(file, patience) if file is not None else str(spec.address)
        try_s = min(patience.left_s, TRY_S)
        try:
            with _silence():
                _require_answer(address, try_s)
                return Client(address, timeout=try_s), address
        except (OSError, ImportError, RuntimeError, TypeError, ValueError) as error:
            # Only what the network says may be otherwise at the next try; one of no length says nothing.
            tired = patience.left_s < 1.0
            if isinstance(error, OSError) and not tired:
                time.sleep(POLL_S)
                continue
            after = f" after {patience.total_s:.0f} s" if tired else ""
            raise ClusterError(
                f"the scheduler {address}{f' of {file}' if file else ''} is not reached{after} ({_reason(error)}): see"
                " that it runs and that this machine may connect to it"
                + (", or remove the file if it is of an earlier one" if file else "")
            ) from error


def _require_answer(address: str, timeout_s: float) -> None:
    """An OSError if nothing at the address speaks as dask does; a client would wait for its greeting for ever."""
    from distributed.comm.core import connect
    from distributed.security import Security

    async def greet() -> None:
        arguments = Security().get_connection_args("client")
        # Half of the time for the connection, whose failure says more than a greeting that does not come.
        comm = await asyncio.wait_for(connect(address, timeout=timeout_s / 2, **arguments), timeout_s)
        comm.abort()

    # In a thread of its own, for the caller may be a notebook, whose thread has a loop that runs.
    with ThreadPoolExecutor(1) as thread:
        try:
            thread.submit(asyncio.run, greet()).result()
        except (TimeoutError, MemoryError):  # silence, or an answer whose first bytes are not the length of a message
            raise ConnectionError("what listens there does not answer as dask does") from None


def _address_in(file: Path, patience: _Patience) -> str:
    """The address in a scheduler file, once there is one."""
    while True:
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            return str(found["address"])
        except FileNotFoundError:
            problem = "has not appeared"
        except OSError as error:
            problem = f"cannot be read ({error.strerror})"
        except (ValueError, KeyError, TypeError):  # perhaps it is just being written
            problem = "is damaged and holds no address"
        if patience.is_over:
            raise ClusterError(
                f"the scheduler file {file} {problem} after {patience.total_s:.0f} s: start `dask scheduler"
                f" --scheduler-file {file}` where this machine sees the file, and name the same file here"
            )
        time.sleep(min(POLL_S, patience.left_s))


def _slurm(spec: ClusterSpec, memory_budget: int, patience: _Patience, opened: ExitStack) -> Client:
    try:
        from dask_jobqueue.slurm import SLURMCluster
    except ImportError as error:
        raise ClusterError('a cluster of kind "slurm" needs dask-jobqueue: pip install "mllkm-scale[slurm]"') from error
    from distributed import Client

    if shutil.which("sbatch") is None:
        raise ClusterError("sbatch is not on the PATH: train on a machine from which jobs are submitted to SLURM")
    address, dashboard = _dashboard(spec)
    environment = dict.fromkeys((*BLAS_THREADS, "NUMBA_NUM_THREADS"), "1") | _as_environment(WORKER_MEMORY)
    try:
        with _silence():
            cluster = SLURMCluster(
                cores=spec.threads_per_worker,
                processes=1,
                memory=memory_budget,
                job_mem=f"{math.ceil((memory_budget + NANNY_BYTES) / 2**20)}M",
                queue=spec.queue,
                account=spec.account,
                walltime=spec.walltime,
                interface=spec.interface,
                local_directory=shlex.quote(spec.local_directory) if spec.local_directory else None,
                python=shlex.quote(sys.executable),
                job_name="mllkm-worker",
                job_extra_directives=list(spec.directives),
                job_script_prologue=[f"export {name}={value}" for name, value in environment.items()],
                # The limit once more, since dask-jobqueue rounds its own to three digits, upwards too.
                worker_extra_args=["--memory-limit", str(memory_budget), "--no-dashboard"],
                scheduler_options={"dashboard_address": address, "dashboard": dashboard},
                silence_logs=logging.ERROR,
            )
    except (OSError, RuntimeError, ValueError) as error:
        raise ClusterError(
            f"the scheduler could not be started on this machine ({_reason(error)}): correct interface or"
            " dashboard_address, or dask's configuration"
        ) from error
    opened.callback(_close, cluster)
    _require_accepted(cluster.job_script(), min(60.0, patience.left_s))
    opened.enter_context(_jobs(cluster, spec.workers or 0))
    client = Client(cluster, timeout=patience.left_s)
    opened.callback(_close, client)
    _wait_for_a_worker(
        client,
        patience,
        f"none of {_count(spec.workers or 0, 'SLURM job')} has started a worker after {patience.total_s:.0f} s:"
        " `squeue` says what they wait for, their output why they ended; ask for less, or wait longer",
    )
    return client


def _require_accepted(script: str, timeout_s: float) -> None:
    """Have SLURM judge the job first: otherwise all that is seen of a refused one is a worker that does not come."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "worker.sh")
        file.write_text(script, encoding="utf-8")
        command = ["sbatch", "--test-only", str(file)]
        try:
            judged = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired as error:
            raise ClusterError(
                f"sbatch has not answered after {timeout_s:.0f} s: see with `sinfo` that SLURM is well, and try again"
            ) from error
    if judged.returncode != 0:
        said = " ".join(judged.stderr.split()) or f"exit code {judged.returncode}"
        raise ClusterError(
            f"SLURM refuses the workers' jobs ({said}): correct queue, account, walltime, directives or memory budget"
        )


@contextmanager
def _jobs(cluster: Any, number: int) -> Iterator[None]:
    """As many jobs as asked for; one that has ended, because its time was up, is followed by another."""
    from tornado.ioloop import PeriodicCallback

    cluster.scale(jobs=number)
    again = PeriodicCallback(lambda: cluster.scale(jobs=number), 1000 * REPLACE_S)
    cluster.loop.add_callback(again.start)
    try:
        yield
    finally:
        cluster.loop.add_callback(again.stop)


def _wait_for_a_worker(client: Client, patience: _Patience, message: str) -> None:
    try:
        client.wait_for_workers(1, timeout=patience.left_s)
    except OSError as error:  # TimeoutError is one
        raise ClusterError(message) from error


def _dashboard(spec: ClusterSpec) -> tuple[str, bool]:
    """Where the scheduler serves HTTP, and whether that is a dashboard: it serves its health in any case."""
    if spec.dashboard_address is None:
        return f"{LOOPBACK}:0", False
    drawn = find_spec("bokeh") is not None
    if not drawn and spec.dashboard_address != ":0":
        raise ClusterError(
            f'the dashboard at {spec.dashboard_address} needs bokeh: pip install "mllkm-scale[dashboard]"'
        )
    host, _, port = spec.dashboard_address.rpartition(":")
    host = host or LOOPBACK
    return f"{host}:{port if _is_free(host.strip('[]'), int(port)) else 0}", drawn


def _is_free(host: str, port: int) -> bool:
    try:
        socket.create_server((host, port)).close()
    except OSError:
        return False
    return True


def _refuse_imported_main() -> None:
    # A worker process imports the main program. If that opens a cluster outside of `if __name__ == "__main__"`, it
    # arrives here again, in the worker; the message of the master, whose worker then fails, follows this one.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SystemExit(
            "mllkm-scale: a worker process came to the start of the training while it imported the main program: put"
            " the training under `if __name__ == '__main__':`"
        )


def _require_file_of_main() -> None:
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if getattr(main, "__spec__", None) is None and file is not None and not Path(file).exists():
        raise ClusterError(f"the workers import the main program, which is {file}: write it to a file, and run that")


@contextmanager
def _single_threaded_environment() -> Iterator[None]:
    """One BLAS thread in the processes started meanwhile, whatever the user's environment says; then as before."""
    before = dict(os.environ)
    os.environ.update(dict.fromkeys(BLAS_THREADS, "1"))
    try:
        yield
    finally:  # dask has added variables of its own
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if os.environ.get(name) != value})


@contextmanager
def _silence() -> Iterator[None]:
    """No log of a start: what fails is raised."""
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _close(opened: Any) -> None:
    # The training is over, well or not: an end that is not clean must not take its place.
    try:
        opened.close(timeout=CLOSE_S)
    except Exception as error:
        LOGGER.warning("closing the cluster: %s", _reason(error))


def _as_environment(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings of dask as the variables it reads them from."""
    return {"DASK_" + key.replace(".", "__").upper(): str(value) for key, value in settings.items()}


def _reason(error: BaseException) -> str:
    """The innermost cause that has words, in one line."""
    words = type(error).__name__
    cause: BaseException | None = error
    while cause is not None:
        words = " ".join(str(cause).split()) or words
        cause = cause.__cause__
    return words


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
