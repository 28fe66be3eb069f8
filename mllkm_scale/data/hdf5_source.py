"""Rows of an HDF5 data set.

The file is opened read-only, once in each process, and only data in the file itself are read: links, virtual data sets
and external storage are refused, because they could read other files.
"""

from __future__ import annotations

import errno
import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import h5py
import numpy as np
from numpy.typing import NDArray

from mllkm_scale.data.packed_chunks import PackedChunks
from mllkm_scale.data.sources import one_line, plain_text, require_plain_dtype
from mllkm_scale.errors import DataError, MLLKMError

__all__ = ["HDF5Source", "find_dataset", "named", "open_hdf5"]

_DAMAGE = (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError, OverflowError, NotImplementedError)
"""The exceptions of h5py for damaged metadata."""

CACHE_BYTES = 8 * 2**20
LISTED = 20


class HDF5Source:
    """Rows of one data set of an HDF5 file. Threads may share it: closing it does not affect a thread that is
    reading."""

    def __init__(self, path: Path, dataset: str) -> None:
        self._lock = threading.Lock()
        self.path = path
        self.dataset = dataset
        self.name = f"{path.name}:{dataset}"
        # The process, its file and its data set.
        self._handle: tuple[int, Any, Any] | None = None
        stored = self._open()
        with named(path):
            self.shape: tuple[int, ...] = tuple(int(size) for size in stored.shape)
            self.dtype = _plain_dtype(stored, self.name)
            self.buffer_bytes = _buffer_bytes(stored)
            self.item_bytes = int(stored.dtype.itemsize)
            self._chunks = PackedChunks.of(stored, CACHE_BYTES)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows `start` to `stop`; text is decoded."""
        try:
            if self._chunks is not None:
                rows = self._chunks.read(start, stop, self._packed)
                if rows is not None:
                    return rows
            with self._lock:
                stored = self._stored()
                if self.dtype.kind == "U":
                    _require_lengths(stored, start, stop, self.path)
                values = np.asarray(stored[start:stop])
        except DataError:
            raise
        except _DAMAGE as error:
            raise DataError(
                f"{self.name}: rows {start} to {stop - 1} cannot be read ({one_line(error)}): the file is"
                " damaged or a compression filter is missing; copy or convert it again"
            ) from error
        return plain_text(values, self.name, first_row=start)

    def close(self) -> None:
        """Close the file; the next `read` opens it again."""
        with self._lock:
            if self._handle is not None:
                handle, self._handle = self._handle, None
                with suppress(*_DAMAGE):  # nothing was written
                    handle[1].close()
        if self._chunks is not None:
            self._chunks.clear()

    def _packed(self, number: int) -> bytes | None:
        """A compressed chunk; None if it was never written, or is not compressed."""
        with self._lock:
            stored = self._stored()
            place = (number * stored.chunks[0], *[0] * (stored.ndim - 1))
            info = stored.id.get_chunk_info_by_coord(place)
            if info.byte_offset is None or info.filter_mask:
                return None
            packed: bytes = stored.id.read_direct_chunk(place)[1]
            return packed

    def _stored(self) -> Any:
        handle = self._handle
        if handle is not None and handle[0] == os.getpid():
            return handle[2]
        stored = self._open()
        if tuple(stored.shape) != self.shape or _plain_dtype(stored, self.name) != self.dtype:
            raise DataError(f"{self.name} has changed since it was opened: open it again")
        return stored

    def _open(self) -> Any:
        file = open_hdf5(self.path)
        try:
            with named(self.path):
                stored = find_dataset(file, self.dataset, self.path)
        except BaseException:
            with suppress(*_DAMAGE):
                file.close()
            raise
        self._handle = (os.getpid(), file, stored)
        return stored

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("_lock", "_chunks")
        state = {name: value for name, value in self.__dict__.items() if name not in left_out} | {"_handle": None}
        chunks = self._chunks
        return state | {"height": None if chunks is None else chunks.height}

    def __setstate__(self, state: dict[str, Any]) -> None:
        height = state.pop("height")
        chunks = None if height is None else PackedChunks(state["shape"], height, state["dtype"], CACHE_BYTES)
        self.__dict__.update(state, _lock=threading.Lock(), _chunks=chunks)


def open_hdf5(path: Path) -> Any:
    """Open an HDF5 file read-only, without locks if the file system has none."""
    try:
        if not os.path.exists(path):
            remedy = "check the path, or make it first: mllkm convert train.csv train.h5"
            raise DataError(f"{path} does not exist: {remedy}")
        if not path.is_file() or path.stat().st_size == 0:
            raise DataError(f"{path} is empty or no regular file: make it first: mllkm convert train.csv train.h5")
        with path.open("rb"):
            pass
        if not h5py.is_hdf5(path):
            raise DataError(f"{path} is not an HDF5 file: convert it first: mllkm convert {path.name} {path.stem}.h5")
        try:
            return h5py.File(path, "r", rdcc_nbytes=CACHE_BYTES)
        except OSError as error:
            if "lock file" not in str(error) or error.errno in (errno.EAGAIN, errno.EACCES):
                raise
            return h5py.File(path, "r", rdcc_nbytes=CACHE_BYTES, locking=False)
    except DataError:
        raise
    except _DAMAGE as error:
        if isinstance(error, BlockingIOError):
            remedy = "another process is writing it; wait for it to end"
        elif isinstance(error, PermissionError):
            remedy = "change its permissions"
        else:
            remedy = "the file is damaged or cut short; copy or convert it again"
        raise DataError(f"{path} cannot be opened ({one_line(error)}): {remedy}") from error


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Context for reading metadata: errors of h5py about damage are reported with the file and a remedy."""
    try:
        yield
    except MLLKMError:
        raise
    except _DAMAGE as error:
        raise DataError(
            f"{path} cannot be read ({one_line(error)}): the file is damaged or cut short; copy or convert it again"
        ) from error


