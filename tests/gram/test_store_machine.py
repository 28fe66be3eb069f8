"""Whatever happens to a store and its files, it returns the tile that would be made, within its bounds."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from unittest import mock

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from zarr.abc.buffer import Buffer
from zarr.storage import LocalStore

from mllkm_scale.gram.disk import tile_disk_bytes
from mllkm_scale.gram.ram import Tile
from mllkm_scale.gram.store import TileKey, TileStore

LARGEST_BYTES = 30 * 30 * 8
RAM_BYTES = 2 * LARGEST_BYTES + 50
DISK_BYTES = 5 * tile_disk_bytes(LARGEST_BYTES) + 50

generations = st.sampled_from(["W1", "W2"])
keys = st.builds(TileKey, generations, st.integers(0, 2), st.integers(0, 1))


def recompute(key: TileKey) -> Tile:
    rng = np.random.default_rng([key.row, key.column, *key.generation.encode()])
    if key.row == 2:
        return rng.standard_normal((10, 30), np.float32)
    return rng.standard_normal((30, 30))


class TileStoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.other = self.folder / "results.partial"
        self.other.write_text("not a tile")
        self.full = False
        self.open()

    def open(self) -> None:
        self.store = TileStore(RAM_BYTES, DISK_BYTES, self.folder)
        self.failures = self.warnings = self.requests = 0

    def files(self) -> list[Path]:
        return sorted(self.folder.glob("mllkm-tiles-*/tile-*/*"))

    def write_to_a_full_disk(self) -> Callable[[LocalStore, str, Buffer], Awaitable[None]]:
        """Stands for `LocalStore.set`."""

        async def write_half(local: LocalStore, key: str, value: Buffer) -> None:
            self.failures += 1
            local.root.mkdir(exist_ok=True)
            (local.root / f"{key}.partial").write_bytes(value.to_bytes()[:50])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        return write_half

    @rule(key=keys)
    def get(self, key: TileKey) -> None:
        write = self.write_to_a_full_disk() if self.full else LocalStore.set
        with mock.patch.object(LocalStore, "set", write), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tile = self.store.get(key, lambda: recompute(key))
        expected = recompute(key)
        assert (tile.shape, tile.dtype) == (expected.shape, expected.dtype)
        assert tile.tobytes() == expected.tobytes()
        assert not tile.flags.writeable
        self.requests += 1
        self.warnings += sum("free space" in str(warning.message) for warning in caught)
        assert self.warnings == (self.failures > 0)

    @initialize()
    def fill(self) -> None:
        self.sweep("W1")
        self.sweep("W2")

    @rule(generation=generations)
    def sweep(self, generation: str) -> None:
        for row in range(3):
            for column in range(2):
                self.get(TileKey(generation, row, column))

    @rule(key=keys)
    def evict(self, key: TileKey) -> None:
        self.store.evict(key)
        assert not self.store.evict(key)

    @rule(generation=generations)
    def retire(self, generation: str) -> None:
        self.store.retire(generation)

    @rule(full=st.booleans())
    def fill_or_free_the_disk(self, full: bool) -> None:
        self.full = full

    @precondition(lambda self: self.files())
    @rule(data=st.data(), bit=st.integers(0, 7))
    def flip_a_bit(self, data: st.DataObject, bit: int) -> None:
        path = data.draw(st.sampled_from(self.files()), label="file")
        content = bytearray(path.read_bytes())
        if content:
            content[data.draw(st.integers(0, len(content) - 1), label="byte")] ^= 1 << bit
            path.write_bytes(content)

    @precondition(lambda self: self.files())
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(self.files()), label="file")
        os.truncate(path, data.draw(st.integers(0, path.stat().st_size), label="length"))

    @precondition(lambda self: self.files())
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.files()), label="file").unlink()

    @precondition(lambda self: self.files())
    @rule()
    def put_each_tile_in_the_place_of_the_next(self) -> None:
        folders = sorted({path.parent for path in self.files()})
        moved = [folder.rename(folder.with_suffix(".moved")) for folder in folders]
        for source, target in zip(moved, folders[1:] + folders[:1], strict=True):
            source.rename(target)

    @rule(crash=st.booleans())
    def restart(self, crash: bool) -> None:
        if crash:
            # What the end of a process does: the lock goes, the files stay.
            os.close(self.store._disk._lock)
        else:
            self.store.close()
            assert self.files() == []
        self.open()
        assert self.files() == []
        assert len(list(self.folder.iterdir())) == 2

    @invariant()
    def bounds_hold(self) -> None:
        statistics = self.store.statistics
        assert statistics.ram_bytes <= statistics.ram_peak_bytes <= RAM_BYTES
        assert statistics.disk_bytes <= statistics.disk_peak_bytes <= DISK_BYTES
        held = self.store._ram._tiles.values()
        assert sum(tile.nbytes for tile in held) == statistics.ram_bytes
        below = [path.lstat() for path in self.folder.rglob("*") if path != self.other]
        real_bytes = sum(max(path.st_size, 512 * path.st_blocks) for path in below)
        assert real_bytes <= DISK_BYTES
        assert real_bytes <= statistics.disk_bytes or not self.files()

    @invariant()
    def requests_are_counted(self) -> None:
        assert self.store.statistics.requests == self.requests

    def teardown(self) -> None:
        self.store.close()
        assert list(self.folder.iterdir()) == [self.other]
        shutil.rmtree(self.folder)


TestTileStoreMachine = TileStoreMachine.TestCase
TestTileStoreMachine.settings = settings(
    max_examples=30,
    stateful_step_count=25,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
