"""The exchange: a folder to which the training process writes, and from which the workers read.

The data of a round (support and duals, local predictors) are files with unique names. A worker reads a file once, and
keeps the value until the next one of its slot arrives. A worker that takes over a task reads the file again, so the
death of a worker loses no data.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import h5py

from mllkm_scale.base.executor import Shareable
from mllkm_scale.base.files.folders import making_scratch, writing_scratch
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.hdf5_source import HDF5Source

__all__ = ["FOLDER", "Exchange", "SharedFile", "exchange_folder"]

FOLDER = "exchange"  # within a run folder
Value = TypeVar("Value", bound=Shareable)

_kept: dict[str, tuple[Path, Any]] = {}  # the last value of each slot in this process
_locks: dict[str, threading.Lock] = {}
_lock = threading.Lock()


@dataclass(frozen=True)
class SharedFile(Generic[Value]):
    """A value in a file of the exchange; only its path is pickled."""

    path: Path
    slot: str
    kind: type[Value]

    @property
    def paths(self) -> tuple[Path, ...]:
        return (self.path,)

    def get(self) -> Value:
        with _lock:
            lock = _locks.setdefault(self.slot, threading.Lock())
        with lock:  # one thread of a worker reads, and the others wait
            kept = _kept.get(self.slot)
            if kept is None or kept[0] != self.path:
                _kept.pop(self.slot, None)
                del kept  # never two values of a slot in memory
                kept = _kept[self.slot] = (self.path, self.kind.load(self.path))
            value: Value = kept[1]
            return value

    def drop(self) -> None:
        self.path.unlink(missing_ok=True)


class Exchange:
    """The folder, as used by the training process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.token = secrets.token_hex(4)  # a worker may still keep a file of an earlier training run
        self._count = 0

    def share(self, slot: str, value: Value) -> SharedFile[Value]:
        """Write a value under a new name."""
        path = self._new_name(slot, "npz")
        value.save(path)
        return SharedFile(path, slot, type(value))

    def place(self, dataset: Dataset) -> Dataset:
        """The data set itself if it is on disk, and otherwise a copy of its rows in the folder."""
        if dataset.path is not None:
            return dataset
        path = self._new_name("rows", "h5")
        with writing_scratch(self.folder), h5py.File(path, "w") as file:
            stored = file.create_dataset("X", (dataset.n_rows, dataset.n_features), dataset.work_dtype)
            for start, chunk in dataset.chunks():
                stored[start : start + len(chunk)] = chunk
                file.flush()  # on a full disk, HDF5 would crash while closing the file
        return Dataset(HDF5Source(path, "X"), None, path=path, chunk_rows=dataset.chunk_rows)

    def _new_name(self, stem: str, suffix: str) -> Path:
        self._count += 1
        return self.folder / f"{stem}-{self.token}-{self._count:06d}.{suffix}"


@contextmanager
def exchange_folder(run_dir: Path | None, scratch_dir: Path | None) -> Iterator[Path]:
    """The exchange folder of a training run, removed at its end: in the run folder, or else in the scratch folder.

    Files of a killed training run are removed first; the lock of the run folder ensures that it is dead.
    """
    parent = run_dir or scratch_dir or Path(tempfile.gettempdir())
    with making_scratch(parent):
        parent.mkdir(parents=True, exist_ok=True)
        if run_dir is None:
            folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER}-", dir=parent))
        else:
            folder = run_dir / FOLDER
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
    try:
        yield folder.absolute()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
