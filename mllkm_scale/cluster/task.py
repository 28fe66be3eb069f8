"""What runs in a dask worker: a range of a pass, with one BLAS thread, on files that the worker opens itself."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from mllkm_scale.base.allocator import keep_memory
from mllkm_scale.base.executor import Work
from mllkm_scale.base.memory import peak_bytes
from mllkm_scale.base.threads import one_blas_thread
from mllkm_scale.base.version import __version__
from mllkm_scale.errors import ClusterError

__all__ = ["Done", "do_range"]

Result = TypeVar("Result")

_SIGHT_S = 10.0  # that a network file system may take to show a new file
_LOOK_S = 0.1


@dataclass(frozen=True)
class Done(Generic[Result]):
    """What a range gave, and what it took."""

    result: Result
    seconds: float
    worker: str
    peak_bytes: int


def do_range(work: Work[Result], units: range, version: str) -> Done[Result]:
    """Do these units of the work."""
    worker = _address()
    if version != __version__:
        raise ClusterError(
            f"worker {worker} has mllkm-scale {__version__} and the master {version}: install the same version"
        )
    started = time.perf_counter()
    for path in work.paths:
        _require_sight(path, worker)
    keep_memory()
    with one_blas_thread():
        result = work(units)
    return Done(result, time.perf_counter() - started, worker, peak_bytes())


def _require_sight(path: Path, worker: str) -> None:
    deadline = time.monotonic() + _SIGHT_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise ClusterError(
                f"worker {worker} does not see {path}: put the data and the run folder (or scratch_dir) on a file"
                " system that master and workers share, under the same path"
            )
        time.sleep(_LOOK_S)


def _address() -> str:
    from distributed import get_worker

    worker: Any = get_worker()
    return str(worker.address)
