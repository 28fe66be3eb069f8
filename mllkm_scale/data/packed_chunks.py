"""Chunks of whole rows compressed by zlib, as written by `mllkm fetch`, which threads decompress in parallel.

HDF5 decompresses one chunk at a time, under a global lock. Here, a compressed chunk is read under that lock, and
decompressed without it. The last chunks are kept, because ranges of rows share chunks. Threads that request the same
chunk wait for the first one.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

__all__ = ["PackedChunks"]

MOST_BYTES = 2**21
"""Largest size of a chunk: each thread decompresses one."""


class PackedChunks:
    """The chunks of a data set; about `kept_bytes` of decompressed chunks are kept."""

    def __init__(self, shape: tuple[int, ...], height: int, dtype: np.dtype[Any], kept_bytes: int) -> None:
        self.shape, self.height, self.dtype = shape, height, dtype
        self.chunk_shape = (height, *shape[1:])
        self.chunk_bytes = int(np.prod(self.chunk_shape, dtype=np.int64)) * dtype.itemsize
        self._n_kept = max(1, kept_bytes // max(1, self.chunk_bytes))
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._kept: OrderedDict[int, Future[NDArray[Any]]] = OrderedDict()

    @classmethod
    def of(cls, stored: Any, kept_bytes: int) -> PackedChunks | None:
        """The chunks of a data set of HDF5, or None if they are of another kind, or large."""
        if stored.chunks is None or stored.chunks[1:] != stored.shape[1:] or stored.dtype.kind not in "fiu":
            return None
        properties = stored.id.get_create_plist()
        if properties.get_nfilters() != 1 or properties.get_filter(0)[0] != h5py.h5z.FILTER_DEFLATE:
            return None
        made = cls(tuple(stored.shape), int(stored.chunks[0]), stored.dtype, kept_bytes)
        return made if 0 < made.chunk_bytes <= MOST_BYTES else None

    def read(self, start: int, stop: int, packed: Callable[[int], bytes | None]) -> NDArray[Any] | None:
        """Rows `start` to `stop`; `packed` gives the bytes of a chunk, or None, and then the result is None, too."""
        out = np.empty((max(0, stop - start), *self.shape[1:]), self.dtype)
        for number in range(start // self.height, -(-stop // self.height)):
            chunk = self._chunk(number, packed)
            if chunk is None:
                return None
            first = number * self.height
            begin, end = max(start, first), min(stop, first + self.height)
            out[begin - start : end - start] = chunk[begin - first : end - first]
        return out

    def clear(self) -> None:
        """Discard all kept chunks."""
        with self._lock:
            self._kept.clear()

    def _chunk(self, number: int, packed: Callable[[int], bytes | None]) -> NDArray[Any] | None:
        with self._lock:
            if self._pid != os.getpid():  # a forked process lacks the threads for which others may wait
                self._kept, self._pid = OrderedDict(), os.getpid()
            future = self._kept.get(number)
            own = future is None
            if future is None:
                future = self._kept[number] = Future()
                while len(self._kept) > self._n_kept:
                    self._kept.popitem(last=False)
            else:
                self._kept.move_to_end(number)
        if own:
            try:
                future.set_result(self._unpacked(packed(number)))
            except BaseException as error:
                with self._lock:
                    if self._kept.get(number) is future:
                        del self._kept[number]
                future.set_exception(error)
        return future.result()

    def _unpacked(self, raw: bytes | None) -> Any:
        """The rows of a chunk; a ValueError if its bytes are invalid."""
        if raw is None:
            return None
        unpacking = zlib.decompressobj()
        try:
            values = unpacking.decompress(raw, self.chunk_bytes)
        except zlib.error as error:
            raise ValueError(f"a chunk cannot be unpacked: {error}") from None
        if len(values) != self.chunk_bytes or unpacking.decompress(unpacking.unconsumed_tail, 1) or not unpacking.eof:
            raise ValueError(f"a chunk has not the {self.chunk_bytes:,} bytes that it should have")
        return np.frombuffer(values, self.dtype).reshape(self.chunk_shape)