def find_dataset(file: Any, name: str, path: Path) -> Any:
    """The data set `name`, reached by hard links only."""
    parts = [part for part in name.split("/") if part]
    node = file
    for depth, part in enumerate(parts):
        here = "/".join(parts[: depth + 1])
        # The low-level calls inspect the link itself; the usual ones would follow it.
        key = part.encode("utf-8")
        if not isinstance(node, h5py.Group) or part == "." or not node.id.links.exists(key):
            raise _no_such_dataset(file, name, path)
        if node.id.links.get_info(key).type != h5py.h5l.TYPE_HARD:
            raise DataError(
                f"{path.name}:{here} is a soft or external link, which is not followed: store the data itself"
            )
        node = node[part]
    if not parts or not isinstance(node, h5py.Dataset):
        raise _no_such_dataset(file, name, path)
    if node.is_virtual:
        raise DataError(f"{path.name}:{name} is a virtual data set, which is not followed: store the data itself")
    if node.external:
        raise DataError(
            f"{path.name}:{name} is stored in the external file {node.external[0][0]!r}, which is not read:"
            " store the data in the file itself"
        )
    if node.shape is None:
        raise DataError(f"{path.name}:{name} is an empty (null) data set: store an array")
    return node


def _no_such_dataset(file: Any, name: str, path: Path) -> DataError:
    found: list[str] = []

    def note(key: str, node: Any) -> bool | None:
        if isinstance(node, h5py.Dataset):
            found.append(key)
        return True if len(found) == LISTED else None

    file.visititems(note)
    listing = ", ".join(sorted(found)) or "no data sets"
    return DataError(f"{path} has no data set {name!r}: it has {listing}; name the one to use")


def _plain_dtype(stored: Any, name: str) -> np.dtype[Any]:
    if h5py.check_string_dtype(stored.dtype) is not None:
        return np.dtype(np.str_)
    dtype: np.dtype[Any] = stored.dtype
    require_plain_dtype(dtype, name)
    return dtype


def _buffer_bytes(stored: Any) -> int:
    if stored.chunks is None:
        return 0
    filtered = stored.id.get_create_plist().get_nfilters() > 0
    chunk_bytes = int(np.prod(stored.chunks, dtype=np.int64)) * stored.dtype.itemsize
    # A filtered chunk is held twice, compressed and decompressed, even if it is larger than the cache.
    return CACHE_BYTES + (2 * chunk_bytes if filtered else 0)


def _require_lengths(stored: Any, start: int, stop: int, path: Path) -> None:
    """Refuse texts with a declared length beyond the size of the file, or with an inconsistent heap.

    HDF5 would allocate memory for them before checking, or read the heap forever. Compressed data are not checked.
    """
    packed = stored.chunks is not None and stored.id.get_create_plist().get_nfilters() > 0
    if h5py.check_string_dtype(stored.dtype).length is not None or packed:
        return
    address_bytes, _ = stored.file.id.get_create_plist().get_sizes()
    reference = np.dtype([("length", "<u4"), ("address", f"V{address_bytes}"), ("index", "<u4")])
    row_bytes = reference.itemsize * math.prod(stored.shape[1:])
    size = path.stat().st_size
    with path.open("rb") as file:
        for offset, length in _places(stored, start, stop, row_bytes):
            file.seek(offset)
            texts = np.frombuffer(file.read(length // reference.itemsize * reference.itemsize), reference)
            longest = int(texts["length"].max(initial=0))
            if longest > size:
                raise DataError(
                    f"{path.name}:{stored.name[1:]}: a text of rows {start} to {stop - 1} shall have {longest:,} bytes,"
                    " more than the file: it is damaged; copy or convert it again"
                )
            for address in np.unique(texts["address"][texts["length"] > 0]):
                if not _adds_up(file, int.from_bytes(address.tobytes(), "little"), size):
                    raise DataError(
                        f"{path.name}:{stored.name[1:]}: the heap of its texts does not add up: the file is damaged;"
                        " copy or convert it again"
                    )


def _adds_up(file: IO[bytes], address: int, size: int) -> bool:
    """Whether a collection of the global heap consists of consecutive texts and free space up to its end."""
    if address > size - 16:
        return False
    file.seek(address)
    head = file.read(16)
    end = int.from_bytes(head[8:], "little")
    if head[:4] != b"GCOL" or end > size - address:
        return False
    heap, at = head + file.read(end - 16), 16
    while at <= end - 16:
        index, length = int.from_bytes(heap[at : at + 2], "little"), int.from_bytes(heap[at + 8 : at + 16], "little")
        step = length if index == 0 else 16 + (length + 7) // 8 * 8
        if step < 16 or step > end - at:
            return False
        at += step
    return True


def _places(stored: Any, start: int, stop: int, row_bytes: int) -> Iterator[tuple[int, int]]:
    """The positions of rows in the file, as offsets and lengths; unwritten rows have none."""
    if stored.chunks is None:
        offset = stored.id.get_offset()
        if offset is not None:
            yield offset + start * row_bytes, (stop - start) * row_bytes
        return
    for first in range(start - start % stored.chunks[0], stop, stored.chunks[0]):
        chunk = stored.id.get_chunk_info_by_coord((first, *[0] * (stored.ndim - 1)))
        if chunk.byte_offset is not None:
            yield chunk.byte_offset, chunk.size
