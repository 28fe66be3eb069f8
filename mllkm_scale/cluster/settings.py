"""Shared parts of all ways to start a cluster: settings of workers, bounded waits, a quiet start, a clean end."""

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
"""Variables that limit BLAS to one thread: dask organises the parallelism, and bits depend on the number of BLAS
threads."""

WORKER_SETTINGS = {
    # Results are small and are fetched at once, so nothing should be written to disk.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    # A worker may use most of its budget all the time. If it were paused for that, it would never continue.
    "distributed.worker.memory.pause": False,
    # A worker that is about to exceed its budget is restarted before it harms the machine.
    "distributed.worker.memory.terminate": 0.95,
    # Samples for the profile of a performance report: a hundred a second, as by default, cost a worker 3 %.
    "distributed.worker.profile.interval": "100ms",
}
"""Settings of dask for workers; those of memory are shares of the limit."""

SCHEDULER_SETTINGS = {
    "distributed.scheduler.worker-ttl": "60s",  # after which a silent worker is given up
}


class Patience:
    """The remaining time of a bounded wait."""

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
    """The address at which the scheduler serves HTTP, and whether that is a dashboard: it always serves its health."""
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
    """Suppress the log during a start: failures are raised."""
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def close(opened: Any) -> None:
    # An error while closing must not replace the result or the error of the training.
    try:
        opened.close(timeout=CLOSE_S)
    except Exception as error:
        LOGGER.warning("closing the cluster: %s", reason(error))


def reason(error: BaseException) -> str:
    """The innermost cause with a message, on one line."""
    words = type(error).__name__
    cause: BaseException | None = error
    while cause is not None:
        words = " ".join(str(cause).split()) or words
        cause = cause.__cause__
    return words


def count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
