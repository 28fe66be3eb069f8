"""The client that is active where a training is called, if there is one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["current_client"]


def current_client() -> Client | None:
    """The active dask client; None without one, and within a task of a worker.

    A training that runs as a task (of a grid search, say) must not wait for tasks of its own cluster: the worker's
    thread that waits is the one that they need.
    """
    if "distributed" not in sys.modules:
        return None
    from distributed import default_client, get_worker

    try:
        get_worker()
        return None
    except ValueError:
        pass
    try:
        return default_client()
    except ValueError:
        return None
