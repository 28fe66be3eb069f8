"""Tiles of Gram matrices, computed on demand and kept within a bound in bytes: in memory first, then on disk.

In K = G o (A A') - B A' - A B' + A diag(p) A' the linear Gram G = X X' serves every global kernel, and does
not depend on the kernel weights. So its tiles are the most valuable ones, and should be requested first.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mllkm_scale.base.closing import Closing
from mllkm_scale.errors import ParameterError
from mllkm_scale.gram.ram import RamTiles, Tile

if TYPE_CHECKING:
    from mllkm_scale.gram.disk import DiskTiles

__all__ = ["Tile", "TileKey", "TileStatistics", "TileStore"]


@dataclass(frozen=True, slots=True)
class TileStatistics:
    """Counts of a `TileStore` since it was opened; a snapshot, it does not change.

    Attributes
    ----------
    ram_hits, disk_hits : int
        Requests that were answered from memory, and from disk.
    misses : int
        Requests for which the tile was computed.
    evictions : int
        Tiles removed by `TileStore.evict` and `TileStore.retire`. Nothing else evicts.
    rejected : int
        Tiles that were computed and returned, but not kept, because neither tier had room.
    corrupt : int
        Tiles on disk that were damaged or missing when they were read; each was computed again.
    ram_bytes, disk_bytes : int
        Bytes held now; on disk including the overhead of files and folders.
    ram_peak_bytes, disk_peak_bytes : int
        The largest values of `ram_bytes` and `disk_bytes` so far.

    Examples
    --------
    >>> TileStatistics(ram_hits=2, disk_hits=1, misses=1).hit_rate
    0.75
    """

    ram_hits: int = 0
    disk_hits: int = 0
    misses: int = 0
    evictions: int = 0
    rejected: int = 0
    corrupt: int = 0
    ram_bytes: int = 0
    disk_bytes: int = 0
    ram_peak_bytes: int = 0
    disk_peak_bytes: int = 0

    @property
    def requests(self) -> int:
        """Number of requests for a tile."""
        return self.ram_hits + self.disk_hits + self.misses

    @property
    def hit_rate(self) -> float:
        """Share of the requests that computed nothing; 0 if there was no request."""
        return (self.ram_hits + self.disk_hits) / self.requests if self.requests else 0.0


class TileKey(NamedTuple):
    """Name of a tile: row and column in the grid of tiles, and the purpose of the grid.

    A generation is, for example, a working set, or a working set with kernel weights. When it changes, its tiles are
    useless, and `TileStore.retire` forgets them.
    """

    generation: str
    row: int
    column: int


class TileStore(Closing):
    """A store that keeps tiles within a bound in bytes, and computes the others on demand.

    Contract:

    - `get` returns what ``make()`` returns, bit for bit, whatever happened to the files on disk.
    - The tiles held in memory never exceed `ram_bytes`, and the files on disk never exceed `disk_bytes`: room
      is checked before a tile is accepted. A tile that fits nowhere is returned and not kept ("rejected").
    - The first tiles stay. A live tile is never evicted for another one; only `retire` and `evict` make room. A
      cyclic sweep over twice as many tiles as fit has 50 % hits; evicting the least recently used has none.
    - A new tile goes to memory if it fits there, otherwise to disk. A tile that is read from disk moves to memory
      if there is room by then.
    - A disk that is full, or fails, costs time and one `RuntimeWarning`, never a result.
    - Thread-safe. ``make()`` runs outside the locks, so two threads may compute the same tile; one of the two is
      kept. One thread at a time reads and writes files; memory hits do not wait for it. A tile is not kept if its
      generation is retired while it is computed.

    Parameters
    ----------
    ram_bytes : int
        Bound on the bytes of the tiles in memory; tiles that only the caller holds do not count.
    disk_bytes : int, default=0
        Bound on the bytes on disk, including the overhead of files and folders; 0 for no disk tier, without zarr.
    folder : path-like, default=None
        Folder in which the store creates its own subfolder; needed if `disk_bytes` > 0. The store deletes leftovers of
        stores whose process has died, and nothing else. A folder in memory (tmpfs) would defeat the purpose.

    Raises
    ------
    ParameterError
        If a size is not an integer >= 0, or there is a disk quota without a folder.
    ScratchError
        If the folder cannot be created, written to or locked.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(6.0).reshape(3, 2)
    >>> with TileStore(ram_bytes=100) as store:
    ...     for sweep in range(3):
    ...         for row in range(2):
    ...             tile = store.get(TileKey("G", row, 0), lambda: X @ X.T)
    ...     store.statistics.ram_hits, store.statistics.misses, store.statistics.ram_bytes
    (2, 4, 72)
    """

    def __init__(self, ram_bytes: int, disk_bytes: int = 0, folder: str | PathLike[str] | None = None) -> None:
        self._ram: RamTiles[TileKey] = RamTiles(_size("ram_bytes", ram_bytes))
        self._disk: DiskTiles[TileKey] | None = None
        if _size("disk_bytes", disk_bytes) > 0:
            if folder is None:
                raise ParameterError("disk_bytes > 0 needs a folder for the tiles: give one, or disk_bytes=0")
            from mllkm_scale.gram.disk import DiskTiles

            self._disk = DiskTiles(disk_bytes, Path(folder))
        # _lock guards _ram and the counts; _io_lock guards _disk. Who needs both takes _io_lock first.
        self._lock = threading.Lock()
        self._io_lock = threading.Lock()
        self._makings: set[_Making] = set()
        self._ram_hits = self._disk_hits = self._misses = self._evictions = self._rejected = 0

    def get(self, key: TileKey, make: Callable[[], Tile]) -> Tile:
        """Return the tile, read-only; ``make()`` computes it if the store does not have it.

        Parameters
        ----------
        key : TileKey
            Name of the tile.
        make : callable
            Returns the tile, a matrix of float32 or float64. The store takes over the array, which becomes read-only.
            A view, or an array that is not C-contiguous, is copied.
        """
        with self._lock:
            tile = self._ram.get(key)
            if tile is not None:
                self._ram_hits += 1
                return tile
            making = _Making(key.generation)
            self._makings.add(making)
        try:
            tile = self._read(key)
            if tile is not None:
                return tile
            tile = _handed_over(key, make())
            kept = self._keep(key, tile, making)
        finally:
            with self._lock:
                self._makings.remove(making)
        with self._lock:
            self._misses += 1
            self._rejected += not kept
        return tile

    def evict(self, key: TileKey) -> bool:
        """Forget one tile; True if it was kept."""
        with self._io_lock:
            return self._forget({key}) > 0

    def retire(self, generation: str) -> None:
        """Forget all tiles of a generation. Its name may be used again, and then begins empty."""
        with self._io_lock:
            with self._lock:
                self._give_up(making for making in self._makings if making.generation == generation)
                keys = {key for key in self._ram if key.generation == generation}
            if self._disk is not None:
                keys.update(key for key in self._disk if key.generation == generation)
            self._forget(keys)

    @property
    def statistics(self) -> TileStatistics:
        """The counts so far, also after `close`."""
        disk = self._disk
        with self._lock:
            return TileStatistics(
                ram_hits=self._ram_hits,
                disk_hits=self._disk_hits,
                misses=self._misses,
                evictions=self._evictions,
                rejected=self._rejected,
                corrupt=disk.corrupt if disk is not None else 0,
                ram_bytes=self._ram.bytes,
                disk_bytes=disk.bytes if disk is not None else 0,
                ram_peak_bytes=self._ram.peak_bytes,
                disk_peak_bytes=disk.peak_bytes if disk is not None else 0,
            )

    @staticmethod
    def read_overhead_bytes(tile_bytes: int) -> int:
        """Memory that a disk tier needs in addition to `ram_bytes` and the tiles in use, for tiles of `tile_bytes`.

        While zarr reads or writes, it holds the tile twice, as a file and as an array, and its own thread may still
        hold the previous file. Only one thread at a time does so, so this counts once per store.
        """
        return 2 * tile_bytes + 4096

    def close(self) -> None:
        """Forget all tiles and delete their files. `get` still works afterwards, but keeps nothing."""
        with self._io_lock:
            with self._lock:
                self._give_up(self._makings)
                self._ram.close()
            if self._disk is not None:
                self._disk.close()

    def _read(self, key: TileKey) -> Tile | None:
        if self._disk is None:
            return None
        with self._io_lock:
            tile = self._disk.get(key)
            if tile is None:
                return None
            tile = _handed_over(key, tile)
            with self._lock:
                self._disk_hits += 1
                moved = self._ram.put(key, tile)
            if moved:
                self._disk.discard(key)
        return tile

    def _keep(self, key: TileKey, tile: Tile, making: _Making) -> bool:
        with self._lock:
            if making.given_up:
                return False
            if self._ram.put(key, tile):
                return True
        with self._io_lock:
            if self._disk is None or making.given_up:
                return False
            return self._disk.put(key, tile)

    @staticmethod
    def _give_up(makings: Iterable[_Making]) -> None:
        for making in makings:
            making.given_up = True

    def _forget(self, keys: set[TileKey]) -> int:
        on_disk = {key for key in keys if self._disk is not None and self._disk.discard(key)}
        with self._lock:
            in_ram = {key for key in keys if self._ram.discard(key)}
            self._evictions += len(on_disk | in_ram)
        return len(on_disk | in_ram)


@dataclass(eq=False)
class _Making:
    """A tile that is being computed; it is not kept if its generation is retired meanwhile."""

    generation: str
    given_up: bool = False


def _size(name: str, value: int) -> int:
    try:
        size_bytes = operator.index(value)
    except TypeError:
        size_bytes = -1
    if size_bytes < 0 or isinstance(value, bool):
        raise ParameterError(f"{name} must be an integer >= 0, a number of bytes, not {value!r}")
    return size_bytes


def _handed_over(key: TileKey, tile: Tile) -> Tile:
    if tile.ndim != 2 or tile.dtype not in (np.float32, np.float64):
        raise ParameterError(
            f"tile {key} must be a matrix of float32 or float64, not {tile.ndim}-dimensional of {tile.dtype}"
        )
    # A view keeps its whole base array alive, which may still be written to.
    if not (tile.flags.owndata and tile.flags.c_contiguous):
        tile = np.array(tile, order="C")
    tile.setflags(write=False)
    return tile
