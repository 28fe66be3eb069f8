"""Who does the passes over samples and kernels: the threads of this process, or dask workers.

A pass is a `Work` over units 0 .. n - 1 of a fixed grid: chunks of rows, blocks of anchors. The executor cuts the units
into ranges as suits it, and hands the results of the ranges over in order. What the ranges give, put together, does
not depend on how the units were cut; nor do the bits, then, depend on who did the work.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

from mllkm_scale.base.archive import read_archive, write_archive
from mllkm_scale.base.threads import Threads
from mllkm_scale.errors import ClusterError

__all__ = ["Executor", "Pass", "PlainArrays", "Shareable", "Shared", "SharedValue", "Tally", "ThreadExecutor", "Work"]

Result = TypeVar("Result", covariant=True)
Value = TypeVar("Value", bound="Shareable")
ValueOut = TypeVar("ValueOut", covariant=True)


class Work(Protocol[Result]):
    """A pass as a function of a range of its units; it can be pickled, and what it holds is small."""

    @property
    def unit_work(self) -> float:
        """About how many multiply-adds a unit takes; from it the first ranges are sized."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Files that whoever does the work must see."""

    def __call__(self, units: range) -> Result: ...

    def describe(self, units: range) -> str:
        """What these units are, for messages: "kernels 400 to 799 of the scan"."""


class Shareable(Protocol):
    """A value that can be written to a file, and read from it with the same bits."""

    def save(self, path: str | os.PathLike[str]) -> None: ...

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Any: ...


class Shared(Protocol[ValueOut]):
    """A value that every member of the executor can get; it can be pickled without the value itself."""

    @property
    def paths(self) -> tuple[Path, ...]: ...

    def get(self) -> ValueOut: ...

    def drop(self) -> None:
        """Nobody needs it any more."""


class Pass(Protocol[Result]):
    """A pass that was started: iterate to get the results in order, as they come; `close` ends it early."""

    def __iter__(self) -> Iterator[Result]: ...
    def close(self) -> None: ...

    @property
    def work_s(self) -> float:
        """Seconds that the ranges took, divided among those who worked at once."""


@dataclass(frozen=True)
class Tally:
    """What happened since the last tally: who waited for whom, and what was lost."""

    n_workers: int = 0  # dask workers at last sight; 0 for threads
    n_threads: int = 0  # of these workers
    busy_s: float = 0.0  # in which threads of workers worked, in all
    waited_s: float = 0.0  # in which this process waited for results
    lost_workers: int = 0
    peak_bytes: int = 0  # the largest of any worker over its life


class Executor(Protocol):
    """The doers of passes."""

    @property
    def remote(self) -> bool:
        """Whether a pass goes on while this process does something else."""

    @property
    def folder(self) -> Path | None:
        """Where files are put that all members read."""

    def share(self, slot: str, value: Value) -> Shared[Value]:
        """Make a value known to all; a member keeps the last value of each slot."""

    def place(self, dataset: Any) -> Any:
        """The data set where every member can read it."""

    def start(self, work: Work[Result], n_units: int) -> Pass[Result]: ...

    def tally(self) -> Tally:
        """Sums since the last call."""


class PlainArrays:
    """Base of frozen dataclasses whose fields are arrays, which makes them `Shareable`."""

    def save(self, path: str | os.PathLike[str]) -> None:
        arrays = {spec.name: np.asarray(getattr(self, spec.name)) for spec in fields(self)}  # type: ignore[arg-type]
        write_archive(path, kind=type(self).__name__, version=1, header={}, arrays=arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        _, arrays = read_archive(path, kind=cls.__name__, version=1, error=ClusterError)
        return cls(**arrays)


@dataclass(frozen=True)
class SharedValue(Generic[ValueOut]):
    """A value shared within one process."""

    value: ValueOut
    paths: tuple[Path, ...] = ()

    def get(self) -> ValueOut:
        return self.value

    def drop(self) -> None:
        """Do nothing: the value goes with its last user."""


class ThreadExecutor:
    """The threads of this process; a pass runs while its results are asked for.

    `poll` is called after each result, and may raise to end a pass.
    """

    remote = False
    folder = None

    def __init__(self, threads: Threads | None = None, poll: Callable[[], None] = lambda: None) -> None:
        self.threads, self.poll = threads or Threads(), poll

    def share(self, slot: str, value: Value) -> SharedValue[Value]:
        return SharedValue(value)

    def place(self, dataset: Any) -> Any:
        return dataset

    def start(self, work: Work[Result], n_units: int) -> ThreadPass[Result]:
        return ThreadPass(self, work, n_units)

    def tally(self) -> Tally:
        return Tally()


class ThreadPass(Generic[Result]):
    """A pass unit by unit, at most a few ahead of whoever asks."""

    def __init__(self, executor: ThreadExecutor, work: Work[Result], n_units: int) -> None:
        self.executor, self.work, self.n_units = executor, work, n_units
        self.work_s = 0.0

    def __iter__(self) -> Iterator[Result]:
        started = time.perf_counter()
        for result in self.executor.threads.map(self.work, (range(unit, unit + 1) for unit in range(self.n_units))):
            self.executor.poll()
            yield result
        self.work_s = time.perf_counter() - started

    def close(self) -> None:
        """Do nothing: what was not asked for has not begun."""
