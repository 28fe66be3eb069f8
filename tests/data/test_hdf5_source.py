"""HDF5 files that are damaged, hostile or incomplete are refused with a message that names the object."""

from __future__ import annotations

import pickle
import zlib

import h5py
import numpy as np
import pytest

from mllkm_scale.base.threads import Threads
from mllkm_scale.data import Dataset
from mllkm_scale.data.hdf5_source import HDF5Source
from mllkm_scale.data.packed_chunks import PackedChunks
from mllkm_scale.errors import DataError


def refused(path, message, x="X", y=None):
    with pytest.raises(DataError, match=message) as caught:
        Dataset.open(path, x=x, y=y)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_missing_data_set_is_refused_with_the_list_of_those_there_are(write_hdf5):
    path = write_hdf5(A=np.eye(2), **{"inner/B": np.eye(2)})
    assert "A, inner/B" in refused(path, "no data set 'X'")
    assert "A, inner/B" in refused(path, "no data set 'labels'", x="A", y="labels")
    refused(path, "no data set 'inner'", x="inner")
    refused(path, "no data set 'A/X'", x="A/X")
    refused(path, "no data set './A'", x="./A")
    refused(path, "no data set ''", x="")


def test_a_data_set_in_a_group_is_found(write_hdf5):
    with Dataset.open(write_hdf5(**{"a/b/X": np.eye(2)}), x="/a/b/X", y=None) as data:
        np.testing.assert_array_equal(data.chunk(0), np.eye(2))


def test_files_that_are_no_hdf5_are_refused_with_the_remedy(tmp_path):
    refused(tmp_path / "none.h5", r"none\.h5 does not exist.*mllkm convert")
    empty = tmp_path / "empty.h5"
    empty.touch()
    refused(empty, r"empty\.h5 is empty")
    text = tmp_path / "train.csv"
    text.write_text("1,2,3\n" * 100)
    refused(text, r"mllkm convert train\.csv train\.h5")


def test_a_truncated_file_is_refused(write_hdf5):
    path = write_hdf5(X=np.zeros((1000, 4)))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    refused(path, r"train\.h5 cannot be opened.*cut short")


def test_rows_that_cannot_be_unpacked_are_named(tmp_path):
    path = tmp_path / "train.h5"
    with h5py.File(path, "w") as file:
        stored = file.create_dataset(
            "X", data=np.random.default_rng(0).normal(size=(64, 4)), chunks=(64, 4), compression="gzip"
        )
        place = stored.id.get_chunk_info(0)
    with path.open("r+b") as file:
        file.seek(place.byte_offset + place.size // 2)
        file.write(b"\xff" * 40)
    with (
        Dataset.open(path, y=None) as data,
        pytest.raises(DataError, match=r"train\.h5:X: rows 0 to 63 .*damaged"),
    ):
        data.chunk(0)


def test_soft_and_external_links_are_refused_by_name(tmp_path, write_hdf5):
    secret = write_hdf5("secret.h5", X=np.eye(2), **{"group/X": np.eye(2)})
    path = write_hdf5(real=np.eye(2))
    with h5py.File(path, "r+") as file:
        file["soft"] = h5py.SoftLink("/real")
        file["outside"] = h5py.ExternalLink(str(secret), "/X")
        file["folder"] = h5py.ExternalLink(str(secret), "/group")
        file["dangling"] = h5py.SoftLink("/nowhere")
    refused(path, r"train\.h5:soft is a soft or external link", x="soft")
    refused(path, r"train\.h5:outside is a soft or external link", x="outside")
    refused(path, r"train\.h5:folder is a soft or external link", x="folder/X")
    refused(path, r"train\.h5:dangling is a soft or external link", x="dangling")
    refused(path, r"train\.h5:soft is a soft or external link", x="real", y="soft")


def test_virtual_data_sets_are_refused(tmp_path, write_hdf5):
    secret = write_hdf5("secret.h5", X=np.eye(2))
    path = tmp_path / "train.h5"
    with h5py.File(path, "w") as file:
        layout = h5py.VirtualLayout(shape=(2, 2), dtype="f8")
        layout[:] = h5py.VirtualSource(str(secret), "X", shape=(2, 2))
        file.create_virtual_dataset("X", layout)
    refused(path, r"train\.h5:X is a virtual data set")


def test_external_storage_is_refused(tmp_path):
    raw = tmp_path / "raw.bin"
    raw.write_bytes(np.eye(2).tobytes())
    path = tmp_path / "train.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("X", shape=(2, 2), dtype="f8", external=[(str(raw), 0, h5py.h5f.UNLIMITED)])
    refused(path, r"train\.h5:X is stored in the external file .*raw\.bin")


@pytest.mark.parametrize(
    "values",
    [
        np.zeros((2, 2), dtype=[("a", "f8"), ("b", "f8")]),
        np.zeros((2, 2), dtype=complex),
        np.array([["a", "b"]], dtype=h5py.string_dtype()),
        np.array([[b"a", b"b"]]),
        h5py.Empty("f8"),
        np.float64(3.0),
    ],
    ids=["compound", "complex", "text", "bytes", "null", "scalar"],
)
def test_types_that_are_no_matrix_of_numbers_are_refused(values, write_hdf5):
    refused(write_hdf5(X=values), r"train\.h5:X")


def test_object_references_are_refused_as_labels(tmp_path):
    path = tmp_path / "train.h5"
    with h5py.File(path, "w") as file:
        file["X"] = np.eye(2)
        file.create_dataset("y", data=[file.ref, file["X"].ref], dtype=h5py.ref_dtype)
    refused(path, r"train\.h5:y has type object", y="y")


def test_a_file_system_without_locks_is_read_without_them(write_hdf5, monkeypatch):
    path = write_hdf5(X=np.eye(2))
    real = h5py.File

    def without_locks(*arguments, locking=None, **options):
        if locking is not False:
            raise OSError(37, "Unable to open file (unable to lock file, errno = 37)")
        return real(*arguments, locking=locking, **options)

    monkeypatch.setattr(h5py, "File", without_locks)
    with Dataset.open(path, y=None) as data:
        np.testing.assert_array_equal(data.chunk(0), np.eye(2))


def test_a_file_that_is_being_written_is_refused(write_hdf5, monkeypatch):
    path = write_hdf5(X=np.eye(2))

    def locked(*arguments, **options):
        raise BlockingIOError(11, "Unable to open file (unable to lock file, errno = 11)")

    monkeypatch.setattr(h5py, "File", locked)
    refused(path, "another process is writing it")


@pytest.mark.parametrize("dtype", ["u1", "<i4", ">f4", "f8"])
@pytest.mark.parametrize("height", [1, 7, 60, 103])
@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"fletcher32": True}], ids=str)
def test_rows_of_packed_chunks_are_those_that_were_written(tmp_path, dtype, height, options):
    X = np.random.default_rng(0).integers(0, 200, (103, 5)).astype(dtype)
    with h5py.File(tmp_path / "train.h5", "w") as file:
        file.create_dataset("X", data=X, chunks=(height, 5), compression="gzip", **options)
        file.create_dataset("y", data=X[:, 0], chunks=(height,), compression="gzip", **options)
        part = file.create_dataset(
            "part", X.shape, dtype, chunks=(height, 5), compression="gzip", fillvalue=3, **options
        )
        part[50:70] = X[50:70]
    expected = np.full_like(X, 3)
    expected[50:70] = X[50:70]
    ranges = [(start, start + size) for start in range(97) for size in (1, 6)] + [(0, 103), (40, 103)]
    for name, values in (("X", X), ("y", X[:, 0]), ("part", expected)):
        source = HDF5Source(tmp_path / "train.h5", name)
        assert (source._chunks is None) == bool(options)

        def same(rows, source=source, values=values):
            return np.array_equal(source.read(*rows), values[slice(*rows)])

        with Threads(4) as threads:
            assert all(threads.run(same, ranges * 2))
        source.close()
        assert same((3, 9), pickle.loads(pickle.dumps(source)))


