"""The active dask client, and a record of the work of its workers.

The record is dask's performance report, one HTML file to open in a browser.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from mllkm_scale.errors import ParameterError

if TYPE_CHECKING:
    from distributed import Client

import sys

__all__ = ["current_client", "inside_a_task", "memory_limit", "performance_report"]

LOGGER = logging.getLogger("mllkm_scale")
WRITE_S = 60.0
INSTALL = 'pip install "mllkm-scale[dashboard]"'


def current_client() -> Client | None:
    """The active dask client; None without one, and within a task of a worker.

    A training run that runs as a task (of a grid search, say) must not wait for tasks of its own cluster: the waiting
    thread is the one that these tasks need.
    """
    if "distributed" not in sys.modules or inside_a_task():
        return None
    from distributed import default_client

    try:
        return default_client()
    except ValueError:
        return None


def inside_a_task() -> bool:
    """Whether this thread runs a task of a worker."""
    if "distributed" not in sys.modules:
        return False
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return False
    return True


@contextmanager
def performance_report(client: Client | None, path: Path | None) -> Iterator[None]:
    """Record the block, and write the report when it ends, also after an error.

    Impossible requests are refused before the block. If the report cannot be written after it, there is only a warning
    in the log, so that the result of the block is not lost.

    Parameters
    ----------
    client : distributed.Client or None
        The cluster.
    path : pathlib.Path or None
        The file; None for no report.

    Raises
    ------
    ParameterError
        If there is no cluster to report on, no bokeh to draw with, or no folder to write to.

    Examples
    --------
    >>> with performance_report(None, None):
    ...     pass
    """
    if path is None:
        yield
        return
    _check(client, path)
    assert client is not None
    from distributed import performance_report as recorder

    report = recorder(filename=str(path), mode="inline")  # inline: it opens without internet access
    started = False
    try:
        with client.as_current():
            client.sync(report.__aenter__, callback_timeout=WRITE_S)
        started = True
    except Exception as error:
        _warn(path, error)
    try:
        yield
    finally:
        if started:
            try:
                with client.as_current():
                    client.sync(report.__aexit__, None, None, None, code="", callback_timeout=WRITE_S)
            except Exception as error:
                _warn(path, error)


def _check(client: Client | None, path: Path) -> None:
    if client is None:
        raise ParameterError(
            f"the performance report {path} needs a cluster: train with --workers, --scheduler or --scheduler-file,"
            " or leave the report out"
        )
    if find_spec("bokeh") is None:
        raise ParameterError(f"the performance report {path} is drawn by bokeh: {INSTALL}")
    if not path.absolute().parent.is_dir():
        raise ParameterError(f"the performance report {path} has no folder: make {path.absolute().parent} first")
    if path.is_dir():
        raise ParameterError(f"the performance report {path} is a folder: name a file, such as {path / 'report.html'}")
    if not _scheduler_draws(client):
        raise ParameterError(
            f"the performance report {path} is drawn by the scheduler, which has no bokeh: {INSTALL} where it runs"
        )


def _scheduler_draws(client: Client) -> bool:
    def has_bokeh() -> bool:
        from importlib.util import find_spec

        return find_spec("bokeh") is not None

    return bool(client.run_on_scheduler(has_bokeh))


def _warn(path: Path, error: Exception) -> None:
    LOGGER.warning(
        "the performance report %s was not written (%s); the training is not affected",
        path,
        " ".join(str(error).split()) or type(error).__name__,
    )


def memory_limit() -> int:
    """Memory limit of this process in bytes, as dask determines it, including limits of containers."""
    from distributed import system

    return int(system.memory_limit())
