"""Blocks of rows: a partition on a fixed grid."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale.base.block_grid import BlockGrid


@given(st.integers(1, 500), st.integers(1, 60), st.integers(1, 80))
def test_blocks_are_a_partition_that_keeps_to_height_and_chunks(n_rows, chunk_rows, height):
    grid = BlockGrid(n_rows, chunk_rows, height)
    bounds = [grid.bounds(i) for i in range(len(grid))]
    assert [row for start, stop in bounds for row in range(start, stop)] == list(range(n_rows))
    assert all(0 < stop - start <= height for start, stop in bounds)
    assert all(start // chunk_rows == (stop - 1) // chunk_rows for start, stop in bounds)
    assert grid.span(range(len(grid))) == (0, n_rows)
