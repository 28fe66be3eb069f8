"""The transformed data as a data set, made once before training, in memory or on disk."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.executor import Executor, ThreadExecutor
from mllkm_scale.base.files.folders import new_scratch_file, require_room, writing_scratch
from mllkm_scale.base.threads import one_blas_thread
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.hdf5_source import HDF5Source
from mllkm_scale.data.preparation.preprocessing import Preprocessor
from mllkm_scale.data.preparation.written_rows import rows_of_workers
from mllkm_scale.data.sources import ArraySource

__all__ = ["prepare", "require_writable", "stored_rows"]


def prepare(
    dataset: Dataset,
    preprocessor: Preprocessor,
    *,
    in_memory: bool,
    scratch_dir: Path | None = None,
    executor: Executor | None = None,
) -> Dataset:
    """Transform a data set once, chunk by chunk.

    All forms have the same bits: the transform always runs over the chunks of `dataset`, with one BLAS thread each. The
    labels are those of `dataset`. The grid of the result depends on its width.

    Parameters
    ----------
    dataset : Dataset
    preprocessor : Preprocessor
    in_memory : bool
        Keep the result as an array; otherwise as an HDF5 file in `scratch_dir`, removed when the result is
        closed, collected, or the process ends. Copies in other processes read the file and leave it there.
    scratch_dir : pathlib.Path, optional
        Made if missing; the system's folder for temporary files by default.
    executor : Executor, optional
        Runs the transform. Workers write their own files to the folder of the executor; rows transformed by threads of
        this process are written in the order of the chunks.

    Raises
    ------
    ScratchError
        If the folder cannot be written, or is full.

    Examples
    --------
    >>> data = Dataset.from_arrays([[0.0], [2.0]], [0, 1])
    >>> ready = prepare(data, Preprocessor.fit(data), in_memory=True)
    >>> ready.chunk(0).tolist(), ready.labels().tolist()
    ([[-1.0], [1.0]], [0, 1])
    """
    if executor is not None and executor.remote and executor.folder is not None:
        written = rows_of_workers(dataset, preprocessor, executor.folder, executor)
        labels, weights = dataset.label_source, dataset.weight_source
        ready = Dataset(written, labels, weights=weights, path=executor.folder)
        ready.remove_on_close(weakref.finalize(ready, _remove, written.files, os.getpid()))
        return ready
    rows = _transformed(dataset, preprocessor, executor or ThreadExecutor())
    shape = (dataset.n_rows, preprocessor.n_features_out)
    return stored_rows(rows, shape, dataset.work_dtype, dataset, in_memory=in_memory, scratch_dir=scratch_dir)


def stored_rows(
    rows: Iterator[tuple[int, NDArray[Any]]],
    shape: tuple[int, int],
    dtype: np.dtype[Any],
    dataset: Dataset,
    *,
    in_memory: bool,
    scratch_dir: Path | None = None,
) -> Dataset:
    """Rows made block by block from those of a data set, with its labels; see `prepare`."""
    if in_memory:
        values = np.empty(shape, dtype=dtype)
        for start, block in rows:
            values[start : start + len(block)] = block
        source = ArraySource(values, f"prepared {dataset.name}")
        return Dataset(source, dataset.label_source, weights=dataset.weight_source)

    folder = Path(tempfile.gettempdir() if scratch_dir is None else scratch_dir).absolute()
    path = new_scratch_file(folder, "prepared", ".h5")
    try:
        require_room(folder, shape[0] * shape[1] * dtype.itemsize, "the transformed data needs")
        _write(path, shape, dtype, rows)
        ready = Dataset(HDF5Source(path, "X"), dataset.label_source, weights=dataset.weight_source, path=path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    ready.remove_on_close(weakref.finalize(ready, _remove, [path], os.getpid()))
    return ready


def require_writable(folder: Path) -> None:
    """Make the scratch folder if it is missing; a ScratchError if nothing can be written to it."""
    new_scratch_file(folder.absolute(), "prepared", ".h5").unlink()


@dataclass(frozen=True)
class TransformWork:
    """Prepares chunks of a data set."""

    dataset: Dataset
    preprocessor: Preprocessor

    @property
    def unit_work(self) -> float:
        return float(self.dataset.chunk_rows * self.preprocessor.width * (10 + self.preprocessor.n_features_out))

    @property
    def paths(self) -> tuple[Path, ...]:
        return self.dataset.paths

    def __call__(self, units: range) -> list[NDArray[Any]]:
        return [self.preprocessor.transform(self.dataset.chunk(unit)) for unit in units]

    def describe(self, units: range) -> str:
        return f"chunks {units[0]} to {units[-1]} of {self.dataset.name}, to be prepared"


def _transformed(
    dataset: Dataset, preprocessor: Preprocessor, executor: Executor
) -> Iterator[tuple[int, NDArray[Any]]]:
    start = 0
    with one_blas_thread():
        for blocks in executor.start(TransformWork(dataset, preprocessor), dataset.n_chunks):
            for block in blocks:
                yield start, block
                start += len(block)


def _write(path: Path, shape: tuple[int, int], dtype: np.dtype[Any], rows: Iterator[tuple[int, NDArray[Any]]]) -> None:
    with writing_scratch(path.parent), h5py.File(path, "w") as file:
        stored = file.create_dataset("X", shape=shape, dtype=dtype)
        for start, block in rows:
            stored[start : start + len(block)] = block
            file.flush()  # HDF5 would crash if a full disk is noticed only at closing


def _remove(paths: list[Path], owner: int) -> None:
    # A forked child inherits the finalizer, but not the files.
    if os.getpid() == owner:
        for path in paths:
            path.unlink(missing_ok=True)
