"""Statistics of a tile store: hits, misses, and the bytes of its two tiers."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TileStatistics"]


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
