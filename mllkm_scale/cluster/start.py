"""Opens the cluster of a `ClusterSpec` and yields its client; processes and jobs that were started end with the block.

    local            a scheduler in this process, and worker processes, all on 127.0.0.1
    address          join a running scheduler
    scheduler-file   the same, with the address from its scheduler file
    slurm            a scheduler in this process, and one SLURM job per worker

Every wait is bounded: if something has not started within `timeout_s`, a `ClusterError` says what to check.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mllkm_scale.cluster.join import join
from mllkm_scale.cluster.local import open_local, refuse_imported_main
from mllkm_scale.cluster.settings import LOOPBACK, Patience, count
from mllkm_scale.cluster.slurm import open_slurm
from mllkm_scale.errors import ParameterError
from mllkm_scale.run.job.cluster import ClusterSpec

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["dashboard_link", "describe", "open_client"]


@contextmanager
def open_client(
    spec: ClusterSpec, *, memory_budget: int, timeout_s: float = 300.0, folder: Path | None = None
) -> Iterator[Client | None]:
    """Open the cluster of `spec`, or join it; the client is valid within the block.

    Parameters
    ----------
    spec : ClusterSpec
        Which cluster.
    memory_budget : int
        Memory limit in bytes of workers that are started. Running workers have their own limits.
    timeout_s : float
        Seconds within which the scheduler must be reached and at least one worker must join; for the first job of
        SLURM, `spec` has a longer limit.
    folder : path, optional
        Folder for certificates that SLURM jobs read; by default the working folder.

    Yields
    ------
    distributed.Client or None
        None for the kind "none". Workers and scheduler that were started end with the block; a cluster that was joined
        keeps running.

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
    refuse_imported_main()
    patience = Patience(timeout_s)
    with ExitStack() as opened:
        if spec.kind == "local":
            client = open_local(spec, memory_budget, patience, opened)
        elif spec.kind == "slurm":
            client = open_slurm(spec, memory_budget, patience, opened, folder)
        else:
            client = join(spec, patience, opened)
        yield client


def dashboard_link(client: Client) -> str | None:
    """The link to the dashboard of the cluster; None if it has none.

    A scheduler on another machine may show it only on that machine; then the ssh command for a tunnel is added.
    """

    def facts(dask_scheduler: Any) -> tuple[bool, str, list[tuple[str, int]]]:
        import socket

        server = dask_scheduler.http_server
        listening = [bound.getsockname()[:2] for bound in server._sockets.values()]
        return bool(dask_scheduler.http_application.applications), socket.gethostname(), listening

    # A scheduler without bokeh also serves HTTP, and the link of the client would lead nowhere.
    with contextlib.suppress(Exception):
        draws, host, listening = client.run_on_scheduler(facts)
        if draws and LOOPBACK not in client.scheduler_info()["address"]:
            return way_to_page(host, listening) or str(client.dashboard_link)
        return str(client.dashboard_link) if draws else None
    return None


def way_to_page(host: str, listening: list[tuple[str, int]]) -> str | None:
    """How to open a page that a host shows only on its loopback interface; None if others can open it, too.

    Examples
    --------
    >>> way_to_page("node1", [("127.0.0.1", 8787)])
    'http://127.0.0.1:8787/status on node1 (from elsewhere: ssh -N -L 8787:127.0.0.1:8787 node1)'
    """
    if [address for address, _ in listening] != [LOOPBACK]:
        return None
    port = listening[0][1]
    return f"http://{LOOPBACK}:{port}/status on {host} (from elsewhere: ssh -N -L {port}:{LOOPBACK}:{port} {host})"


def describe(client: Client) -> str:
    """The cluster in one line, such as "2 workers, 2 threads, tcp://127.0.0.1:8786"."""
    info = client.scheduler_info()
    workers = info["workers"].values()
    words = [count(len(workers), "worker"), count(sum(worker["nthreads"] for worker in workers), "thread")]
    link = dashboard_link(client)
    return ", ".join([*words, info["address"], *([f"dashboard {link}"] if link else [])])
