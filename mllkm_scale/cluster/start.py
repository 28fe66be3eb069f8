"""From a `ClusterSpec` to a client of a running cluster, and back to nothing: processes and jobs end with the block.

    local            a scheduler in this process, worker processes beside it, all on 127.0.0.1
    address          join a scheduler that runs already
    scheduler-file   the same, its address read from the file that it wrote
    slurm            a scheduler in this process, one SLURM job a worker

Every wait has an end: what has not come up within `timeout_s` is a `ClusterError` that says what to look at.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import multiprocessing
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mllkm_scale.cluster.spec import ClusterSpec
from mllkm_scale.errors import ClusterError, ParameterError

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["BLAS_THREADS", "WORKER_MEMORY", "dashboard_link", "describe", "open_client"]

LOGGER = logging.getLogger("mllkm_scale")
LOOPBACK = "127.0.0.1"
CLOSE_S = 30.0
POLL_S = 0.2

BLAS_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""Variables that hold BLAS to one thread: dask owns the parallelism, and bits depend on the number of threads."""

WORKER_MEMORY = {
    # Results are small and go to the master at once: there is nothing worth writing to disk.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    # A worker may rightly use most of its budget for as long as it lives. Paused for that, it would never go on.
    "distributed.worker.memory.pause": False,
    # One that is about to leave its budget is restarted before it can harm its machine.
    "distributed.worker.memory.terminate": 0.95,
}
"""Shares of the memory limit at which dask acts on a worker."""

# Beside the worker, each job of a batch system runs the nanny that watches over it: 75 MB were measured.
NANNY_BYTES = 200_000_000


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
    deadline = time.monotonic() + timeout_s
    ways = {"local": _local, "slurm": _slurm, "address": _joined, "scheduler-file": _joined}
    with ways[spec.kind](spec, memory_budget, deadline) as client:
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


@contextmanager
def _local(spec: ClusterSpec, memory_budget: int, deadline: float) -> Iterator[Client]:
    import dask
    from distributed import Client, LocalCluster

    _require_file_of_main()
    settings = WORKER_MEMORY | {f"distributed.nanny.pre-spawn-environ.{name}": 1 for name in BLAS_THREADS}
    address, dashboard = _dashboard(spec)
    with contextlib.ExitStack() as opened:
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
                    preload=[__name__],
                    death_timeout=_left(deadline),
                )
        except (OSError, RuntimeError, ValueError) as error:
            raise ClusterError(
                f"{_count(spec.workers or 0, 'worker process', 'worker processes')} could not be started on this"
                f" machine ({_reason(error)}): a script that trains must do so under `if __name__ == '__main__':`,"
                " for each worker imports it; otherwise ask for fewer workers, or train without"
            ) from error
        opened.callback(_close, cluster)
        client = Client(cluster, timeout=_left(deadline))
        opened.callback(_close, client)
        yield client


@contextmanager
def _joined(spec: ClusterSpec, memory_budget: int, deadline: float) -> Iterator[Client]:
    waited_s = _left(deadline)
    client, name = _connect(spec, deadline, waited_s)
    with contextlib.ExitStack() as opened:
        opened.callback(_close, client)
        _wait_for_a_worker(
            client,
            deadline,
            f"{name} has no worker after {waited_s:.0f} s: start some with `dask worker`, and look at their output",
        )
        yield client


@contextmanager
def _slurm(spec: ClusterSpec, memory_budget: int, deadline: float) -> Iterator[Client]:
    try:
        from dask_jobqueue.slurm import SLURMCluster
    except ImportError as error:
        raise ClusterError('a cluster of kind "slurm" needs dask-jobqueue: pip install "mllkm-scale[slurm]"') from error
    from distributed import Client

    if shutil.which("sbatch") is None:
        raise ClusterError("sbatch is not on the PATH: train on a machine from which jobs are submitted to SLURM")
    waited_s = _left(deadline)
    address, dashboard = _dashboard(spec)
    environment = dict.fromkeys((*BLAS_THREADS, "NUMBA_NUM_THREADS"), "1") | _as_environment(WORKER_MEMORY)
    with contextlib.ExitStack() as opened:
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
        opened.callback(_close, cluster)
        _require_accepted(cluster.job_script(), min(60.0, _left(deadline)))
        cluster.scale(jobs=spec.workers)
        client = Client(cluster, timeout=_left(deadline))
        opened.callback(_close, client)
        _wait_for_a_worker(
            client,
            deadline,
            f"none of {_count(spec.workers or 0, 'SLURM job')} has started a worker within {waited_s:.0f} s: `squeue`"
            " says what they wait for, their output why they ended; ask for less, or wait longer",
        )
        yield client


