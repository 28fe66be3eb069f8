"""A few threads that work on independent tasks of a fixed grid, with results in the order of the tasks.

Each task uses one BLAS thread (`one_blas_thread`), and the grid does not depend on the number of threads; nor do the
bits, then.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from threadpoolctl import ThreadpoolController

__all__ = ["Threads", "n_threads", "one_blas_thread"]

Task = TypeVar("Task")
Result = TypeVar("Result")

_lock = threading.Lock()
_limit: Any = None
_inside = 0
_libraries: tuple[int, ThreadpoolController] | None = None


def n_threads(n_jobs: int | None) -> int:
    """Threads that `n_jobs` means: None is 1, and negative numbers count back from the number of cores."""
    if n_jobs is None:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, n_jobs if n_jobs > 0 else cores + 1 + n_jobs)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Context in which BLAS runs on the thread that calls it.

    The limit is one of the whole process: the first to enter sets it, and the last to leave takes it back.
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


class Threads:
    """`size` threads; a single one runs its tasks where it is called."""

    def __init__(self, size: int = 1) -> None:
        self.size = size
        self._pool = ThreadPoolExecutor(size) if size > 1 else None

    def map(self, work: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Results in the order of the tasks; at most twice as many as there are threads are under way.

        When one fails, or no more results are wanted, those under way end before this does.
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
        """All results, when all tasks are done."""
        return list(self.map(work, tasks))

    @contextmanager
    def at_most(self, size: int) -> Iterator[Threads]:
        """Context with these threads, or with `size` of their own if they are more."""
        if self.size <= size:
            yield self
            return
        with Threads(size) as smaller:
            yield smaller

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
