from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import zarr

from mllkm_scale.errors import ScratchError
from mllkm_scale.gram.disk import DiskTiles, tile_disk_bytes

Damage = Callable[[Path], None]


@pytest.fixture
def tiles(tmp_path: Path) -> Iterator[DiskTiles[str]]:
    disk: DiskTiles[str] = DiskTiles(10**6, tmp_path)
    yield disk
    disk.close()


def tile_folders(folder: Path) -> list[Path]:
    return sorted(folder.glob("mllkm-tiles-*/tile-*"))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (64, 64)])
def test_a_tile_comes_back_bit_for_bit(tiles: DiskTiles[str], dtype: type, shape: tuple[int, int]) -> None:
    tile = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    assert tiles.put("a", tile)
    found = tiles.get("a")
    assert found is not None
    assert found.dtype == tile.dtype
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found.view(np.uint8), tile.view(np.uint8))


@pytest.mark.parametrize("value", [0.0, -0.0, np.nan, np.inf])
def test_tiles_that_zarr_would_call_empty_come_back(tiles: DiskTiles[str], value: float) -> None:
    tile = np.full((5, 4), value)
    tiles.put("a", tile)
    found = tiles.get("a")
    assert found is not None
    assert found.tobytes() == tile.tobytes()
    assert tiles.corrupt == 0


def test_the_stored_array_is_plain_zarr_with_a_checksum(tiles: DiskTiles[str]) -> None:
    tiles.put("a", np.ones((4, 4)))
    (folder,) = tile_folders(tiles.folder.parent)
    metadata = json.loads((folder / "zarr.json").read_text())
    assert metadata["zarr_format"] == 3
    assert metadata["fill_value"] == "NaN"
    assert [codec["name"] for codec in metadata["codecs"]] == ["bytes", "crc32c"]
    assert {path.name for path in folder.iterdir()} == {"zarr.json", "c.0.0"}


def test_the_quota_counts_what_is_really_on_disk(tmp_path: Path, real_bytes: Callable[[Path], int]) -> None:
    quota_bytes = 5 * tile_disk_bytes(2048) + 100
    tiles: DiskTiles[int] = DiskTiles(quota_bytes, tmp_path)
    kept = [tiles.put(number, np.full((16, 16), float(number))) for number in range(8)]
    assert kept == [True] * 5 + [False] * 3
    assert real_bytes(tmp_path) <= tiles.bytes <= quota_bytes
    tiles.discard(2)
    assert tiles.put(7, np.ones((16, 16)))
    assert real_bytes(tmp_path) <= tiles.bytes == tiles.peak_bytes <= quota_bytes
    tiles.close()
    assert list(tmp_path.iterdir()) == []


def flip_value(folder: Path) -> None:
    data = bytearray((folder / "c.0.0").read_bytes())
    data[37] ^= 4
    (folder / "c.0.0").write_bytes(data)


def flip_checksum(folder: Path) -> None:
    data = bytearray((folder / "c.0.0").read_bytes())
    data[-1] ^= 128
    (folder / "c.0.0").write_bytes(data)


def truncate(folder: Path) -> None:
    os.truncate(folder / "c.0.0", 100)


def empty(folder: Path) -> None:
    os.truncate(folder / "c.0.0", 0)


def delete_chunk(folder: Path) -> None:
    (folder / "c.0.0").unlink()


def delete_metadata(folder: Path) -> None:
    (folder / "zarr.json").unlink()


def delete_folder(folder: Path) -> None:
    shutil.rmtree(folder)


def garble_metadata(folder: Path) -> None:
    (folder / "zarr.json").write_bytes(b"\x00{]")


def swap_byte_order(folder: Path) -> None:
    text = (folder / "zarr.json").read_text()
    (folder / "zarr.json").write_text(text.replace('"little"', '"big"'))


def claim_a_huge_shape(folder: Path) -> None:
    text = (folder / "zarr.json").read_text()
    (folder / "zarr.json").write_text(text.replace("16", "1600000"))


def replace_by(array: np.ndarray) -> Damage:
    def replace(folder: Path) -> None:
        shutil.rmtree(folder)
        stored = zarr.create_array(
            store=str(folder),
            shape=array.shape,
            chunks=array.shape,
            dtype=array.dtype,
            compressors=zarr.codecs.Crc32cCodec(),
            chunk_key_encoding={"name": "default", "separator": "."},
        )
        stored[...] = array

    replace.__name__ = f"replace_by_{array.dtype}_{array.shape}"
    return replace


@pytest.mark.parametrize(
    "damage",
    [
        flip_value,
        flip_checksum,
        truncate,
        empty,
        delete_chunk,
        delete_metadata,
        delete_folder,
        garble_metadata,
        swap_byte_order,
        claim_a_huge_shape,
        replace_by(np.ones((16, 16))),
        replace_by(np.ones((16, 16), np.int64)),
        replace_by(np.ones((16, 16), np.float32)),
        replace_by(np.ones((8, 32))),
    ],
    ids=lambda damage: damage.__name__,
)
def test_a_damaged_tile_is_noticed_and_forgotten(tiles: DiskTiles[str], damage: Damage) -> None:
    tile = np.random.default_rng(1).standard_normal((16, 16))
    tiles.put("a", tile)
    (folder,) = tile_folders(tiles.folder.parent)
    damage(folder)
    assert tiles.get("a") is None
    assert tiles.corrupt == 1
    assert (list(tiles), tiles.bytes, tile_folders(tiles.folder.parent)) == ([], 0, [])
    assert tiles.get("a") is None
    assert tiles.corrupt == 1
    assert tiles.put("a", tile)
    found = tiles.get("a")
    assert found is not None
    assert found.tobytes() == tile.tobytes()


