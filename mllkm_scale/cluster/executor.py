"""Dask workers as an executor: a pass is divided into tasks of a few seconds, whose results are returned in order.

Workers may die, even all of them, and others may join: lost tasks are repeated, from files that survive. Every wait is
bounded: if the next range does not arrive within `timeout_s` seconds, a task kills one worker after the other, or the
scheduler does not return, the pass ends with a ClusterError that says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from distributed import Client, Future, KilledWorker

from mllkm_scale.base.executor import Shareable, Tally, Work
from mllkm_scale.base.units import format_bytes
from mllkm_scale.base.version import __version__
from mllkm_scale.cluster.exchange import Exchange, SharedFile, exchange_folder
from mllkm_scale.cluster.task import Done, Pace, do_range
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.errors import BudgetError, ClusterError, MLLKMError

__all__ = ["GONE", "DaskExecutor", "DaskPass", "dask_executor"]

Result = TypeVar("Result")
Value = TypeVar("Value", bound=Shareable)
_POLL_S = 0.2  # between two calls of `poll`
_REFRESH_S = 2.0  # between two requests to the scheduler for its workers
_USABLE = 0.95  # of the limit of a worker: beyond it, dask restarts the worker
_ANSWER_S = 10.0  # for an answer of the scheduler
_FETCH_S = 2.0  # for a finished result; after that, it is requested again with a longer wait
GONE = ("closing", "closed")
"""States of a client that has lost its scheduler."""


class DaskExecutor:
    """The workers of a client.

    Parameters
    ----------
    client : distributed.Client
    folder : path
        Folder for files that all workers can read.
    timeout_s : float
        Longest time to wait for the next range of a pass, even if others arrive meanwhile.
    worker_bytes : callable
        Memory that a worker needs, given its number of threads; a worker with a smaller limit is refused.
    poll : callable
        Called often, and may raise to end a pass.
    notify : callable
        Called with a message when workers are lost or missing.
    """

    remote = True

    def __init__(
        self,
        client: Client,
        folder: Path,
        *,
        timeout_s: float = 300.0,
        worker_bytes: Callable[[int], int] = lambda threads: 0,
        poll: Callable[[], None] = lambda: None,
        notify: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.client, self.folder, self.timeout_s = client, folder, timeout_s
        self.worker_bytes, self.poll, self.notify = worker_bytes, poll, notify
        self.address = str(client.scheduler.address) if client.scheduler is not None else "?"
        self.exchange, self.pace = Exchange(folder), Pace()
        self.threads: dict[str, int] = {}  # of each worker of the scheduler
        self.n_paused = 0  # of these workers
        self._refreshed_s = -_REFRESH_S
        self._busy_s = self._waited_s = 0.0
        self._lost = self._passes = 0
        self._peaks: dict[str, int] = {}

    def share(self, slot: str, value: Value) -> SharedFile[Value]:
        return self.exchange.share(slot, value)

    def place(self, dataset: Dataset) -> Dataset:
        return self.exchange.place(dataset)

    def start(self, work: Work[Result], n_units: int) -> DaskPass[Result]:
        self.refresh_workers()
        self._passes += 1
        ranges = self.pace.cut(type(work).__name__, n_units, work.unit_work, self.n_threads)
        return DaskPass(self, work, ranges, self._passes)

    def tally(self) -> Tally:
        tally = Tally(
            n_workers=len(self.threads),
            n_threads=self.n_threads,
            busy_s=self._busy_s,
            waited_s=self._waited_s,
            lost_workers=self._lost,
            peak_bytes=max(self._peaks.values(), default=0),
        )
        self._busy_s = self._waited_s = 0.0
        self._lost = 0
        return tally

    @property
    def n_threads(self) -> int:
        return sum(self.threads.values())

    def wait_for_workers(self) -> None:
        """Wait until there is a worker; a ClusterError if none joins in time."""
        started = time.monotonic()
        while not self.threads:
            self.refresh_workers(at_once=True)
            if self.threads:
                return
            if self.client.status in GONE:
                raise self.scheduler_lost()
            if time.monotonic() - started > self.timeout_s:
                raise ClusterError(
                    f"no worker has joined the scheduler {self.address} within {self.timeout_s:g} s: start workers, or"
                    " give a longer worker_timeout"
                )
            self.poll()
            time.sleep(_POLL_S)

    def compare_patience(self) -> None:
        """Warn if the scheduler gives up a frozen worker only after the training has stopped waiting for it."""

        def seconds(dask_scheduler: Any) -> float | None:
            ttl: float | None = dask_scheduler.worker_ttl
            return ttl

        try:
            ttl_s = self.client.run_on_scheduler(seconds)
        except Exception:  # waiting for a result will show whether the scheduler is lost
            return
        if not ttl_s or ttl_s >= self.timeout_s:
            when = f"only after {ttl_s:g} s" if ttl_s else "never"
            self.notify(
                f"the scheduler gives up a frozen worker {when}, and the training ends after {self.timeout_s:g} s"
                " (worker_timeout) without a result: start the scheduler with"
                " DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL=60s, and let worker_timeout be longer"
            )

    def refresh_workers(self, at_once: bool = False) -> None:
        """Ask the scheduler for its workers from time to time; refuse workers that are too small, and report lost
        ones."""
        if self.client.status != "running" or (not at_once and time.monotonic() - self._refreshed_s < _REFRESH_S):
            return
        self._refreshed_s = time.monotonic()
        before = self.threads
        client: Any = self.client
        try:
            info = client.sync(client.scheduler.identity, n_workers=-1, callback_timeout=_ANSWER_S)
        except Exception:  # in any case, waiting for a result will show whether the scheduler is lost
            return
        self.threads = {address: worker["nthreads"] for address, worker in info["workers"].items()}
        self.n_paused = sum(worker["status"] == "paused" for worker in info["workers"].values())
        for address in self.threads.keys() - before.keys():
            limit, needed = info["workers"][address]["memory_limit"], self.worker_bytes(self.threads[address])
            if limit and _USABLE * limit < needed:
                raise BudgetError(
                    f"worker {address} has a memory limit of {format_bytes(limit)}, and the plan needs"
                    f" {format_bytes(needed)} for its {self.threads[address]} threads: start it with a larger"
                    " --memory-limit, or with fewer threads"
                )
        if lost := before.keys() - self.threads.keys():
            self._lost += len(lost)
            left = len(self.threads)
            self.notify(f"lost: worker {', '.join(sorted(lost))}; {left} left, their tasks are repeated")

    def add(self, kind: str, unit_work: float, n_units: int, done: Done[Any], waited_s: float) -> None:
        """Count a completed range."""
        self.pace.learn(kind, unit_work * n_units, done.seconds)
        self._busy_s += done.seconds
        self._waited_s += waited_s
        self._peaks[done.worker] = done.peak_bytes

    def scheduler_lost(self) -> ClusterError:
        return ClusterError(f"the scheduler {self.address} is lost: start it again with workers, and resume")


class DaskPass(Generic[Result]):
    """A pass whose tasks were submitted to the scheduler."""

    def __init__(self, executor: DaskExecutor, work: Work[Result], ranges: list[range], number: int) -> None:
        self.executor, self.work, self.ranges, self.number = executor, work, ranges, number
        self.kind = type(work).__name__
        self.busy_s, self._attempt = 0.0, 0
        self._threads = max(1, executor.n_threads)
        self._futures = {i: self._submit(i) for i in range(len(ranges))}  # of the remaining ranges

    @property
    def work_s(self) -> float:
        return self.busy_s / min(self._threads, max(1, len(self.ranges)))

    def __iter__(self) -> Iterator[Result]:
        try:
            for i, units in enumerate(self.ranges):
                started = time.perf_counter()
                done = self._wait(i)
                # Its worker need not keep the result, and it is not repeated if the worker dies.
                self._futures.pop(i).release()
                self.executor.add(self.kind, self.work.unit_work, len(units), done, time.perf_counter() - started)
                self.busy_s += done.seconds
                yield done.result
        finally:
            self.close()

    def close(self) -> None:
        """Cancel the remaining tasks."""
        futures, self._futures = self._futures, {}
        for future in futures.values():
            with suppress(RuntimeError):  # a client that is gone has nothing to take back
                future.release()

    def _submit(self, i: int) -> Future[Any]:
        key = f"{self.kind}-{self.executor.exchange.token}-{self.number}-{self._attempt}-{i}"
        client: Any = self.executor.client
        try:
            future: Future[Any] = client.submit(do_range, self.work, self.ranges[i], __version__, key=key, pure=False)
        except Exception as error:
            raise self.executor.scheduler_lost() from error
        return future

    def _wait(self, i: int) -> Done[Result]:
        """The result of a range, even if its worker dies."""
        deadline, patience_s = time.monotonic() + self.executor.timeout_s, _FETCH_S
        while True:
            outcome = self._fetch(i, deadline, patience_s)
            patience_s *= 2
            if isinstance(outcome, Done):
                return outcome
            if outcome is None or self._futures[i].status != "error":
                self._submit_again(i, deadline)
            elif isinstance(outcome, MLLKMError):
                raise outcome
            else:
                raise self._failure(i, outcome) from outcome

    def _fetch(self, i: int, deadline: float, patience_s: float) -> Done[Result] | Exception | None:
        """The result or the error of a range; None if it is finished, but its result does not arrive.

        A large result takes some time, and must not be requested again too soon. But a scheduler keeps asking a dead
        worker for half a minute, although another worker may have repeated the task.
        """
        client: Any = self.executor.client
        future = self._futures[i]

        async def outcome() -> Done[Result] | Exception:
            try:
                return await future
            except Exception as error:
                return error

        if client.status in GONE:
            raise self.executor.scheduler_lost()
        fetched = asyncio.run_coroutine_threadsafe(outcome(), client.loop.asyncio_loop)
        latest = None
        try:
            while not wait([fetched], timeout=_POLL_S).done:
                self._go_on_waiting(i, deadline)
                if not future.done():
                    latest = None
                elif latest is None:
                    latest = time.monotonic() + patience_s
                elif time.monotonic() > latest:
                    return None
            return fetched.result()
        finally:
            fetched.cancel()

    def _go_on_waiting(self, i: int, deadline: float) -> None:
        self.executor.poll()
        self.executor.refresh_workers()
        late = time.monotonic() > deadline
        if self.executor.client.status in GONE or (late and self.executor.client.status != "running"):
            raise self.executor.scheduler_lost()
        if late:
            paused = f", {self.executor.n_paused} of them paused for lack of memory" if self.executor.n_paused else ""
            raise ClusterError(
                f"{self.work.describe(self.ranges[i])}: no result for {self.executor.timeout_s:g} s;"
                f" {len(self.executor.threads)} workers are at the scheduler {self.executor.address}{paused}:"
                " start workers, or give a longer worker_timeout, and resume"
            )

    def _failure(self, i: int, error: Exception) -> ClusterError:
        """The error for a task without a result."""
        if isinstance(error, KilledWorker):
            # Tasks that were queued on the same workers died with them, and are also suspects.
            suspects = [j for j, future in self._futures.items() if future.status == "error"]
            what = ", or ".join(self.work.describe(self.ranges[j]) for j in suspects)
            return ClusterError(
                f"{what}: {error.allowed_failures + 1} workers died one after the other of this task, the last was"
                f" {error.last_worker.address}: check its log; too little memory is the usual cause"
            )
        return ClusterError(
            f"{self.work.describe(self.ranges[i])} failed on a worker ({type(error).__name__}: {error}): check the"
            " logs of the workers"
        )

    def _submit_again(self, i: int, deadline: float) -> None:
        """Submit a task again: the client may have lost the scheduler, and all tasks with it."""
        while True:
            time.sleep(_POLL_S)
            self._go_on_waiting(i, deadline)
            if self.executor.client.status == "running":
                break
        lost = [j for j, future in self._futures.items() if future.cancelled()]
        if lost:
            self.executor.notify("the scheduler was lost and is back: its tasks are submitted again")
            self._attempt += 1
            self._futures |= {j: self._submit(j) for j in lost}


@contextmanager
def dask_executor(
    client: Client, run_dir: Path | None, scratch_dir: Path | None, **settings: Any
) -> Iterator[DaskExecutor]:
    """The executor, after at least one worker has joined, with the settings of `DaskExecutor`; its folder is removed at
    the end."""
    with exchange_folder(run_dir, scratch_dir) as folder:
        executor = DaskExecutor(client, folder, **settings)
        executor.wait_for_workers()
        executor.compare_patience()
        yield executor
