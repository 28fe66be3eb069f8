"""What every way of starting a cluster needs: settings of workers, bounded waits, a quiet start, a clean end."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from mllkm_scale.errors import ClusterError
from mllkm_scale.run.job.cluster import ClusterSpec

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "BLAS_THREADS",
    "LOGGER",
    "LOOPBACK",
    "POLL_S",
    "SCHEDULER_SETTINGS",
    "WORKER_SETTINGS",
    "Patience",
    "close",
    "count",
    "dashboard_of",
    "reason",
    "silence",
    "wait_for_a_worker",
]

LOGGER = logging.getLogger("mllkm_scale")
LOOPBACK = "127.0.0.1"
POLL_S, CLOSE_S = 0.2, 30.0

BLAS_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""Variables that hold BLAS to one thread: dask owns the parallelism, and bits depend on the number of threads."""

WORKER_SETTINGS = {
    # Results are small and go to the master at once: there is nothing worth writing to disk.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    # A worker may rightly use most of its budget for as long as it lives. Paused for that, it would never go on.
    "distributed.worker.memory.pause": False,
    # One that is about to leave its budget is restarted before it harms its machine.
    "distributed.worker.memory.terminate": 0.95,
    # Samples for the profile of a performance report: a hundred a second, as by default, cost a worker 3 %.
    "distributed.worker.profile.interval": "100ms",
}
"""Dask's settings of a worker; those of memory are shares of its limit."""

SCHEDULER_SETTINGS = {
    "distributed.scheduler.worker-ttl": "60s",  # from the last sign of life of a worker to giving it up
}


class Patience:
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


def wait_for_a_worker(client: Client, patience: Patience, message: str) -> None:
    try:
        client.wait_for_workers(1, timeout=patience.left_s)
    except OSError as error:  # TimeoutError is one
        raise ClusterError(message) from error


def dashboard_of(spec: ClusterSpec) -> tuple[str, bool]:
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


@contextmanager
def silence() -> Iterator[None]:
    """No log of a start: what fails is raised."""
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def close(opened: Any) -> None:
    # The training is over, well or not: an end that is not clean must not take its place.
    try:
        opened.close(timeout=CLOSE_S)
    except Exception as error:
        LOGGER.warning("closing the cluster: %s", reason(error))


def reason(error: BaseException) -> str:
    """The innermost cause that has words, in one line."""
    words = type(error).__name__
    cause: BaseException | None = error
    while cause is not None:
        words = " ".join(str(cause).split()) or words
        cause = cause.__cause__
    return words


def count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
