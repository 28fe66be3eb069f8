"""How a descent is cut, and what it holds in memory: arithmetic over sizes, for the plan."""

from __future__ import annotations

from dataclasses import replace

from mllkm_scale.learn.dropout import kept_kernels
from mllkm_scale.learn.machine import Layout
from mllkm_scale.learn.settings import HELD_SHARE, MOST_HELD, SAMPLE_ROWS, LearnSettings

__all__ = ["BLOCK_ROWS", "WINDOW_BYTES", "block_bytes", "learn_bytes", "window_rows"]

BLOCK_ROWS = 128
"""Rows of a block: a batch is cut into such blocks, whatever the threads, and the bits follow from it."""

WINDOW_BYTES = 64 << 20
"""Of the rows of a window, in single precision."""


def window_rows(n_rows: int, chunk_rows: int, n_features: int) -> int:
    """Rows of a window, at most: whole chunks of at most `WINDOW_BYTES`, or one chunk."""
    chunks = max(1, WINDOW_BYTES // (4 * n_features * chunk_rows))
    return min(n_rows, chunks * chunk_rows)


def block_bytes(layout: Layout, height: int, itemsize: int = 4) -> int:
    """Memory of a block, with what a step gathers of the active rows."""
    s, K, width = layout.n_kernels, layout.n_outputs, layout.width
    if layout.family.componentwise:
        rows = height * (3 * s * width)
        rest = 2 * s * K * width
    else:
        rows = height * (5 * s + 2 * K * width + 2 * width)
        rest = s
    rows += height * (4 * width + 2 * K + layout.n_features)
    return itemsize * (layout.size + rows + rest + 4 * s * width)


def learn_bytes(layout: Layout, n_rows: int, chunk_rows: int, settings: LearnSettings) -> int:
    """Memory of a descent: a window of rows, the blocks of a batch, parameters and moments, and held-out rows."""
    most = min(2 * settings.batch_rows, n_rows)  # of a block of more rows, the others are never touched
    of_a_step = replace(layout, n_kernels=kept_kernels(layout.n_kernels, settings.dropout))
    blocks = -(-most // BLOCK_ROWS) * block_bytes(of_a_step, min(BLOCK_ROWS, most))
    if settings.dropout > 0:  # a block of the whole machine beside them, and the parameters of a step
        blocks += block_bytes(layout, min(BLOCK_ROWS, most)) + 4 * of_a_step.size
    window = 4 * (layout.n_features + layout.n_outputs) * window_rows(n_rows, chunk_rows, layout.n_features)
    window += 8 * (2 * layout.n_features * chunk_rows + 2 * window_rows(n_rows, chunk_rows, layout.n_features))
    held = min(MOST_HELD, int(HELD_SHARE * n_rows) + 1) * (20 * layout.n_features + 8 * layout.n_outputs)
    sample = 3 * 8 * min(n_rows, max(SAMPLE_ROWS, layout.n_kernels)) * layout.n_features
    parameters = layout.size * (4 * 6 + 8)
    return blocks + window + held + sample + parameters + n_rows
