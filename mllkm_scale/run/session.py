"""What a training, a path and a stream work with: a seed that is fixed, listeners, threads, an executor, and time."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from mllkm_scale.base.events import Event, Listener
from mllkm_scale.base.executor import Executor, ThreadExecutor
from mllkm_scale.base.threads import Threads, n_threads, one_blas_thread
from mllkm_scale.data import Dataset
from mllkm_scale.data.first_step import FirstStep, training_rows
from mllkm_scale.data.preparation.prepared import require_writable
from mllkm_scale.params import Params
from mllkm_scale.plan.training import Plan, make_plan
from mllkm_scale.run.progress.listeners import PlainProgress, broadcast

__all__ = ["Clock", "PlannedRows", "Resources", "listeners_of", "planned_rows", "seeded", "working_threads"]


@dataclass(frozen=True)
class PlannedRows:
    """Rows of features to train on and to test on, what makes them of a table or of many columns, and their plan."""

    dataset: Dataset
    test: Dataset | None
    step: FirstStep | None
    plan: Plan


def planned_rows(
    dataset: Dataset,
    test: Dataset | None,
    params: Params,
    stack: ExitStack,
    run_dir: str | Path | None = None,
    held_bytes: int = 0,
) -> PlannedRows:
    """The rows of a training, and the plan of their memory; files with reduced rows are closed by `stack`."""
    scratch = params.scratch_dir if params.scratch_dir is not None else run_dir
    dataset, test, step = training_rows(
        dataset,
        test,
        params.budget_bytes,
        stack,
        reduction=params.reduction,
        seed=params.random_state or 0,
        scratch_dir=None if scratch is None else Path(scratch),
    )
    plan = make_plan(dataset, params, held_bytes)
    if params.scratch_dir is not None:
        require_writable(Path(params.scratch_dir))
    return PlannedRows(dataset, test, step, plan)


def _silent(event: Event) -> None:
    pass


def _nothing() -> None:
    pass


def _never() -> bool:
    return False


@dataclass(frozen=True)
class Resources:
    """The memory, the processors, the time and the listener of a training.

    `poll` is called often while work is under way, and raises when the user wants to stop. `out_of_time` is asked
    between two steps.
    """

    plan: Plan
    threads: Threads
    executor: Executor
    listener: Listener = _silent
    poll: Callable[[], None] = _nothing
    out_of_time: Callable[[], bool] = _never

    @classmethod
    def of(cls, plan: Plan, threads: Threads) -> Resources:
        """Those of this process alone; nobody listens."""
        return cls(plan, threads, ThreadExecutor(threads))

    def quiet(self) -> Resources:
        """The same for a training that nobody listens to, and that has no time limit."""
        return replace(self, listener=_silent, out_of_time=_never)

    def single(self) -> Resources:
        """One thread, for one of several small trainings at a time."""
        own = Threads()
        return replace(self.quiet(), threads=own, executor=ThreadExecutor(own, self.poll))


class Clock:
    """The seconds of a training, those before it was interrupted included, and its limit."""

    def __init__(self, limit_s: float | None) -> None:
        self.limit_s, self.before_s, self._started = limit_s, 0.0, time.perf_counter()

    def elapsed_s(self) -> float:
        return self.before_s + time.perf_counter() - self._started

    def is_over(self) -> bool:
        """Whether the limit is reached."""
        return self.limit_s is not None and self.elapsed_s() >= self.limit_s


def seeded(params: Params, resumed: Callable[[], int] | None = None) -> Params:
    """The parameters with a seed: the given one, or that of the work that is resumed, or a fresh one.

    >>> seeded(Params(random_state=3)).random_state, seeded(Params(random_state=None), lambda: 7).random_state
    (3, 7)
    """
    if params.random_state is not None:
        return params
    return replace(params, random_state=secrets.randbits(63) if resumed is None else resumed())


def listeners_of(params: Params, listener: Listener | None, record: Listener | None = None) -> Listener:
    """One listener for the caller's, for lines on stderr if the parameters ask for them, and for the record."""
    return broadcast(listener, PlainProgress() if params.verbose else None, record)


@contextmanager
def working_threads(params: Params) -> Iterator[Threads]:
    """The threads of a block, in which BLAS has one for each."""
    with one_blas_thread(), Threads(n_threads(params.n_jobs)) as threads:
        yield threads
