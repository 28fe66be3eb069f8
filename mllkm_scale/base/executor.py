"""Executors do the passes over samples and kernels: the threads of this process, or dask workers.

A pass is a `Work` over units 0 .. n - 1 of a fixed grid: chunks of rows, blocks of anchors. The executor divides the
units into ranges of its choice, and returns the results of the ranges in order. The combined result does not depend on
the ranges, so its bits do not depend on the executor.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

from mllkm_scale.base.files.archive import read_archive, write_archive
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
        """Approximate multiply-adds of a unit; they set the size of the first ranges."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Files that every member of the executor must see."""

    def __call__(self, units: range) -> Result: ...

    def describe(self, units: range) -> str:
        """A description of these units for messages: "kernels 400 to 799 of the scan"."""


class Shareable(Protocol):
    """A value that can be written to a file, and read from it with the same bits."""

    def save(self, path: str | os.PathLike[str]) -> None: ...

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Any: ...


class Shared(Protocol[ValueOut]):
    """A value that every member of the executor can get; the handle can be pickled without the value."""

    @property
    def paths(self) -> tuple[Path, ...]: ...

    def get(self) -> ValueOut: ...

    def drop(self) -> None:
        """Release the value: nobody needs it any more."""


class Pass(Protocol[Result]):
    """A started pass. Iterate over it to get the results in order, as they arrive; `close` stops it early."""

    def __iter__(self) -> Iterator[Result]: ...
    def close(self) -> None: ...

    @property
    def work_s(self) -> float:
        """Total seconds of the ranges, divided by the number of members that worked in parallel."""


@dataclass(frozen=True)
class Tally:
    """Counts since the last tally: times of waiting, and losses."""

    n_workers: int = 0  # dask workers at last sight; 0 for threads
    n_threads: int = 0  # of these workers
    busy_s: float = 0.0  # in which threads of workers worked, in all
    waited_s: float = 0.0  # in which this process waited for results
    lost_workers: int = 0
    peak_bytes: int = 0  # the largest of any worker over its life


class Executor(Protocol):
    """The interface of executors."""

    @property
    def remote(self) -> bool:
        """Whether a pass continues while this process does something else."""

    @property
    def folder(self) -> Path | None:
        """Folder for files that all members read."""

    def share(self, slot: str, value: Value) -> Shared[Value]:
        """Share a value with all members; a member keeps the last value of each slot."""

    def place(self, dataset: Any) -> Any:
        """The data set in a place where every member can read it."""

    def start(self, work: Work[Result], n_units: int) -> Pass[Result]: ...

    def tally(self) -> Tally:
        """The tally since the last call."""


class PlainArrays:
    """Base class that makes frozen dataclasses of arrays `Shareable`."""

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
        """Do nothing: the value disappears with its last user."""


class ThreadExecutor:
    """The threads of this process; a pass runs while its results are requested.

    `poll` is called after each result, and may raise an exception to stop a pass.
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
    """A pass unit by unit, at most a few units ahead of its reader."""

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
        """Do nothing: units that were not requested have not begun."""
