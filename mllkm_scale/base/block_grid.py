"""Blocks of rows on a fixed grid: chunks, and parts of chunks of at most a given height."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BlockGrid"]


@dataclass(frozen=True)
class BlockGrid:
    """Blocks of rows that never cross the border of a chunk; or every `step`-th of these blocks, from `first` on.

    Examples
    --------
    >>> grid = BlockGrid(n_rows=12, chunk_rows=5, height=3)
    >>> [grid.bounds(i) for i in range(len(grid))]
    [(0, 3), (3, 5), (5, 8), (8, 10), (10, 12)]
    >>> some = BlockGrid(n_rows=12, chunk_rows=5, height=3, first=1, step=3)
    >>> [some.bounds(i) for i in range(len(some))]
    [(3, 5), (10, 12)]
    """

    n_rows: int
    chunk_rows: int
    height: int
    first: int = 0
    step: int = 1

    def __len__(self) -> int:
        whole, rest = divmod(self.n_rows, self.chunk_rows)
        return len(range(self.first, whole * self._a_chunk + -(-rest // self.height), self.step))

    @property
    def _a_chunk(self) -> int:
        """Number of blocks in a whole chunk."""
        return -(-self.chunk_rows // self.height)

    def bounds(self, i: int) -> tuple[int, int]:
        """First row of block `i`, and the row after its last."""
        chunk, block = divmod(self.first + i * self.step, self._a_chunk)
        start = chunk * self.chunk_rows + block * self.height
        return start, min(start + self.height, (chunk + 1) * self.chunk_rows, self.n_rows)

    @property
    def n_covered(self) -> int:
        """Number of rows in the blocks."""
        return sum(stop - start for start, stop in map(self.bounds, range(len(self))))

    def span(self, units: range) -> tuple[int, int]:
        """First row of a range of blocks, and the row after its last."""
        return self.bounds(units[0])[0], self.bounds(units[-1])[1]
