"""The tasks of a pass: its division into ranges, and the function that runs in a dask worker.

Ranges take a few seconds each, as predicted from earlier passes. A worker runs its range with one BLAS thread, on files
that it opens itself.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic, TypeVar

from mllkm_scale.base.executor import Work
from mllkm_scale.base.memory import keep_memory, peak_bytes
from mllkm_scale.base.threads import one_blas_thread
from mllkm_scale.base.version import __version__
from mllkm_scale.errors import ClusterError

__all__ = ["Done", "Pace", "do_range", "ranges_each", "require_visible", "worker_address"]

TASK_S = 2.0
"""Target length of a range: much longer than the overhead of the scheduler, but a small loss if a worker dies."""

LONGEST_S, MANY = 10.0, 64
"""If a pass has more than this number of ranges per thread, ranges are longer, up to this length, because the training
process collects each one."""

_FIRST_PACE = 5e-10  # seconds per multiply-add, before anything is measured
Result = TypeVar("Result")
_VISIBLE_S = 10.0  # delay until a network file system shows a new file
_RETRY_S = 0.1


class Pace:
    """Measured seconds per multiply-add of each kind of work.

    Examples
    --------
    >>> pace = Pace()
    >>> pace.learn("scan", work=1e9, seconds=1.0)
    >>> pace.cut("scan", n_units=8, unit_work=1e9, threads=2)
    [range(0, 2), range(2, 4), range(4, 6), range(6, 8)]
    """

    def __init__(self) -> None:
        self._paces: dict[str, float] = {}

    def learn(self, kind: str, work: float, seconds: float) -> None:
        """Record the seconds that a thread took for a number of multiply-adds."""
        if work > 0 and seconds > 0:
            self._paces[kind] = seconds / work

    def cut(self, kind: str, n_units: int, unit_work: float, threads: int) -> list[range]:
        """Ranges of nearly equal length, the same number for each thread."""
        total_s = n_units * unit_work * self._paces.get(kind, _FIRST_PACE)
        threads = max(1, threads)
        count = min(n_units, ranges_each(total_s / threads) * threads)
        edges = [-(-n_units * i // count) for i in range(count + 1)] if count else [0]
        return [range(first, last) for first, last in pairwise(edges)]


def ranges_each(thread_s: float) -> int:
    """Number of ranges per thread, for a pass that takes each thread this time.

    >>> [ranges_each(seconds) for seconds in (0.1, 20.0, 500.0, 6000.0)]
    [1, 10, 64, 600]
    """
    each = max(1, round(thread_s / TASK_S))
    return each if each <= MANY else max(MANY, round(thread_s / LONGEST_S))


@dataclass(frozen=True)
class Done(Generic[Result]):
    """The result of a range, and the time and memory it took."""

    result: Result
    seconds: float
    worker: str
    peak_bytes: int


def do_range(work: Work[Result], units: range, version: str) -> Done[Result]:
    """Run these units of the work."""
    worker = worker_address()
    if version != __version__:
        raise ClusterError(
            f"worker {worker} has mllkm-scale {__version__} and the training process has {version}: install the same"
            " version"
        )
    started = time.perf_counter()
    for path in work.paths:
        require_visible(path, worker)
    keep_memory()
    with one_blas_thread():
        result = work(units)
    return Done(result, time.perf_counter() - started, worker, peak_bytes())


def require_visible(path: Path, worker: str) -> None:
    """Wait until a network file system shows a file or folder; a ClusterError if it does not."""
    deadline = time.monotonic() + _VISIBLE_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise ClusterError(
                f"worker {worker} does not see {path}: put the data and the run folder (or scratch_dir) on a file"
                " system that master and workers share, under the same path"
            )
        time.sleep(_RETRY_S)


def worker_address() -> str:
    """The address of the worker that runs the task of this thread."""
    from distributed import get_worker

    worker: Any = get_worker()
    return str(worker.address)