def test_valid_files_of_another_tile_are_noticed(tiles: DiskTiles[str]) -> None:
    tiles.put("a", np.ones((4, 4)))
    tiles.put("b", np.zeros((4, 4)))
    first, second = tile_folders(tiles.folder.parent)
    shutil.copy(first / "c.0.0", second / "c.0.0")
    assert tiles.get("b") is None
    assert tiles.get("a") is not None


@contextlib.contextmanager
def short_files() -> Iterator[None]:
    """The operating system lets no file grow beyond 100 kB. A fixture would cut the test log too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_fails_halfway_leaves_nothing_and_warns_once(tiles: DiskTiles[str]) -> None:
    large = np.ones((256, 256))
    message = f"{tiles.folder}.*{os.strerror(errno.EFBIG)}.*free space"
    with short_files(), pytest.warns(RuntimeWarning, match=message):
        kept = tiles.put("a", large)
    assert not kept
    assert tiles.bytes == 0
    assert tile_folders(tiles.folder.parent) == []
    assert not tiles.put("b", large)


def test_writing_resumes_when_a_tile_was_deleted(tiles: DiskTiles[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    tile = np.ones((4, 4))
    tiles.put("a", tile)
    with monkeypatch.context() as patch:
        patch.setattr(zarr.storage.LocalStore, "set", fail)
        with pytest.warns(RuntimeWarning, match="no space"):
            tiles.put("b", tile)
    assert not tiles.put("b", tile)
    tiles.discard("a")
    assert tiles.put("b", tile)
    # The second failure does not warn: a warning would be an error here.
    monkeypatch.setattr(zarr.storage.LocalStore, "set", fail)
    assert not tiles.put("c", tile)


def test_bytes_that_cannot_be_deleted_stay_counted(tiles: DiskTiles[str]) -> None:
    tiles.put("a", np.ones((4, 4)))
    (folder,) = tile_folders(tiles.folder.parent)
    (folder / "notes.txt").write_text("not a tile")
    tiles.discard("a")
    assert tiles.bytes == tile_disk_bytes(128)
    (folder / "notes.txt").unlink()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ScratchError, match=r"file/tiles.*choose one"):
        DiskTiles(10**6, tmp_path / "file" / "tiles")


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = Path.mkdir

    def deny(self: Path, *args: object, **kwargs: object) -> None:
        if self.name.startswith("mllkm-tiles-"):
            raise PermissionError(errno.EACCES, "denied")
        make(self, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", deny)
    with pytest.raises(ScratchError, match="denied"):
        DiskTiles(10**6, tmp_path)


def test_a_file_system_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(*_: object) -> None:
        raise OSError(errno.ENOSYS, "not implemented")

    monkeypatch.setattr("fcntl.flock", deny)
    with pytest.raises(ScratchError, match="grants no file locks"):
        DiskTiles(10**6, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_another_process_swept_before_it_was_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, calls = fcntl.flock, []

    def sweep_first(handle: int, operation: int) -> None:
        calls.append(handle)
        if len(calls) == 1:
            (folder,) = tmp_path.iterdir()
            shutil.rmtree(folder)
        lock(handle, operation)

    monkeypatch.setattr("fcntl.flock", sweep_first)
    tiles: DiskTiles[str] = DiskTiles(10**6, tmp_path)
    assert len(calls) == 2
    assert tiles.put("a", np.ones((4, 4)))
    tiles.close()


def test_two_living_stores_share_a_folder(tmp_path: Path) -> None:
    first: DiskTiles[str] = DiskTiles(10**6, tmp_path)
    first.put("a", np.ones((4, 4)))
    second: DiskTiles[str] = DiskTiles(10**6, tmp_path)
    second.put("a", np.zeros((4, 4)))
    found = first.get("a")
    assert found is not None
    assert found.all()
    second.close()
    assert first.get("a") is not None
    first.close()


DIE = """
import os, signal, sys
import numpy as np
from pathlib import Path
from mllkm_scale.gram.disk import DiskTiles
tiles = DiskTiles(10**6, Path(sys.argv[1]))
tiles.put("a", np.ones((4, 4)))
(tiles.folder / "tile-00000001").mkdir()
(tiles.folder / "tile-00000001" / "c.0.0123456789abcdef0123456789abcdef.partial").write_bytes(b"half")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_opening_deletes_what_a_killed_process_left_and_nothing_else(tmp_path: Path) -> None:
    died = subprocess.run([sys.executable, "-c", DIE, str(tmp_path)], check=False, timeout=60)
    assert died.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert len(list(left.glob("tile-*/*"))) == 3
    others = [
        tmp_path / "data.partial",
        tmp_path / "tile-00000000" / "c.0.0",
        tmp_path / "mllkm-tiles-mine" / "tile-00000000" / "c.0.0",
        left / "notes.txt",
        left / "tile-00000000" / "notes.txt",
    ]
    for path in others:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("not a tile")
    tiles: DiskTiles[str] = DiskTiles(10**6, tmp_path)
    assert list(tiles) == []
    assert sorted(path for path in left.rglob("*") if path.is_file()) == sorted(others[3:])
    tiles.close()
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted(others)


def test_closing_twice_is_harmless(tmp_path: Path) -> None:
    tiles: DiskTiles[str] = DiskTiles(10**6, tmp_path)
    tiles.put("a", np.ones((4, 4)))
    tiles.close()
    tiles.close()
    assert tiles.get("a") is None
    assert not tiles.put("a", np.ones((4, 4)))
    assert list(tmp_path.iterdir()) == []