def test_unpacked_chunks_are_kept_within_their_bytes_and_unpacked_once(tmp_path):
    X = np.zeros((64, 8), np.float64)
    with h5py.File(tmp_path / "train.h5", "w") as file:
        file.create_dataset("X", data=X, chunks=(4, 8), compression="gzip")
    source = HDF5Source(tmp_path / "train.h5", "X")
    source._chunks = PackedChunks(X.shape, 4, X.dtype, kept_bytes=3 * 4 * 64)
    asked = []
    packed, source._packed = source._packed, lambda number: asked.append(number) or packed(number)
    for start in range(0, 60, 2):
        source.read(start, start + 2)
        assert len(source._chunks._kept) <= 3
    assert asked == list(range(15))


@pytest.mark.parametrize("packed", [b"nothing", zlib.compress(bytes(255)), zlib.compress(bytes(10**6))])
def test_chunks_of_another_size_are_refused(tmp_path, packed):
    with h5py.File(tmp_path / "train.h5", "w") as file:
        stored = file.create_dataset("X", (16, 8), np.float32, chunks=(8, 8), compression="gzip")
        stored.id.write_direct_chunk((0, 0), packed)
        stored.id.write_direct_chunk((8, 0), zlib.compress(bytes(256)))
    source = HDF5Source(tmp_path / "train.h5", "X")
    for _ in range(2):
        with pytest.raises(DataError, match=r"train\.h5:X: rows 2 to 9 cannot be read"):
            source.read(2, 10)
    assert not source.read(8, 16).any()


def test_the_memory_of_packed_chunks_is_counted(tmp_path):
    with h5py.File(tmp_path / "train.h5", "w") as file:
        file.create_dataset("flat", data=np.zeros((100, 10)))
        file.create_dataset("packed", data=np.zeros((100, 10)), chunks=(100, 10), compression="gzip")
    with Dataset.open(tmp_path / "train.h5", x="flat", y=None) as data:
        assert data.buffer_bytes == 0
    with Dataset.open(tmp_path / "train.h5", x="packed", y=None) as data:
        assert data.buffer_bytes == 8 * 2**20 + 2 * 8000


def test_threads_share_a_source_that_is_closed_again_and_again(write_hdf5):
    X = np.arange(600.0).reshape(300, 2)
    source = HDF5Source(write_hdf5(X=X), "X")

    def read(start: int) -> bool:
        rows = source.read(start, start + 3)
        source.close()
        return np.array_equal(rows, X[start : start + 3])

    with Threads(4) as threads:
        assert all(threads.run(read, list(range(290)) * 3))


def test_a_damaged_heap_of_names_is_told_with_the_file(tmp_path):
    path = tmp_path / "heap.h5"
    with h5py.File(path, "w") as file:
        file["X"], file["y"] = np.zeros((4, 2)), np.arange(4) % 2
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"HEAP")] ^= 1
    path.write_bytes(raw)
    with pytest.raises(DataError, match=r"heap.h5 cannot be read .*: the file is damaged"):
        Dataset.open(path)
