"""A scheduler in this process, and one SLURM job per worker, by dask-jobqueue."""

from __future__ import annotations

import logging
import math
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mllkm_scale.cluster.certificates import security_in, write_certificates
from mllkm_scale.cluster.settings import (
    BLAS_THREADS,
    LOGGER,
    SCHEDULER_SETTINGS,
    WORKER_SETTINGS,
    Patience,
    close,
    count,
    dashboard_of,
    reason,
    silence,
    wait_for_a_worker,
)
from mllkm_scale.errors import ClusterError
from mllkm_scale.run.job.cluster import ClusterSpec

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["open_slurm"]

NANNY_BYTES = 200_000_000  # of the process that supervises a worker: 60 MB as measured
HTTP_HERE = ("--dashboard-address", "127.0.0.1:0")  # without a dashboard, a worker still serves its health
REPLACE_S = 30.0  # between two checks for ended jobs


def open_slurm(
    spec: ClusterSpec, memory_budget: int, patience: Patience, opened: ExitStack, folder: Path | None = None
) -> Client:
    """The client of a new cluster; certificates are in `folder`, which all nodes must see (default: the working
    folder)."""
    try:
        from dask_jobqueue.slurm import SLURMCluster
    except ImportError as error:
        raise ClusterError('a cluster of kind "slurm" needs dask-jobqueue: pip install "mllkm-scale[slurm]"') from error
    import dask
    from distributed import Client

    if shutil.which("sbatch") is None:
        raise ClusterError("sbatch is not on the PATH: train on a machine from which jobs are submitted to SLURM")
    address, dashboard = dashboard_of(spec)
    security = None
    if spec.insecure:
        LOGGER.warning(
            "scheduler and workers communicate without TLS: anyone who reaches their ports can run code as this user"
        )
    else:
        private = opened.enter_context(_private_folder(folder or Path.cwd()))
        write_certificates(private)
        security = security_in(private)
    environment = dict.fromkeys((*BLAS_THREADS, "NUMBA_NUM_THREADS"), "1") | _as_environment(WORKER_SETTINGS)
    try:
        with silence(), dask.config.set(SCHEDULER_SETTINGS):
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
                # The limit again, because dask-jobqueue rounds its own to three digits, possibly upwards.
                worker_extra_args=["--memory-limit", str(memory_budget), "--no-dashboard", *HTTP_HERE],
                scheduler_options={"dashboard_address": address, "dashboard": dashboard},
                silence_logs=logging.ERROR,
                security=security,
            )
    except (OSError, RuntimeError, ValueError) as error:
        raise ClusterError(
            f"the scheduler could not be started on this machine ({reason(error)}): correct interface or"
            " dashboard_address, or dask's configuration"
        ) from error
    opened.callback(close, cluster)
    _require_accepted(cluster.job_script(), min(60.0, patience.left_s))
    opened.enter_context(_jobs(cluster, spec.workers or 0))
    client = Client(cluster, timeout=patience.left_s)
    opened.callback(close, client)
    queued = Patience(spec.start_timeout)
    wait_for_a_worker(
        client,
        queued,
        f"none of {count(spec.workers or 0, 'SLURM job')} has started a worker after {queued.total_s:.0f} s:"
        " `squeue` says what they wait for, their output why they ended; ask for less, or wait longer (start_timeout)",
    )
    return client


@contextmanager
def _private_folder(parent: Path) -> Iterator[Path]:
    """A folder for certificates that only this user can read, on the file system of the run; removed after the
    block."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        made = tempfile.TemporaryDirectory(prefix=".tls-", dir=parent.absolute(), ignore_cleanup_errors=True)
    except OSError as error:
        raise ClusterError(
            f"{parent} cannot be written ({error.strerror or error}), and the certificates of the workers belong there:"
            " start in a folder that all nodes share"
        ) from error
    with made as folder:
        yield Path(folder)


def _require_accepted(script: str, timeout_s: float) -> None:
    """Let SLURM check the job first: otherwise a refused job would only show as a missing worker."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "worker.sh")
        file.write_text(script, encoding="utf-8")
        command = ["sbatch", "--test-only", str(file)]
        try:
            judged = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired as error:
            raise ClusterError(
                f"sbatch has not answered after {timeout_s:.0f} s: check SLURM with `sinfo`, and try again"
            ) from error
    if judged.returncode != 0:
        said = " ".join(judged.stderr.split()) or f"exit code {judged.returncode}"
        raise ClusterError(
            f"SLURM refuses the workers' jobs ({said}): correct queue, account, walltime, directives or memory budget"
        )


@contextmanager
def _jobs(cluster: Any, number: int) -> Iterator[None]:
    """Keep the requested number of jobs: one that has ended, because of its time limit, is replaced."""
    from tornado.ioloop import PeriodicCallback

    cluster.scale(jobs=number)
    again = PeriodicCallback(lambda: cluster.scale(jobs=number), 1000 * REPLACE_S)
    cluster.loop.add_callback(again.start)
    try:
        yield
    finally:
        cluster.loop.add_callback(again.stop)


def _as_environment(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings of dask as environment variables."""
    return {"DASK_" + key.replace(".", "__").replace("-", "_").upper(): str(value) for key, value in settings.items()}
