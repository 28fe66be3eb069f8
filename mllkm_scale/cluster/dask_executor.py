"""The workers of a client as the executor of a training or a prediction, with a folder for what they share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mllkm_scale.cluster.exchange import exchange_folder
from mllkm_scale.cluster.executor import DaskExecutor

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["dask_executor"]


@contextmanager
def dask_executor(
    client: Client, run_dir: Path | None, scratch_dir: Path | None, **settings: Any
) -> Iterator[DaskExecutor]:
    """The executor once a worker is there, with the settings of `DaskExecutor`; its folder is removed at the end."""
    with exchange_folder(run_dir, scratch_dir) as folder:
        executor = DaskExecutor(client, folder, **settings)
        executor.wait_for_workers()
        yield executor
