"""Hit rates of the sweeps that solvers make, with room for half of the tiles."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from mllkm_scale.gram.disk import tile_disk_bytes
from mllkm_scale.gram.ram import Tile
from mllkm_scale.gram.store import TileKey, TileStore

SWEEPS = 6
Order = Callable[[list[TileKey]], Iterator[list[TileKey]]]


def cyclic(keys: list[TileKey]) -> Iterator[list[TileKey]]:
    for _ in range(SWEEPS):
        yield keys


def serpentine(keys: list[TileKey]) -> Iterator[list[TileKey]]:
    for sweep in range(SWEEPS):
        yield keys[:: -1 if sweep % 2 else 1]


def permuted(keys: list[TileKey]) -> Iterator[list[TileKey]]:
    rng = np.random.default_rng(0)
    for _ in range(SWEEPS):
        yield [keys[number] for number in rng.permutation(len(keys))]


def least_recently_used_hits(order: Iterator[list[TileKey]], capacity: int) -> float:
    held: OrderedDict[TileKey, None] = OrderedDict()
    hits = requests = 0
    for sweep, keys in enumerate(order):
        for key in keys:
            hits += sweep > 0 and key in held
            requests += sweep > 0
            held[key] = None
            held.move_to_end(key)
            if len(held) > capacity:
                held.popitem(last=False)
    return hits / requests


def warm_hit_rate(store: TileStore, order: Iterator[list[TileKey]], make: Callable[[TileKey], Tile]) -> float:
    """Share of hits after the first sweep."""
    for key in next(order):
        store.get(key, lambda key=key: make(key))
    cold = store.statistics
    for keys in order:
        for key in keys:
            store.get(key, lambda key=key: make(key))
    warm = store.statistics
    return (warm.ram_hits - cold.ram_hits + warm.disk_hits - cold.disk_hits) / (warm.requests - cold.requests)


@pytest.mark.parametrize("order", [cyclic, serpentine, permuted])
def test_half_the_room_gives_half_the_hits(
    order: Order, keys: list[TileKey], make_tile: Callable[[TileKey], Tile], tile_bytes: int
) -> None:
    with TileStore(ram_bytes=len(keys) // 2 * tile_bytes) as store:
        assert warm_hit_rate(store, order(keys), make_tile) == 0.5
        assert store.statistics.evictions == 0
        assert store.statistics.rejected == store.statistics.misses - len(keys) // 2


def test_independent_draws_hit_half_the_time(
    keys: list[TileKey], make_tile: Callable[[TileKey], Tile], tile_bytes: int
) -> None:
    draws = np.random.default_rng(1).integers(len(keys), size=1000)
    with TileStore(ram_bytes=len(keys) // 2 * tile_bytes) as store:
        for number in draws:
            store.get(keys[number], lambda key=keys[number]: make_tile(key))
        assert store.statistics.hit_rate == pytest.approx(0.5, abs=0.05)


def test_least_recently_used_would_have_no_hit_on_a_cyclic_sweep(keys: list[TileKey]) -> None:
    assert least_recently_used_hits(cyclic(keys), len(keys) // 2) == 0
    assert least_recently_used_hits(permuted(keys), len(keys) // 2) < 0.25


@pytest.mark.parametrize("order", [cyclic, serpentine, permuted])
def test_a_disk_for_the_other_half_gives_all_hits(
    order: Order,
    keys: list[TileKey],
    make_tile: Callable[[TileKey], Tile],
    tile_bytes: int,
    tmp_path: Path,
) -> None:
    half = len(keys) // 2
    with TileStore(half * tile_bytes, half * tile_disk_bytes(tile_bytes), tmp_path) as store:
        assert warm_hit_rate(store, order(keys), make_tile) == 1
        assert store.statistics.ram_hits == store.statistics.disk_hits
