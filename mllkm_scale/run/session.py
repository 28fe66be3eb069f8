"""The resources of a training run, a path or a stream: seed, listeners, threads, executor, and time."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
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
    """Training and test rows of features, the steps that made them from a table or from many columns, and their
    plan."""

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
    """The rows of a training run, and the plan of their memory; `stack` closes files with reduced rows."""
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


class Clock:
    """The seconds of a training run, including those before an interruption, and its limit."""

    def __init__(self, limit_s: float | None) -> None:
        self.limit_s, self.before_s, self._started = limit_s, 0.0, time.perf_counter()

    def elapsed_s(self) -> float:
        return self.before_s + time.perf_counter() - self._started

    def is_over(self) -> bool:
        """Whether the time limit is reached."""
        return self.limit_s is not None and self.elapsed_s() >= self.limit_s

    def left_s(self) -> float | None:
        """Seconds until the limit, at least 0; None without a limit."""
        return None if self.limit_s is None else max(0.0, self.limit_s - self.elapsed_s())


@dataclass(frozen=True)
class Resources:
    """The memory, the processors, the time and the listener of a training run.

    `poll` is called often during the work, and raises if the user wants to stop.
    """

    plan: Plan
    threads: Threads
    executor: Executor
    listener: Listener = _silent
    poll: Callable[[], None] = _nothing
    clock: Clock = field(default_factory=lambda: Clock(None))

    @classmethod
    def of(cls, plan: Plan, threads: Threads) -> Resources:
        """The resources of this process only, without a listener."""
        return cls(plan, threads, ThreadExecutor(threads))

    def quiet(self) -> Resources:
        """The same resources without a listener and without a time limit."""
        return replace(self, listener=_silent, clock=Clock(None))

    def single(self) -> Resources:
        """One thread, for one of several small training runs at the same time."""
        own = Threads()
        return replace(self.quiet(), threads=own, executor=ThreadExecutor(own, self.poll))


def seeded(params: Params, resumed: Callable[[], int] | None = None) -> Params:
    """The parameters with a seed: the given one, that of the resumed run, or a random one.

    >>> seeded(Params(random_state=3)).random_state, seeded(Params(random_state=None), lambda: 7).random_state
    (3, 7)
    """
    if params.random_state is not None:
        return params
    return replace(params, random_state=secrets.randbits(63) if resumed is None else resumed())


def listeners_of(params: Params, listener: Listener | None, record: Listener | None = None) -> Listener:
    """One listener for that of the caller, for lines on stderr if `verbose`, and for the record."""
    return broadcast(listener, PlainProgress() if params.verbose else None, record)


@contextmanager
def working_threads(params: Params) -> Iterator[Threads]:
    """Context with threads, in which BLAS uses one thread for each."""
    with one_blas_thread(), Threads(n_threads(params.n_jobs)) as threads:
        yield threads
