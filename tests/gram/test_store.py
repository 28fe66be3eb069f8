from __future__ import annotations

import errno
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest
import zarr

from mllkm_scale.errors import ParameterError, ScratchError
from mllkm_scale.gram.disk import tile_disk_bytes
from mllkm_scale.gram.ram import Tile
from mllkm_scale.gram.store import TileKey, TileStatistics, TileStore

Make = Callable[[TileKey], Tile]


def never() -> Tile:
    raise AssertionError("the tile should have been kept")


def test_a_tile_is_made_once_and_read_only(make_tile: Make) -> None:
    key = TileKey("W1", 0, 1)
    with TileStore(10**6) as store:
        first = store.get(key, lambda: make_tile(key))
        assert store.get(key, never) is first
    assert not first.flags.writeable
    np.testing.assert_array_equal(first, make_tile(key))


def test_keys_differ_in_each_part(make_tile: Make) -> None:
    keys = [
        TileKey("a", 0, 1),
        TileKey("a", 1, 0),
        TileKey("b", 0, 1),
        TileKey("a/b\n", 0, 1),
        TileKey("", 0, 1),
    ]
    with TileStore(10**6) as store:
        for key in keys + keys:
            np.testing.assert_array_equal(store.get(key, lambda key=key: make_tile(key)), make_tile(key))
        assert store.statistics.misses == store.statistics.ram_hits == len(keys)


def test_tiles_go_to_ram_then_to_disk_then_nowhere(
    keys: list[TileKey], make_tile: Make, tile_bytes: int, tmp_path: Path, real_bytes: Callable[[Path], int]
) -> None:
    quota_bytes = 3 * tile_disk_bytes(tile_bytes)
    with TileStore(2 * tile_bytes + 7, quota_bytes, tmp_path) as store:
        for key in keys[:8] * 2:
            tile = store.get(key, lambda key=key: make_tile(key))
            assert tile.tobytes() == make_tile(key).tobytes()
            assert not tile.flags.writeable
            assert real_bytes(tmp_path) <= quota_bytes
        assert store.statistics == TileStatistics(
            ram_hits=2,
            disk_hits=3,
            misses=11,
            rejected=6,
            ram_bytes=2 * tile_bytes,
            ram_peak_bytes=2 * tile_bytes,
            disk_bytes=quota_bytes,
            disk_peak_bytes=quota_bytes,
        )
    assert list(tmp_path.iterdir()) == []


def test_a_tile_larger_than_the_bound_is_returned_and_not_kept(make_tile: Make, tile_bytes: int) -> None:
    key = TileKey("W1", 0, 0)
    with TileStore(tile_bytes - 1) as store:
        for _ in range(2):
            assert store.get(key, lambda: make_tile(key)).nbytes == tile_bytes
        assert store.statistics == TileStatistics(misses=2, rejected=2)


def test_retiring_forgets_a_generation_in_both_tiers_and_no_other(
    make_tile: Make, tile_bytes: int, tmp_path: Path
) -> None:
    old, new = ([TileKey(name, row, 0) for row in range(4)] for name in ("old", "new"))
    with TileStore(4 * tile_bytes, 10**6, tmp_path) as store:
        for row in range(4):
            for key in (old[row], new[row]):
                store.get(key, lambda key=key: make_tile(key))
        store.retire("old")
        assert store.statistics.evictions == 4
        assert store.statistics.ram_bytes == 2 * tile_bytes
        assert store.statistics.disk_bytes == 2 * tile_disk_bytes(tile_bytes)
        assert len(list(tmp_path.glob("*/tile-*"))) == 2
        for key in new:
            store.get(key, never)
        made = store.get(old[0], lambda: make_tile(new[0]))
        np.testing.assert_array_equal(made, make_tile(new[0]))


def test_a_tile_read_from_disk_moves_to_ram_when_there_is_room(
    keys: list[TileKey], make_tile: Make, tile_bytes: int, tmp_path: Path
) -> None:
    with TileStore(tile_bytes, 10**6, tmp_path) as store:
        for key in keys[:2]:
            store.get(key, lambda key=key: make_tile(key))
        assert store.evict(keys[0])
        assert not store.evict(keys[0])
        store.get(keys[1], never)
        store.get(keys[1], never)
        statistics = store.statistics
        assert (statistics.disk_hits, statistics.ram_hits) == (1, 1)
        assert (statistics.disk_bytes, statistics.ram_bytes) == (0, tile_bytes)


