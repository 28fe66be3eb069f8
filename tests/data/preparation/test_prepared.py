"""The transformed data holds the same bits in memory and on disk, and leaves no file behind."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from collections import namedtuple

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from mllkm_scale.data import Dataset, Preprocessor, default_chunk_rows, prepare
from mllkm_scale.errors import DataError, ScratchError


@pytest.fixture
def wide():
    random = np.random.default_rng(3)
    return random.normal(size=(1500, 90)) @ random.normal(size=(90, 90))


def everything(data):
    return np.concatenate([chunk for _, chunk in data.chunks()])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_memory_and_disk_hold_the_same_bits_whatever_the_blas_threads(wide, dtype, write_hdf5, tmp_path):
    with Dataset.open(write_hdf5(X=wide.astype(dtype), y=np.arange(1500) % 3), chunk_rows=500) as data:
        with threadpool_limits(limits=1, user_api="blas"):
            preprocessor = Preprocessor.fit(data, "standard", n_components=20, whiten=True)
            in_memory = prepare(data, preprocessor, in_memory=True)
        with threadpool_limits(limits=2, user_api="blas"):
            again = Preprocessor.fit(data, "standard", n_components=20, whiten=True)
            on_disk = prepare(data, again, in_memory=False, scratch_dir=tmp_path / "scratch")
        with on_disk:
            assert (on_disk.n_rows, on_disk.n_features, on_disk.dtype) == (1500, 20, dtype)
            assert on_disk.chunk_rows == in_memory.chunk_rows == default_chunk_rows(20)
            np.testing.assert_array_equal(everything(in_memory), everything(on_disk))
            np.testing.assert_array_equal(on_disk.labels(), data.labels())
            np.testing.assert_allclose(
                everything(on_disk), preprocessor.transform(wide.astype(dtype)), rtol=1e-3, atol=1e-4
            )


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_the_file_is_removed_on_close_and_on_collection_but_not_by_copies(samples, tmp_path):
    data = Dataset.from_arrays(samples)
    preprocessor = Preprocessor.fit(data)
    ready = prepare(data, preprocessor, in_memory=False, scratch_dir=tmp_path)
    with pickle.loads(pickle.dumps(ready)) as copy:
        np.testing.assert_array_equal(everything(copy), everything(ready))
    del copy
    assert [path.suffix for path in tmp_path.iterdir()] == [".h5"]
    child = os.fork()
    if child == 0:
        ready.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert len(list(tmp_path.iterdir())) == 1
    ready.close()
    assert list(tmp_path.iterdir()) == []
    ready = prepare(data, preprocessor, in_memory=False, scratch_dir=tmp_path)
    del ready
    assert list(tmp_path.iterdir()) == []


def test_data_without_labels_stays_without(samples):
    data = Dataset.from_arrays(samples)
    assert not prepare(data, Preprocessor.fit(data), in_memory=True).has_labels


def test_a_scratch_folder_that_cannot_be_made_is_named(samples, tmp_path):
    data = Dataset.from_arrays(samples)
    (tmp_path / "file").touch()
    with pytest.raises(ScratchError, match="file/below cannot be written"):
        prepare(data, Preprocessor.fit(data), in_memory=False, scratch_dir=tmp_path / "file" / "below")


def test_a_scratch_folder_with_too_little_space_is_refused_before_writing(samples, tmp_path, monkeypatch):
    data = Dataset.from_arrays(samples)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(1000, 900, 100))
    with pytest.raises(ScratchError, match="100 B free, but the transformed data needs 960 B"):
        prepare(data, Preprocessor.fit(data), in_memory=False, scratch_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


FULL_DISK = """
import resource, sys
from pathlib import Path
import numpy as np
from mllkm_scale.data import Dataset, Preprocessor, prepare
from mllkm_scale.errors import ScratchError
data = Dataset.from_arrays(np.random.default_rng(0).normal(size=(20000, 10)))
preprocessor = Preprocessor.fit(data)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
try:
    prepare(data, preprocessor, in_memory=False, scratch_dir=Path(sys.argv[1]))
except ScratchError as error:
    sys.stdout.write(str(error))
"""


def test_a_disk_that_fills_up_is_reported_and_nothing_is_left(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert f"writing to the scratch folder {tmp_path} failed" in run.stdout, run.stderr
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_when_the_data_cannot_be_read(tmp_path, write_hdf5):
    path = write_hdf5(X=np.eye(3))
    data = Dataset.open(path, y=None)
    preprocessor = Preprocessor.fit(data)
    data.close()
    path.unlink()
    with pytest.raises(DataError, match="does not exist"):
        prepare(data, preprocessor, in_memory=False, scratch_dir=tmp_path / "scratch")
    assert list((tmp_path / "scratch").iterdir()) == []
