"""Tiles that a key determines, and ways to look at and to damage the files of a store."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mllkm_scale.gram.ram import Tile
from mllkm_scale.gram.store import TileKey

SHAPE = (16, 16)
TILE_BYTES = 16 * 16 * 8


def make_tile(key: TileKey) -> Tile:
    seed = [key.row, key.column, *key.generation.encode()]
    return np.random.default_rng(seed).standard_normal(SHAPE)


def real_bytes(folder: Path) -> int:
    """Bytes of all files and folders below, the larger of their length and their blocks."""
    paths = [Path(root) / name for root, folders, files in os.walk(folder) for name in folders + files]
    return sum(max(path.stat().st_size, 512 * path.stat().st_blocks) for path in paths)


@pytest.fixture(name="make_tile")
def _make_tile() -> Callable[[TileKey], Tile]:
    return make_tile


@pytest.fixture(name="real_bytes")
def _real_bytes() -> Callable[[Path], int]:
    return real_bytes


@pytest.fixture
def tile_bytes() -> int:
    return TILE_BYTES


@pytest.fixture
def keys() -> list[TileKey]:
    return [TileKey("W1", row, column) for row in range(4) for column in range(5)]