@pytest.mark.parametrize(("retired", "kept"), [("W1", False), ("W2", True)])
def test_a_tile_made_while_its_generation_is_retired_is_not_kept(
    make_tile: Make, tmp_path: Path, retired: str, kept: bool
) -> None:
    key = TileKey("W1", 0, 0)
    with TileStore(10**6, 10**6, tmp_path) as store:

        def make() -> Tile:
            store.retire(retired)
            return make_tile(key)

        store.get(key, make)
        assert (store.statistics.misses, store.statistics.rejected) == (1, int(not kept))
        assert (store.statistics.ram_bytes > 0) == kept


def test_a_tile_made_while_the_store_is_closed_is_not_kept(make_tile: Make, tmp_path: Path) -> None:
    key = TileKey("W1", 0, 0)
    store = TileStore(10**6, 10**6, tmp_path)

    def make() -> Tile:
        store.close()
        return make_tile(key)

    store.get(key, make)
    assert store.statistics == TileStatistics(misses=1, rejected=1)


def test_views_and_fortran_order_are_copied(tile_bytes: int) -> None:
    large = np.random.default_rng(0).standard_normal((16, 1000))
    with TileStore(tile_bytes) as store:
        view = store.get(TileKey("view", 0, 0), lambda: large[:, :16])
        assert view.base is None
        assert view.flags.c_contiguous
        expected = large[:, :16].copy()
        large[:] = 0
        np.testing.assert_array_equal(store.get(TileKey("view", 0, 0), never), expected)
        store.retire("view")
        turned = store.get(TileKey("turned", 0, 0), lambda: np.asfortranarray(expected))
        assert turned.flags.c_contiguous
        np.testing.assert_array_equal(turned, expected)
    large[:] = 1


@pytest.mark.parametrize("tile", [np.ones(3), np.ones((2, 2), int), np.ones((2, 2), ">f8"), np.ones((1, 2, 2))])
def test_what_is_no_tile_is_refused(tile: Tile) -> None:
    with (
        TileStore(1000) as store,
        pytest.raises(ParameterError, match=r"generation='W1'.*float32 or float64"),
    ):
        store.get(TileKey("W1", 0, 0), lambda: tile)


def test_damage_on_disk_costs_only_a_making(
    keys: list[TileKey], make_tile: Make, tile_bytes: int, tmp_path: Path
) -> None:
    with TileStore(0, 10**6, tmp_path) as store:
        for key in keys:
            store.get(key, lambda key=key: make_tile(key))
        for number, path in enumerate(sorted(tmp_path.glob("*/tile-*/c.0.0"))):
            data = bytearray(path.read_bytes())
            data[(number * 97) % len(data)] ^= 1 << number % 8
            path.write_bytes(data)
        for key in keys * 2:
            tile = store.get(key, lambda key=key: make_tile(key))
            assert tile.tobytes() == make_tile(key).tobytes()
        statistics = store.statistics
    assert statistics.corrupt == statistics.disk_hits == len(keys)
    assert statistics.misses == 2 * len(keys)


def test_a_full_disk_costs_one_warning_and_no_result(
    keys: list[TileKey], make_tile: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(zarr.storage.LocalStore, "set", fail)
    with TileStore(0, 10**6, tmp_path) as store:
        with pytest.warns(RuntimeWarning, match=f"{tmp_path}.*No space left.*free space there") as caught:
            store.get(keys[0], lambda: make_tile(keys[0]))
        assert [warning.filename for warning in caught] == [__file__]
        for key in keys[1:] + keys:
            np.testing.assert_array_equal(store.get(key, lambda key=key: make_tile(key)), make_tile(key))
        assert store.statistics.rejected == 2 * len(keys)
        assert store.statistics.disk_bytes == 0


def test_a_closed_store_makes_and_keeps_nothing(make_tile: Make, tile_bytes: int, tmp_path: Path) -> None:
    key = TileKey("W1", 0, 0)
    store = TileStore(tile_bytes, 10**6, tmp_path)
    store.get(key, lambda: make_tile(key))
    store.close()
    store.close()
    np.testing.assert_array_equal(store.get(key, lambda: make_tile(key)), make_tile(key))
    assert store.statistics == TileStatistics(misses=2, rejected=1, ram_peak_bytes=tile_bytes)
    assert list(tmp_path.iterdir()) == []


def test_an_error_in_making_is_the_callers_and_leaves_no_trace(make_tile: Make) -> None:
    key = TileKey("W1", 0, 0)

    def fail() -> Tile:
        raise ZeroDivisionError

    with TileStore(10**6) as store:
        with pytest.raises(ZeroDivisionError):
            store.get(key, fail)
        assert store.statistics == TileStatistics()
        store.get(key, lambda: make_tile(key))


@pytest.mark.parametrize("size", [-1, 1.5, True, "1GB", None])
def test_sizes_that_cannot_work_are_refused(size: object, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="ram_bytes must be an integer"):
        TileStore(size)
    with pytest.raises(ParameterError, match="disk_bytes must be an integer"):
        TileStore(0, size, tmp_path)


def test_a_quota_needs_a_folder_that_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="needs a folder"):
        TileStore(0, 1000)
    (tmp_path / "file").write_text("")
    with pytest.raises(ScratchError, match="file"):
        TileStore(0, 1000, tmp_path / "file")


