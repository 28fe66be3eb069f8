"""Rows that workers prepare and write have the bits of those that this process prepares."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from mllkm_scale.base.executor import ThreadExecutor
from mllkm_scale.data import Dataset, Preprocessor, prepare
from mllkm_scale.data.preparation import written_rows as module
from mllkm_scale.errors import DataError, ScratchError


class Workers(ThreadExecutor):
    """Threads that are taken for workers: what they are given has been pickled."""

    remote = True

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def start(self, work, n_units):
        return super().start(pickle.loads(pickle.dumps(work)), n_units)


@pytest.fixture
def data():
    X = np.random.default_rng(0).normal(size=(103, 6)).astype(np.float32)
    return Dataset.from_arrays(X, np.arange(103) % 3, chunk_rows=4)


@pytest.mark.parametrize("file_bytes", [1, 200, 1000, 10**6])
@pytest.mark.parametrize("n_components", [None, 3])
def test_workers_write_the_rows_that_this_process_would_make(tmp_path, data, monkeypatch, file_bytes, n_components):
    monkeypatch.setattr(module, "FILE_BYTES", file_bytes)
    preprocessor = Preprocessor.fit(data, "standard", n_components)
    here = prepare(data, preprocessor, in_memory=True)
    folder = tmp_path / "exchange"
    folder.mkdir()
    there = prepare(data, preprocessor, in_memory=False, executor=Workers(folder))
    assert (there.n_rows, there.n_features, there.chunk_rows) == (here.n_rows, here.n_features, here.chunk_rows)
    for rows in (range(103), [5, 102, 0, 5], [3], range(2, 9)):
        np.testing.assert_array_equal(there.rows(list(rows)), here.rows(list(rows)))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(there)).part(1, 77), here.part(1, 77))
    assert there.labels().tolist() == data.labels().tolist()
    assert all(path.suffix == ".npy" for path in folder.iterdir())
    there.close()
    assert list(folder.iterdir()) == []


def test_a_file_that_is_gone_is_named(tmp_path, data):
    there = prepare(data, Preprocessor.fit(data), in_memory=False, executor=Workers(tmp_path))
    next(tmp_path.glob("prepared-*.npy")).unlink()
    with pytest.raises(DataError, match=r"prepared-.*000000\.npy, a part of prepared X, cannot be read"):
        there.part(0, 4)


def test_nothing_stays_where_the_rows_cannot_be_written(tmp_path, data, monkeypatch):
    monkeypatch.setattr(module, "FILE_BYTES", 200)
    replaced = []

    def replace(source, target):
        if len(replaced) == 2:
            raise OSError(28, "No space left on device")
        replaced.append(target)
        source.rename(target)

    monkeypatch.setattr(module.os, "replace", replace)
    folder = tmp_path / "exchange"
    folder.mkdir()
    with pytest.raises(ScratchError, match="No space left"):
        prepare(data, Preprocessor.fit(data), in_memory=False, executor=Workers(folder))
    assert list(folder.iterdir()) == []
