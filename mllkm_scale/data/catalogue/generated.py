"""Data sets that are made from others of the catalogue: any number of rows, each a function of its number.

The file is written chunk by chunk, and is never in memory as a whole. Threads make and compress chunks, which are
written in order, so the file has the same bytes for any number of threads. The catalogue has a checksum of every copy
of the originals. An existing file is verified by these before it is used.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.files.whole import cannot_write
from mllkm_scale.base.threads import Threads, n_threads
from mllkm_scale.data.catalogue.deformations import Deformation, deformed
from mllkm_scale.data.catalogue.entries import GENERATED, GeneratedEntry, find
from mllkm_scale.data.catalogue.routes import cache_folder
from mllkm_scale.data.catalogue.store import Notice, load, made_folder
from mllkm_scale.data.converters.writer import HDF5Writer
from mllkm_scale.data.hdf5_source import HDF5Source
from mllkm_scale.errors import DataError, ParameterError

__all__ = ["GeneratedData", "generate", "generated_path"]

CHUNK_ROWS = 600
"""Rows of a chunk of the file; 600 images of 28 x 28 are 470 kB."""

SEED = 0
_LEVEL = 1  # of zlib: higher levels save a tenth of the space, but take several times as long


@dataclass(frozen=True)
class GeneratedData:
    """A file of deformed images."""

    entry: GeneratedEntry
    path: Path
    n_rows: int
    n_test: int
    origin: str


def generated_path(entry: GeneratedEntry, folder: Path | None, rows: int | None) -> Path:
    """NAME.h5 in the folder or the cache, or NAME-ROWS.h5 for a part of it."""
    part = "" if rows in (None, entry.rows[0]) else f"-{rows}"
    return (folder or cache_folder()) / f"{entry.name}{part}.h5"


def generate(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    rows: int | None = None,
    overwrite: bool = False,
    n_jobs: int = -1,
    notice: Notice | None = None,
    progress: Callable[[int, int], object] = lambda done, of: None,
) -> GeneratedData:
    """Make an HDF5 file of deformed images, and return a description with its `path`.

    Parameters
    ----------
    name : str
        One of `mllkm_scale.data.catalogue.GENERATED`.
    folder : path, optional
        Folder of NAME.h5, by default the cache. An existing file is verified and used.
    rows : int, optional
        Only the first rows of this number; the file is then NAME-ROWS.h5.
    overwrite : bool
        Replace an existing file.
    n_jobs : int
        Threads; the file is the same for any number of them.
    notice : callable, optional
        As in `load`.
    progress : callable
        Called with the number of rows written or verified, and the total number.
    """
    entry = GENERATED[name]
    n_rows = entry.rows[0] if rows is None else rows
    if not 1 <= n_rows <= entry.rows[0]:
        raise ParameterError(f"rows={n_rows}: {name} has between 1 and {entry.rows[0]:,} rows")
    target = generated_path(entry, None if folder is None else Path(folder).absolute(), rows)
    with Threads(n_threads(n_jobs)) as threads:
        if target.exists() and not overwrite:
            return _verified(entry, target, n_rows, threads, progress)
        base = load(entry.base, notice=notice)
        if base.checksum not in find(entry.base).contents:
            raise DataError(
                f"{base.path} differs from the catalogue's {entry.base}, of which {name} is made: unset MLLKM_DATA"
            )
        images = base.X.reshape(len(base.X), *entry.image)
        made_folder(target.parent)
        with HDF5Writer(target, overwrite=overwrite) as writer:
            writer.require_space(n_rows * 300)  # approximate size of the compressed images
            writer.append_labels("y", np.resize(base.y, n_rows))
            _write_images(writer, images, n_rows, threads, lambda done: progress(done, n_rows))
            if base.X_test is not None and base.y_test is not None:
                writer.append("X_test", base.X_test)
                writer.append_labels("y_test", base.y_test)
            origin = f"{entry.base}: {base.origin}"
            writer.write_attributes(name=entry.name, title=entry.title, source=origin)
        return GeneratedData(entry, target, n_rows, 0 if base.X_test is None else len(base.X_test), origin)


def _write_images(
    writer: HDF5Writer, images: Array, n_rows: int, threads: Threads, progress: Callable[[int], object]
) -> None:
    stored = writer.create_compressed("X", (n_rows, images[0].size), CHUNK_ROWS, np.uint8, _LEVEL)

    height = stored.chunks[0]

    def chunk(start: int) -> tuple[int, bytes]:
        rows = np.zeros(stored.chunks, np.uint8)  # the last chunk of the file has full size
        numbers = np.arange(start, min(start + height, n_rows))
        rows[: len(numbers)] = deformed(images, numbers, SEED, Deformation()).reshape(len(numbers), -1)
        return start, zlib.compress(rows.tobytes(), _LEVEL)

    try:
        for start, packed in threads.map(chunk, range(0, n_rows, height)):
            stored.id.write_direct_chunk((start, 0), packed)
            progress(min(start + height, n_rows))
    except OSError as error:
        raise cannot_write(writer.target, error) from error


def _verified(
    entry: GeneratedEntry, path: Path, n_rows: int, threads: Threads, progress: Callable[[int, int], object]
) -> GeneratedData:
    """The data of a file whose copies have the checksums of the catalogue."""
    remedy = "choose another folder, or allow it to be overwritten"
    samples, labels = HDF5Source(path, "X"), HDF5Source(path, "y")
    try:
        if samples.shape != (n_rows, entry.n_features) or labels.shape != (n_rows,) or samples.dtype != np.uint8:
            raise ParameterError(f"{path} exists already, and has other rows than {entry.name}: {remedy}")
        for copy, found in enumerate(copy_checksums(samples, labels, entry.copy_rows, progress)):
            if found != entry.copies[copy]:
                raise DataError(f"{path}: copy {copy} of the images is not that of the catalogue (checksum): {remedy}")
        return GeneratedData(entry, path, n_rows, entry.rows[1], "the existing file")
    finally:
        samples.close()
        labels.close()


def copy_checksums(
    samples: HDF5Source, labels: HDF5Source, copy_rows: int, progress: Callable[[int, int], object]
) -> Iterator[str]:
    """For each complete copy of the originals, the beginning of the sha256 of its images and labels."""
    n_rows = samples.shape[0]
    for first in range(0, n_rows - copy_rows + 1, copy_rows):
        found = hashlib.sha256()
        for start in range(first, first + copy_rows, CHUNK_ROWS):
            stop = min(start + CHUNK_ROWS, first + copy_rows)
            found.update(samples.read(start, stop).tobytes())
            found.update(labels.read(start, stop).astype("<i8").tobytes())
        progress(first + copy_rows, n_rows)
        yield found.hexdigest()[:16]