def test_without_a_quota_zarr_is_not_imported_and_the_folder_not_touched(tmp_path: Path) -> None:
    code = (
        "import sys; from mllkm_scale.gram.store import TileStore;"
        f"TileStore(10, 0, {str(tmp_path / 'tiles')!r}).close(); sys.exit('zarr' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
    assert not (tmp_path / "tiles").exists()


def test_statistics_are_a_snapshot(make_tile: Make) -> None:
    with TileStore(10**6) as store:
        before = store.statistics
        store.get(TileKey("W1", 0, 0), lambda: make_tile(TileKey("W1", 0, 0)))
        assert before == TileStatistics()
        assert before.hit_rate == 0
        with pytest.raises(FrozenInstanceError):
            before.misses = 3  # type: ignore[misc]


def test_the_disk_tier_needs_no_more_memory_than_it_says(tmp_path: Path) -> None:
    key, tile = TileKey("W1", 0, 0), np.random.default_rng(0).standard_normal((1024, 512))
    allowed_bytes = TileStore.read_overhead_bytes(tile.nbytes) + 500_000
    with TileStore(0, 10**8, tmp_path) as store:
        for warm_up in (TileKey("small", 0, 0), TileKey("small", 0, 0)):
            store.get(warm_up, lambda: np.ones((2, 2)))
        tracemalloc.start()
        try:
            store.get(key, lambda: tile)
            assert tracemalloc.get_traced_memory()[1] < allowed_bytes
            tracemalloc.reset_peak()
            found = store.get(key, never)
            assert tracemalloc.get_traced_memory()[1] < found.nbytes + allowed_bytes
        finally:
            tracemalloc.stop()


def test_threads_get_the_same_bits_within_the_bounds(
    keys: list[TileKey], make_tile: Make, tile_bytes: int, tmp_path: Path
) -> None:
    quota_bytes = 6 * tile_disk_bytes(tile_bytes)
    every = keys + [key._replace(generation="W2") for key in keys]
    start = threading.Barrier(4)

    def work(seed: int) -> int:
        start.wait(timeout=10)
        for step, number in enumerate(np.random.default_rng(seed).integers(len(every), size=120)):
            key = every[number]
            tile = store.get(key, lambda key=key: make_tile(key))
            assert tile.tobytes() == make_tile(key).tobytes()
            if step % 40 == 39:
                store.retire(f"W{seed % 2 + 1}")
            if step % 25 == 24:
                store.evict(key)
        return step + 1

    with TileStore(5 * tile_bytes, quota_bytes, tmp_path) as store, ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, range(4))) == store.statistics.requests
        assert store.statistics.ram_peak_bytes <= 5 * tile_bytes
        assert store.statistics.disk_peak_bytes <= quota_bytes
        assert store.statistics.corrupt == 0
        store.retire("W1")
        store.retire("W2")
        assert store.statistics.ram_bytes == store.statistics.disk_bytes == 0


def test_memory_hits_do_not_wait_for_making(make_tile: Make, tile_bytes: int) -> None:
    kept, slow = TileKey("W1", 0, 0), TileKey("W1", 0, 1)
    making, answered = threading.Event(), threading.Event()

    def make_slowly() -> Tile:
        making.set()
        assert answered.wait(timeout=10)
        return make_tile(slow)

    with TileStore(2 * tile_bytes) as store, ThreadPoolExecutor(1) as pool:
        store.get(kept, lambda: make_tile(kept))
        future = pool.submit(store.get, slow, make_slowly)
        assert making.wait(timeout=10)
        store.get(kept, never)
        answered.set()
        np.testing.assert_array_equal(future.result(timeout=10), make_tile(slow))
