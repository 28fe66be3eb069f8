"""Gram matrices: the blocks of the restricted problem, and a store of tiles with a bound in bytes."""

from mllkm_scale.gram.blocks import Block, make_block
from mllkm_scale.gram.store import TileKey, TileStatistics, TileStore

__all__ = ["Block", "TileKey", "TileStatistics", "TileStore", "make_block"]
