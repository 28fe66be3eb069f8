"""A cluster on this machine: a scheduler in this process, and worker processes, all on 127.0.0.1.

They communicate by TLS, because other users of the machine can reach the loopback interface.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mllkm_scale.cluster.certificates import temporary_security
from mllkm_scale.cluster.settings import (
    BLAS_THREADS,
    LOOPBACK,
    SCHEDULER_SETTINGS,
    WORKER_SETTINGS,
    Patience,
    close,
    dashboard_of,
    reason,
    silence,
)
from mllkm_scale.errors import ClusterError
from mllkm_scale.run.job.cluster import ClusterSpec

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["dask_setup", "open_local", "refuse_imported_main"]


def dask_setup(worker: Any) -> None:
    """Called by dask in each worker process started by `open_local`.

    Ctrl-C reaches every process of a terminal. The training process then ends at the next safe point, for which it
    still needs its workers; they end with it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def open_local(spec: ClusterSpec, memory_budget: int, patience: Patience, opened: ExitStack) -> Client:
    import dask
    from distributed import Client, LocalCluster

    _require_file_of_main()
    settings: dict[str, Any] = WORKER_SETTINGS | SCHEDULER_SETTINGS
    settings |= {f"distributed.nanny.pre-spawn-environ.{name}": 1 for name in BLAS_THREADS}
    address, dashboard = dashboard_of(spec)
    others = set(multiprocessing.active_children())
    try:
        with _single_threaded_environment(), silence(), dask.config.set(settings):
            cluster = LocalCluster(
                n_workers=spec.workers,
                threads_per_worker=spec.threads_per_worker,
                processes=True,
                host=LOOPBACK,
                security=temporary_security(),
                memory_limit=memory_budget,
                local_directory=spec.local_directory,
                dashboard_address=address,
                scheduler_kwargs={"dashboard": dashboard},
                silence_logs=logging.ERROR,
                env={"NUMBA_NUM_THREADS": "1"},
                config=WORKER_SETTINGS,  # for workers that are restarted after the block of `settings`
                preload=[__name__],  # for dask_setup
                death_timeout=patience.left_s,
            )
    except (OSError, RuntimeError, ValueError, AssertionError) as error:
        for process in set(multiprocessing.active_children()) - others:
            process.kill()  # otherwise a frozen worker would delay the end of this process
        if patience.is_over:
            raise ClusterError(
                f"not all of the {spec.workers} worker processes have started after"
                f" {patience.total_s:.0f} s: ask for fewer, or wait longer (worker_timeout)"
            ) from error
        raise ClusterError(
            f"the worker processes could not be started on this machine ({reason(error)}): a script that trains must"
            " do so under `if __name__ == '__main__':`, for each worker imports it; otherwise ask for fewer workers, or"
            " train without"
        ) from error
    opened.callback(close, cluster)
    client = Client(cluster, timeout=patience.left_s)
    opened.callback(close, client)
    return client


def refuse_imported_main() -> None:
    # A worker process imports the main program. If that opens a cluster outside `if __name__ == "__main__"`, this code
    # runs again in the worker; the message of the training process, whose worker then fails, follows this one.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SystemExit(
            "mllkm-scale: a worker process reached the start of the training while it imported the main program: put"
            " the training under `if __name__ == '__main__':`"
        )


def _require_file_of_main() -> None:
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if getattr(main, "__spec__", None) is None and file is not None and not Path(file).exists():
        raise ClusterError(f"the workers import the main program, which is {file}: write it to a file, and run that")


@contextmanager
def _single_threaded_environment() -> Iterator[None]:
    """Context in which started processes use one BLAS thread, independent of the user's environment."""
    before = dict(os.environ)
    os.environ.update(dict.fromkeys(BLAS_THREADS, "1"))
    try:
        yield
    finally:  # dask has added variables
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if os.environ.get(name) != value})
