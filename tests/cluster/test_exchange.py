"""What the master publishes and workers read: files under names of their own, read once, the last of each slot kept."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from mllkm_scale.base.executor import PlainArrays
from mllkm_scale.cluster.exchange import FOLDER, Exchange, exchange_folder
from mllkm_scale.data import Dataset
from mllkm_scale.errors import ClusterError, ScratchError
from mllkm_scale.scan.support import Support


@dataclass(frozen=True)
class Numbers(PlainArrays):
    values: np.ndarray


@pytest.fixture
def exchange(tmp_path):
    return Exchange(tmp_path)


def test_a_value_comes_back_with_the_same_bits(exchange):
    rng = np.random.default_rng(0)
    support = Support.of(rng.normal(size=(20, 3)), rng.normal(size=(20, 2)), np.dtype(np.float32))
    found = exchange.share("support", support).get()
    for name in ("X", "signed_duals", "origin"):
        np.testing.assert_array_equal(getattr(found, name), getattr(support, name))
        assert getattr(found, name).dtype == getattr(support, name).dtype


def test_what_is_pickled_is_the_path_and_not_the_value(exchange):
    shared = exchange.share("numbers", Support(np.zeros((100_000, 1)), np.zeros((100_000, 1)), np.zeros(1)))
    assert len(pickle.dumps(shared)) < 1000
    assert pickle.loads(pickle.dumps(shared)) == shared


def test_a_value_is_read_once_and_gives_way_to_the_next_of_its_slot(exchange, monkeypatch):
    reads = []
    load = Numbers.load
    monkeypatch.setattr(Numbers, "load", classmethod(lambda cls, path: reads.append(path) or load(path)))
    first, other = exchange.share("a", Numbers(np.zeros(1))), exchange.share("b", Numbers(np.ones(1)))
    for _ in range(3):
        first.get()
        other.get()
    assert reads == [first.path, other.path]
    second = exchange.share("a", Numbers(np.full(1, 2.0)))
    assert second.get().values == 2.0
    assert first.get().values == 0.0
    assert reads == [first.path, other.path, second.path, first.path]


def test_a_damaged_or_missing_file_is_a_cluster_error_that_names_it(exchange):
    shared = exchange.share("numbers", Numbers(np.arange(100.0)))
    content = bytearray(shared.path.read_bytes())
    content[-300] ^= 1
    shared.path.write_bytes(content)
    with pytest.raises(ClusterError, match=shared.path.name):
        shared.get()
    shared.drop()
    assert not shared.path.exists()
    with pytest.raises(ClusterError, match="does not exist"):
        shared.get()


def test_two_exchanges_in_one_folder_never_use_the_same_name(tmp_path):
    names = {Exchange(tmp_path).share("a", Numbers(np.zeros(1))).path for _ in range(5)}
    assert len(names) == 5


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int64])
def test_rows_in_memory_are_placed_in_a_file_with_the_same_bits(exchange, dtype):
    X = np.random.default_rng(0).integers(0, 200, size=(50, 4)).astype(dtype)
    data = Dataset.from_arrays(X, chunk_rows=7)
    placed = exchange.place(data)
    assert placed.path is not None
    assert placed.chunk_rows == 7
    for (start, rows), (expected_start, expected) in zip(placed.chunks(), data.chunks(), strict=True):
        assert start == expected_start
        assert rows.dtype == expected.dtype
        np.testing.assert_array_equal(rows, expected)
    assert exchange.place(placed) is placed


def test_the_folder_is_removed_at_the_end_and_what_a_killed_training_left_at_the_start(tmp_path):
    left = tmp_path / FOLDER / "support-1.npz"
    left.parent.mkdir()
    left.write_text("left")
    with exchange_folder(tmp_path, None) as folder:
        assert folder == tmp_path / FOLDER
        assert list(folder.iterdir()) == []
        (folder / "a").write_text("a")
    assert list(tmp_path.iterdir()) == []
    with exchange_folder(None, tmp_path / "scratch") as folder:
        assert folder.parent == tmp_path / "scratch"
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_folder_that_cannot_be_made_is_a_scratch_error(tmp_path: Path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ScratchError, match="file"), exchange_folder(file, None):
        pass
