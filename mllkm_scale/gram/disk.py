"""The second tier of the tile store: tiles as zarr arrays in a scratch folder, bounded in bytes.

Each tile is an array with one chunk, so deleting its folder deletes the tile:

    <folder>/mllkm-tiles-<random>/owner.lock                       locked while its process lives
    <folder>/mllkm-tiles-<random>/tile-<serial>/zarr.json, c.0.0   little-endian values, then their crc32c

Only memory records which tiles exist, because a missing chunk silently reads as zarr's fill value. So a restart
begins empty, and deletes the files of dead processes. This module is imported only when a store with a disk tier is
opened: importing zarr takes most of a second.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import re
import secrets
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Generic, NamedTuple

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec
from zarr.storage import LocalStore

from mllkm_scale.errors import ScratchError
from mllkm_scale.gram.ram import Key, Tile

__all__ = ["DiskTiles", "tile_disk_bytes"]

_BLOCK_BYTES = 4096
_CHECKSUM_BYTES = 4
_LOCK, _CHUNK = "owner.lock", "c.0.0"
_STORE_NAME = re.compile(r"mllkm-tiles-[0-9a-f]{16}")
_TILE_NAME = re.compile(r"tile-\d{8,}")
_TILE_FILE = re.compile(r"zarr\.json|c\.0\.0|.*\.partial")


def tile_disk_bytes(tile_bytes: int) -> int:
    """Upper bound on the bytes of a tile on disk: values, metadata, its folder, its name in the parent.

    >>> tile_disk_bytes(4092), tile_disk_bytes(4093)
    (16384, 20480)
    """
    blocks = -(-(tile_bytes + _CHECKSUM_BYTES) // _BLOCK_BYTES)
    return (blocks + 3) * _BLOCK_BYTES


class _Record(NamedTuple):
    """The record of a tile on disk; `checksum` is kept in memory only."""

    folder: Path
    shape: tuple[int, ...]
    dtype: np.dtype[np.float32 | np.float64]
    checksum: int
    cost_bytes: int


class DiskTiles(Generic[Key]):
    """A mapping from keys to tiles on disk, whose bytes never exceed `limit_bytes`.

    Contract:

    - Bytes are counted before they are written (`tile_disk_bytes`) and released after the files are gone. A
      tile that does not fit is refused; none is evicted for it.
    - `get` returns the tile that was put, bit for bit, or None. A damaged or missing tile is counted in `corrupt`,
      and forgotten.
    - An `OSError` in writing is not raised: the tile is refused, and so are others until one is deleted. The first
      time there is a warning.
    - Only files with the names above are deleted, even if there are other files beside them.
    - Reading and writing need the memory of one more tile, which zarr may hold until its next call.
    - Not thread-safe; the caller holds a lock, also during reading and writing.

    Parameters
    ----------
    limit_bytes : int
        Bound on the bytes on disk, including the overhead of files and folders.
    folder : Path
        Folder in which this mapping creates its own; several processes may share it, each with its own bound.
    """

    def __init__(self, limit_bytes: int, folder: Path) -> None:
        self.limit_bytes = limit_bytes
        self.bytes = 0
        self.peak_bytes = 0
        self.corrupt = 0
        self._records: dict[Key, _Record] = {}
        self._serial = 0
        self._accepts = True
        self._warned = False
        self._lock: int | None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _sweep_leftovers(folder)
            self.folder, self._lock = _own_folder(folder)
        except OSError as error:
            raise ScratchError(
                f"no tiles can be kept in the folder {folder} ({error}): choose one that can be written to, "
                "or a disk quota of 0"
            ) from error

    def __iter__(self) -> Iterator[Key]:
        return iter(self._records)

    def get(self, key: Key) -> Tile | None:
        """The tile, or None if it is not here or not intact."""
        record = self._records.get(key)
        if record is None:
            return None
        tile = _read(record)
        if tile is None:
            self.corrupt += 1
            self.discard(key)
        return tile

    def put(self, key: Key, tile: Tile) -> bool:
        """Write the tile if it fits; True if the key is here afterwards. The first tile of a key stays."""
        if key in self._records:
            return True
        cost_bytes = tile_disk_bytes(tile.nbytes)
        if not self._accepts or self.bytes + cost_bytes > self.limit_bytes:
            return False
        folder = self.folder / f"tile-{self._serial:08d}"
        record = _Record(folder, tile.shape, tile.dtype, zlib.crc32(tile.data), cost_bytes)
        self._serial += 1
        self.bytes += cost_bytes
        self.peak_bytes = max(self.peak_bytes, self.bytes)
        try:
            _write(folder, tile)
        except OSError as error:
            self._delete(record)
            self._accepts = False
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"a tile could not be written to {self.folder} ({error}): tiles that do not fit in RAM "
                    "are made again each time, which is slower; free space there, or choose another folder",
                    RuntimeWarning,
                    stacklevel=4,
                )
            return False
        self._records[key] = record
        return True

    def discard(self, key: Key) -> bool:
        """Delete the tile; True if it was here."""
        record = self._records.pop(key, None)
        if record is None:
            return False
        self._accepts = self._delete(record) or self._accepts
        return True

    def close(self) -> None:
        """Delete all tiles and the folder of this mapping, and accept no more tiles."""
        self._records.clear()
        self.limit_bytes = 0
        self.bytes = 0
        if self._lock is not None:
            _delete_store(self.folder)
            os.close(self._lock)
            self._lock = None

    def _delete(self, record: _Record) -> bool:
        # Bytes that could not be deleted stay counted: the bound is one on what is on disk.
        if not _delete_tile(record.folder):
            return False
        self.bytes -= record.cost_bytes
        return True


def _write(folder: Path, tile: Tile) -> None:
    array = zarr.create_array(
        store=LocalStore(folder),
        shape=tile.shape,
        chunks=tile.shape,
        dtype=tile.dtype,
        filters=None,
        compressors=Crc32cCodec(),
        fill_value=np.nan,
        zarr_format=3,
        chunk_key_encoding={"name": "default", "separator": "."},
        config={"write_empty_chunks": True},
    )
    array[...] = tile


def _read(record: _Record) -> Tile | None:
    expected = (record.shape, record.shape, record.dtype)
    stored_bytes = math.prod(record.shape) * record.dtype.itemsize + _CHECKSUM_BYTES
    try:
        # Sizes first: damaged metadata must not make zarr allocate what it says.
        if os.path.getsize(record.folder / _CHUNK) != stored_bytes:
            return None
        array = zarr.open_array(store=LocalStore(record.folder, read_only=True), mode="r", zarr_format=3)
        if (array.shape, array.chunks, array.dtype) != expected:
            return None
        tile: Tile = np.asarray(array[...])
    except MemoryError:
        raise
    except Exception:  # Whatever damaged files make zarr raise, the remedy is the same: make the tile again.
        return None
    # The codec's checksum is in the file: it does not notice a valid file of another tile, nor a missing one.
    return tile if zlib.crc32(tile.data) == record.checksum else None


def _own_folder(parent: Path) -> tuple[Path, int]:
    """A folder that no other process uses, and the handle of its lock."""
    # Another process may take a folder that is not locked yet for a leftover, though hardly each time.
    for _ in range(5):
        folder = parent / f"mllkm-tiles-{secrets.token_hex(8)}"
        folder.mkdir()
        handle = _try_lock(folder)
        if handle is not None:
            return folder, handle
        _delete_store(folder)
    raise OSError("its file system grants no file locks")


def _try_lock(folder: Path) -> int | None:
    """The handle of the folder's lock, or None if another process holds it. The lock ends with its process."""
    with contextlib.suppress(OSError):
        handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(handle).st_nlink > 0:
                return handle
        os.close(handle)
    return None


def _sweep_leftovers(parent: Path) -> None:
    for folder in list(parent.iterdir()):
        if _STORE_NAME.fullmatch(folder.name) and folder.is_dir() and not folder.is_symlink():
            handle = _try_lock(folder)
            if handle is not None:
                _delete_store(folder)
                os.close(handle)


def _delete_store(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for tile in list(folder.iterdir()):
            if _TILE_NAME.fullmatch(tile.name):
                _delete_tile(tile)
        (folder / _LOCK).unlink(missing_ok=True)
        folder.rmdir()


def _delete_tile(folder: Path) -> bool:
    """Delete the files of a tile and its folder; True if nothing remains."""
    with contextlib.suppress(OSError):
        if not folder.is_symlink():
            for file in list(folder.iterdir()):
                if _TILE_FILE.fullmatch(file.name):
                    file.unlink()
            folder.rmdir()
    return not os.path.lexists(folder)
