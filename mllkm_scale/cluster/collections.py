"""Collections of dask as data sets: each block is computed once, and written to a file by the process that has it.

Training reads these files. So the graph of a collection is computed only once, no process holds more than the blocks on
which it works, and the result is the same, bit for bit, as for data in a file.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mllkm_scale.base.files.folders import making_scratch
from mllkm_scale.base.memory import give_back
from mllkm_scale.base.units import format_bytes
from mllkm_scale.cluster.client import current_client, inside_a_task
from mllkm_scale.cluster.task import require_visible, worker_address
from mllkm_scale.data.collections import Collection
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.parts import Part, TableOptions, joined, write_block
from mllkm_scale.data.sources import one_line
from mllkm_scale.errors import BudgetError, ClusterError, DataError, MLLKMError
from mllkm_scale.plan.passes import WORKER_BASE_BYTES

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["stored"]

_COPIES = 4  # of a block: in its graph, while it is written, and in what the allocator keeps
_WAIT_S = 0.5
Written = tuple[Part, Part | None]


@contextmanager
def stored(
    collection: Collection,
    parent: Path | None,
    *,
    client: Client | None = None,
    threads: int = 1,
    room_bytes: int,
    timeout_s: float = 300.0,
    poll: Callable[[], None] = lambda: None,
) -> Iterator[Dataset]:
    """The rows and labels of a collection as a data set in files of `parent`, which are removed at the end.

    Parameters
    ----------
    collection : Collection
    parent : pathlib.Path or None
        The scratch folder, which the workers must see; None for that of the system.
    client : distributed.Client, optional
        Its workers compute and write the blocks; by default those of the active client. Without one, this process does.
    threads : int
        Threads of this process, if blocks are small enough.
    room_bytes : int
        Memory for blocks in this process.
    timeout_s : float
        Longest time to wait without any worker.
    poll : callable
        Called often, and may raise to end the work.
    """
    with _scratch_folder(parent) as folder:
        with _workers(client) as active:
            if active is None:
                written = _written_here(collection, folder, _n_threads(collection, threads, room_bytes), poll)
            else:
                written = _written_by(active, collection, folder, timeout_s, poll)
        give_back()
        labels = collection.labels
        if labels is not None and not isinstance(labels, np.ndarray):
            labels = [part for _, part in written if part is not None]
        yield joined([part for part, _ in written], labels, collection.names)


@contextmanager
def _scratch_folder(parent: Path | None) -> Iterator[Path]:
    """A new folder in the scratch folder, removed at the end."""
    place = Path(tempfile.gettempdir()) if parent is None else parent
    with making_scratch(place):
        place.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="collection-", dir=place)).absolute()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _workers(client: Client | None) -> Iterator[Client | None]:
    """The given client, or the active one; within a task that of its worker, whose thread is released for others."""
    if client is None and inside_a_task():
        from distributed import worker_client

        with worker_client() as own:
            yield own
    else:
        yield current_client() if client is None else client


def _tasks(collection: Collection, folder: Path) -> list[Any]:
    from dask.delayed import delayed

    write, labels = delayed(_write, pure=False), collection.labels
    lazy = [None] * len(collection.blocks) if labels is None or isinstance(labels, np.ndarray) else labels
    return [
        write(rows, own, str(folder), number, collection.n_features, collection.options)
        for number, (rows, own) in enumerate(zip(collection.blocks, lazy, strict=True))
    ]


def _write(rows: Any, labels: Any, folder: str, number: int, width: int, options: TableOptions) -> Written:
    if inside_a_task():
        require_visible(Path(folder), worker_address())
    return write_block(rows, labels, Path(folder), number, width, options)


def _n_threads(collection: Collection, threads: int, room_bytes: int) -> int:
    """Number of threads for which blocks fit into the memory; one if their size is unknown."""
    if collection.block_bytes is None:
        return 1
    needed = _COPIES * collection.block_bytes
    if needed > room_bytes:
        raise BudgetError(
            f"X has blocks of {format_bytes(collection.block_bytes)}, and memory_budget leaves"
            f" {format_bytes(max(0, room_bytes))} for {_COPIES} times a block: give it smaller chunks, such as"
            " X.rechunk({0: 'auto'}), or raise the budget"
        )
    return min(threads, max(1, room_bytes // max(1, needed)))


def _written_here(collection: Collection, folder: Path, threads: int, poll: Callable[[], None]) -> list[Written]:
    from dask.base import compute
    from dask.callbacks import Callback

    how = {"scheduler": "sync"} if threads == 1 else {"scheduler": "threads", "num_workers": threads}
    try:
        with Callback(pretask=lambda *task: poll()):
            return list(compute(*_tasks(collection, folder), **how))
    except (MLLKMError, MemoryError):
        raise
    except Exception as error:  # the graph of the collection may raise anything
        raise _not_computed(error) from error


def _written_by(
    client: Client, collection: Collection, folder: Path, timeout_s: float, poll: Callable[[], None]
) -> list[Written]:
    """Blocks written by the workers of a client, which may join and die, as in a pass."""
    from distributed import KilledWorker, wait

    from mllkm_scale.cluster.executor import GONE, DaskExecutor

    block_bytes = collection.block_bytes or 0
    executor = DaskExecutor(
        client,
        folder,
        timeout_s=timeout_s,
        worker_bytes=lambda threads: WORKER_BASE_BYTES + threads * _COPIES * block_bytes,
        poll=poll,
    )
    executor.wait_for_workers()
    futures: Any = client.compute(_tasks(collection, folder))
    under_way, seen = list(futures), time.monotonic()
    try:
        while under_way:
            executor.poll()
            executor.refresh_workers()
            seen = time.monotonic() if executor.threads else seen
            if client.status in GONE:
                raise executor.scheduler_lost()
            if time.monotonic() - seen > timeout_s:
                raise ClusterError(
                    f"no worker is at the scheduler {executor.address} for {timeout_s:g} s: start workers, or give a"
                    " longer worker_timeout"
                )
            with suppress(TimeoutError):
                wait(under_way, timeout=_WAIT_S, return_when="FIRST_COMPLETED")
            failed = next((future for future in under_way if future.status in ("error", "cancelled")), None)
            if failed is not None:
                error = failed.exception(timeout=timeout_s)
                if isinstance(error, MLLKMError):
                    raise error
                if isinstance(error, KilledWorker):
                    raise ClusterError(
                        f"a block of X has killed {error.allowed_failures + 1} workers: too little memory is the usual"
                        " cause; give it smaller chunks or partitions"
                    ) from error
                raise _not_computed(error) from error
            under_way = [future for future in under_way if not future.done()]
        written: list[Written] = client.gather(futures)
        return written
    finally:
        with suppress(RuntimeError):  # a closed client has nothing to cancel
            for future in futures:
                future.release()


def _not_computed(error: BaseException) -> DataError:
    return DataError(f"a block of X or y cannot be computed ({type(error).__name__}: {one_line(error)}): correct it")
