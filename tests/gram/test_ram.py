from __future__ import annotations

import numpy as np
import pytest

from mllkm_scale.gram.ram import RamTiles


def test_a_tile_that_does_not_fit_is_refused_and_evicts_nothing() -> None:
    tiles: RamTiles[str] = RamTiles(limit_bytes=100)
    assert tiles.put("a", np.ones((3, 3)))
    assert not tiles.put("b", np.ones((3, 3)))
    assert list(tiles) == ["a"]
    assert tiles.bytes == tiles.peak_bytes == 72


def test_a_tile_as_large_as_the_bound_fits() -> None:
    tiles: RamTiles[str] = RamTiles(limit_bytes=72)
    assert tiles.put("a", np.ones((3, 3)))


def test_the_first_tile_of_a_key_stays() -> None:
    tiles: RamTiles[str] = RamTiles(limit_bytes=1000)
    first = np.ones((3, 3))
    tiles.put("a", first)
    assert tiles.put("a", np.ones((4, 4)))
    assert tiles.get("a") is first
    assert tiles.bytes == first.nbytes


def test_discarding_gives_the_bytes_back() -> None:
    tiles: RamTiles[str] = RamTiles(limit_bytes=100)
    tiles.put("a", np.ones((3, 3)))
    assert tiles.discard("a")
    assert not tiles.discard("a")
    assert (tiles.bytes, tiles.peak_bytes) == (0, 72)
    assert tiles.put("b", np.ones((3, 3)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_closed_it_takes_in_nothing(dtype: type) -> None:
    tiles: RamTiles[str] = RamTiles(limit_bytes=100)
    tiles.put("a", np.ones((2, 2), dtype))
    tiles.close()
    assert tiles.get("a") is None
    assert not tiles.put("a", np.ones((2, 2), dtype))
    assert tiles.bytes == 0
