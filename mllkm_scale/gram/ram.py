"""The first tier of the tile store: tiles in memory, bounded in bytes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["RamTiles", "Tile"]

Key = TypeVar("Key", bound=Hashable)
Tile: TypeAlias = NDArray[np.float32 | np.float64]


class RamTiles(Generic[Key]):
    """A mapping from keys to tiles whose bytes never exceed `limit_bytes`, not even for a moment.

    Contract:

    - Room is checked before a tile is accepted. A tile that does not fit is refused; none is evicted for it.
    - Tiles must own their memory: a view would keep alive bytes that are not counted.
    - Not thread-safe; the caller holds a lock.

    Parameters
    ----------
    limit_bytes : int
        Bound on the sum of `nbytes` of the tiles.

    Attributes
    ----------
    bytes, peak_bytes : int
        Bytes held now, and the largest number of bytes held so far.

    Examples
    --------
    >>> tiles = RamTiles(limit_bytes=40)
    >>> tiles.put("a", np.zeros((2, 2))), tiles.put("b", np.zeros((2, 2)))
    (True, False)
    >>> tiles.bytes, list(tiles)
    (32, ['a'])
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.bytes = 0
        self.peak_bytes = 0
        self._tiles: dict[Key, Tile] = {}

    def __iter__(self) -> Iterator[Key]:
        return iter(self._tiles)

    def get(self, key: Key) -> Tile | None:
        """The tile, or None if it is not here."""
        return self._tiles.get(key)

    def put(self, key: Key, tile: Tile) -> bool:
        """Store the tile if it fits; True if the key is here afterwards. The first tile of a key stays."""
        if key in self._tiles:
            return True
        if self.bytes + tile.nbytes > self.limit_bytes:
            return False
        self._tiles[key] = tile
        self.bytes += tile.nbytes
        self.peak_bytes = max(self.peak_bytes, self.bytes)
        return True

    def discard(self, key: Key) -> bool:
        """Forget the tile; True if it was here."""
        tile = self._tiles.pop(key, None)
        if tile is None:
            return False
        self.bytes -= tile.nbytes
        return True

    def close(self) -> None:
        """Forget all tiles, and accept no more."""
        self._tiles.clear()
        self.bytes = 0
        self.limit_bytes = 0
