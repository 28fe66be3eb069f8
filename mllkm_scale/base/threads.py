"""Threads that work on independent tasks of a fixed grid, with results in the order of the tasks.

Each task uses one BLAS thread (`one_blas_thread`), and the grid does not depend on the number of threads. So the bits
do not depend on it either.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from mllkm_scale.base.closing import Closing

__all__ = ["Threads", "n_threads", "one_blas_thread"]

Task = TypeVar("Task")
Result = TypeVar("Result")

_lock = threading.Lock()
_limit: Any = None
_inside = 0
_libraries: tuple[int, ThreadpoolController] | None = None


def n_threads(n_jobs: int | None) -> int:
    """Number of threads for `n_jobs`: None means 1, and negative numbers count back from the number of cores."""
    if n_jobs is None:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, n_jobs if n_jobs > 0 else cores + 1 + n_jobs)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Context in which BLAS runs on the calling thread only.

    The limit holds for the whole process: the first context to enter sets it, and the last one to leave removes it.
    """
    global _limit, _inside
    with _lock:
        if _inside == 0:
            _limit = _loaded_libraries().limit(limits=1, user_api="blas")
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _limit.restore_original_limits()


def _loaded_libraries() -> ThreadpoolController:
    """The libraries with threads of their own: finding them takes milliseconds, so that is done after imports only."""
    global _libraries
    n_modules = len(sys.modules)
    if _libraries is None or _libraries[0] != n_modules:
        _libraries = n_modules, ThreadpoolController()
    return _libraries[1]


class Threads(Closing):
    """A pool of `size` threads; a single thread runs its tasks in the caller."""

    def __init__(self, size: int = 1) -> None:
        self.size = size
        self._pool = ThreadPoolExecutor(size) if size > 1 else None

    def map(self, work: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Yield the results in the order of the tasks, with at most two tasks per thread in progress.

        If a task fails, or the caller stops iterating, this waits for the tasks in progress.
        """
        if self._pool is None:
            yield from map(work, tasks)
            return
        waiting: deque[Future[Result]] = deque()
        try:
            for task in tasks:
                waiting.append(self._pool.submit(work, task))
                if len(waiting) >= 2 * self.size:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
            wait(waiting)

    def run(self, work: Callable[[Task], Result], tasks: Iterable[Task]) -> list[Result]:
        """Return all results when all tasks are done."""
        return list(self.map(work, tasks))

    @contextmanager
    def at_most(self, size: int) -> Iterator[Threads]:
        """Context with these threads, or with a new pool of `size` threads if there are more."""
        if self.size <= size:
            yield self
            return
        with Threads(size) as smaller:
            yield smaller

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