def _connect(spec: ClusterSpec, deadline: float, waited_s: float) -> tuple[Client, str]:
    """A client, and how messages call the scheduler.

    A scheduler file may be of an earlier scheduler, and be written anew while this one waits: it is read before
    each try.
    """
    from distributed import Client

    while True:
        address = spec.address
        if spec.scheduler_file is not None:
            address = _address_in(spec.scheduler_file, deadline, waited_s)
        try:
            with _silence():
                client = Client(address, timeout=min(_left(deadline), 10.0))
        except (OSError, ValueError) as error:  # ValueError: the protocol is not installed, or needs certificates
            if isinstance(error, OSError) and time.monotonic() < deadline:
                time.sleep(POLL_S)
                continue
            named = f" of {spec.scheduler_file}" if spec.scheduler_file is not None else ""
            raise ClusterError(
                f"the scheduler {address}{named} was not reached within {waited_s:.0f} s ({_reason(error)}): see that"
                " it runs and that this machine may connect to it"
                + (", or remove the file if it is of an earlier one" if named else "")
            ) from error
        return client, f"the scheduler {address}"


def _address_in(file: Path, deadline: float, waited_s: float) -> str:
    """The address in a scheduler file, once there is one."""
    while True:
        problem = "did not appear"
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            return str(found["address"])
        except FileNotFoundError:
            pass
        except OSError as error:
            problem = f"cannot be read ({error.strerror})"
        except (ValueError, KeyError, TypeError):  # perhaps it is just being written
            problem = "is damaged: it holds no address of a scheduler"
        if time.monotonic() >= deadline:
            raise ClusterError(
                f"the scheduler file {file} {problem} within {waited_s:.0f} s: start `dask scheduler"
                f" --scheduler-file {file}` where this machine sees the file, and name the same file here"
            )
        time.sleep(min(POLL_S, _left(deadline)))


def _wait_for_a_worker(client: Client, deadline: float, message: str) -> None:
    try:
        client.wait_for_workers(1, timeout=_left(deadline))
    except (OSError, TimeoutError) as error:
        raise ClusterError(message) from error


def _require_accepted(script: str, timeout_s: float) -> None:
    """Have SLURM judge the job first: otherwise all that is seen of a refused one is a worker that does not come."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "worker.sh")
        file.write_text(script, encoding="utf-8")
        try:
            judged = subprocess.run(
                ["sbatch", "--test-only", str(file)], capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise ClusterError(
                f"sbatch has not answered within {timeout_s:.0f} s: see with `sinfo` that SLURM is well, and try again"
            ) from error
    if judged.returncode != 0:
        said = " ".join(judged.stderr.split()) or f"exit code {judged.returncode}"
        raise ClusterError(
            f"SLURM refuses the workers' jobs ({said}): correct queue, account, walltime, directives or memory budget"
        )


def _dashboard(spec: ClusterSpec) -> tuple[str, bool]:
    """Where the scheduler serves HTTP, and whether that is a dashboard: it serves its health in any case."""
    if spec.dashboard_address is None:
        return f"{LOOPBACK}:0", False
    if find_spec("bokeh") is None and spec.dashboard_address != ":0":
        raise ClusterError(
            f'the dashboard at {spec.dashboard_address} needs bokeh: pip install "mllkm-scale[dashboard]"'
        )
    address = spec.dashboard_address
    return (f"{LOOPBACK}{address}" if address.startswith(":") else address), find_spec("bokeh") is not None


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
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if os.environ.get(name) != value})


@contextmanager
def _silence() -> Iterator[None]:
    """No log or warning of a start: what fails is raised, and a dashboard may move to another port."""
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"Port \d+ is already in use", UserWarning)
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
    """The innermost cause, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split()) or type(error).__name__


def _left(deadline: float) -> float:
    return max(0.1, deadline - time.monotonic())


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
